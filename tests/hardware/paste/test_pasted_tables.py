"""The table and the columns of `nvidia-smi` on unusual machines, and what is around the cards."""

from __future__ import annotations

import pytest
from pasted_text import GIB, MIB, by_id, found, read

from local_tp.hardware.diagnose import diagnose

HEAD = """\
| NVIDIA-SMI {tool}     Driver Version: {driver}      CUDA Version: 13.0     |
| GPU  Name                 {mode} | Bus-Id          Disp.A | Volatile Uncorr. ECC |
"""
ROWS = """\
|   {index}  {name:<24} {on:>4}  |   {slot} Off |                  N/A |
| {left:<40}| {memory:>22} |      0%   {compute:>10} |
|                                         |                        |                  N/A |
"""


def table(
    *cards: str, tool: str = "580.95.05", driver: str = "580.95.05", mode: str = "Persistence-M"
) -> str:
    return HEAD.format(tool=tool, driver=driver, mode=mode) + "".join(cards)


def card(
    name: str,
    index: int = 0,
    slot: str | None = None,
    memory: str = "4MiB / 24576MiB",
    left: str = "N/A   41C    P8              4W /  N/A",
    compute: str = "Default",
    on: str = "On",
) -> str:
    place = slot or f"00000000:{index + 1:02X}:00.0"
    return ROWS.format(
        name=name, index=index, slot=place, memory=memory, left=left, compute=compute, on=on
    )


SPARK = table(card("NVIDIA GB10", slot="0000000F:01:00.0", memory="Not Supported"))
FREE = """\
$ free {flag}
               total        used        free      shared  buff/cache   available
Mem:    {total}  {unit}  {unit}  {unit}  {unit}  {available}
Swap:   {swap}  0  {swap}
"""


def test_a_card_without_memory_of_its_own_has_the_pcs() -> None:
    free = FREE.format(flag="-b", total=119 * GIB, unit=GIB, available=110 * GIB, swap=16 * GIB)
    rig = read(SPARK, free).rig
    (spark,) = rig.devices
    assert (spark.id, spark.name) == ("000f:01:00.0", "NVIDIA GB10")
    assert (spark.total, spark.free, spark.facts.integrated) == (119 * GIB, 110 * GIB, True)
    assert (rig.ram, rig.host.swap) == (119 * GIB, 16 * GIB)
    assert found(rig) == {}


@pytest.mark.parametrize(
    "text",
    [
        SPARK,
        "index, name, memory.total [MiB], memory.free [MiB]\n0, NVIDIA GB10, [N/A], [N/A]\n",
        "GPU 0000000F:01:00.0\n    Product Name        : NVIDIA GB10\n    FB Memory Usage\n"
        "        Total           : N/A\n        Used            : N/A\n",
    ],
)
def test_what_tells_the_memory_of_such_a_card_is_said(text: str) -> None:
    rig = read(text).rig
    (spark,) = rig.devices
    assert (spark.total, spark.facts.integrated) == (0, True)
    assert f"{spark.id}: memory not in the text: it is the PC's own, which `free -b` tells" in (
        rig.unknown
    )


@pytest.mark.parametrize(
    ("flag", "total", "ram"),
    [
        ("-b", 16 * GIB, 16 * GIB),
        ("", 16 * 1024**2, 16 * GIB),
        ("-m", 16 * 1024, 16 * GIB),
        ("-g", 16, 16 * GIB),
        ("-m", 63 * 1024, 63 * GIB),
        ("-b", 512 * GIB, 512 * GIB),
    ],
)
def test_memory_of_the_pc_in_any_unit(flag: str, total: int, ram: int) -> None:
    text = FREE.format(flag=flag, total=total, unit=1, available=total, swap=0)
    rig = read(text).rig
    assert (rig.ram, rig.available_ram) == (ram, ram)


def test_a_tool_of_linux_that_asks_windows_driver_is_wsl() -> None:
    rig = read(table(card("NVIDIA GeForce RTX 3090"), tool="570.124.06", driver="572.70")).rig
    assert rig.host.wsl
    assert "wsl-hidden-memory" in found(rig)
    plain = read(table(card("NVIDIA GeForce RTX 3090"))).rig
    windows = read(table(card("NVIDIA GeForce RTX 3090", on="WDDM"), mode="Driver-Model")).rig
    assert (plain.host.wsl, windows.host.wsl) == (None, False)


def test_a_share_of_a_card_is_known_by_its_name() -> None:
    rig = read(table(card("NVIDIA A40-24Q"))).rig
    assert (rig.devices[0].facts.virtual, rig.host.virtual_machine) == (True, "of an unknown kind")
    assert found(rig) == {"virtual-gpu": ("0000:01:00.0",)}
    whole = read(table(card("NVIDIA RTX 6000 Ada Generation"), card("GRID T4-16Q", 1))).rig
    assert [device.facts.virtual for device in whole.devices] == [None, True]


@pytest.mark.parametrize(
    ("words", "id"),
    [
        ("E. Process", "compute-mode-exclusive"),
        ("Prohibited", "compute-mode-prohibited"),
        ("Default", None),
    ],
)
def test_modes_as_the_table_shortens_them(words: str, id: str | None) -> None:
    rig = read(table(card("NVIDIA RTX A6000", memory="4MiB / 49140MiB", compute=words))).rig
    assert found(rig) == ({} if id is None else {id: ("0000:01:00.0",)})


def test_a_card_that_stopped_answering_in_the_midst() -> None:
    broken = card("NVIDIA GeForce RTX 3080", 1, left="ERR!  ERR! ERR!      N/A / ERR!")
    rig = read(table(card("CMP 90HX", memory="1MiB / 10240MiB"), broken)).rig
    assert by_id(rig)["0000:02:00.0"].facts.lost
    assert found(rig) == {"gpu-lost": ("0000:02:00.0",)}


def test_a_board_without_a_bus_id_is_there_still() -> None:
    row = (
        "|   0  Orin (nvgpu)                  N/A  | N/A              N/A   |     N/A |\n"
        "| N/A   N/A  N/A               N/A /  N/A | Not Supported          |     N/A      N/A |\n"
    )
    (board,) = read(table(row)).rig.devices
    assert (board.id, board.name, board.facts.integrated) == ("GPU0", "Orin (nvgpu)", True)


def test_windows_in_another_language_with_cards_of_two_driver_models() -> None:
    text = "C:\\Users\\Jörg>nvidia-smi\n" + table(
        card("NVIDIA GeForce RTX 4090", on="WDDM", memory="1893MiB /  24564MiB"),
        card("Tesla P40", 1, on="TCC"),
        mode="Driver-Model",
    )
    pasted = read(text)
    assert [d.facts.driver_model for d in pasted.rig.devices] == ["WDDM", "TCC"]
    assert {"driver-models-differ", "mixed-architectures"} <= set(found(pasted.rig))
    assert pasted.unread == ()


@pytest.mark.parametrize("spoil", ["> ", "> > ", "| ", "    ", "\u00a0\u00a0"])
def test_quoted_indented_and_with_spaces_that_do_not_break(spoil: str) -> None:
    text = table(card("NVIDIA RTX A6000", memory="4MiB / 49140MiB")).replace("  ", "\u00a0 ")
    lines = text.splitlines()
    spoiled = "\n".join(lines if spoil == "| " else [spoil + line for line in lines])
    (device,) = read(spoiled).rig.devices
    assert (device.id, device.total) == ("0000:01:00.0", 49140 * MIB)


def test_whitespace_that_a_forum_made_one() -> None:
    text = table(card("NVIDIA RTX A6000", memory="4MiB / 49140MiB"), card("Tesla M40 24GB", 1))
    squeezed = "\n".join(" ".join(line.split()) for line in text.splitlines())
    first, second = read(squeezed).rig.devices
    assert (first.name, first.total) == ("NVIDIA RTX A6000", 49140 * MIB)
    assert (second.name, second.facts.index) == ("Tesla M40 24GB", 1)


def test_prompts_and_markup_around_outputs_are_not_called_unread() -> None:
    text = (
        "<details>\n<summary>nvidia-smi</summary>\n\n```\n(base) anna@rig:~$ nvidia-smi -L\n"
        "GPU 0: NVIDIA RTX A6000 (UUID: GPU-12345678-1234-1234-1234-123456789abc)\n"
        "[anna@rig ~]$ exit\n~$ date\n➜  ~ lspci\n```\n</details>\n"
    )
    pasted = read(text)
    assert ([d.name for d in pasted.rig.devices], pasted.unread) == (["NVIDIA RTX A6000"], ())


def test_no_finding_of_a_plain_machine() -> None:
    rig = read(table(card("NVIDIA GeForce RTX 5090", memory="2MiB / 32607MiB"))).rig
    assert diagnose(rig) == ()


@pytest.mark.parametrize(
    ("value", "lost"), [("GPU is lost", True), ("Unknown Error", True), ("N/A", False)]
)
def test_a_card_lost_in_the_details(value: str, lost: bool) -> None:
    memory = f"    FB Memory Usage\n        Total      : 24564 MiB\n        Used       : {value}\n"
    more = f"    Temperature\n        GPU Current Temp      : {value}\n"
    text = f"GPU 00000000:02:00.0\n    Product Name     : NVIDIA A\n{memory}{more}"
    (device,) = read(text).rig.devices
    assert device.facts.lost is lost


def test_a_fan_alone_that_does_not_answer_is_no_lost_card() -> None:
    text = "GPU 00000000:02:00.0\n    Product Name   : NVIDIA A\n    Fan Speed   : Unknown Error\n"
    (device,) = read(text).rig.devices
    assert not device.facts.lost


def test_ports_that_are_all_down_are_known_to_be() -> None:
    line = "\t NVML: Unable to retrieve NVLink information as all links are inActive\n"
    rig = read("".join(f"GPU {i}: NVIDIA H100 PCIe (UUID: GPU-{i}a-1)\n{line}" for i in (0, 1))).rig
    assert found(rig) == {"nvlink-absent": ("GPU0", "GPU1")}

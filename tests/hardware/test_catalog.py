"""The table of cards and the ways in which tools spell their names."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from local_tp import settings
from local_tp.core import Device
from local_tp.errors import InputError
from local_tp.facts import CardFacts, PcieReading
from local_tp.hardware.card_names import spelling
from local_tp.hardware.catalog import Gpu, catalog, find, read_catalog, with_catalog

GIB, MIB = 1024**3, 1024**2

# (as a tool spells it, MiB that the driver reports, the row's name)
SPELLINGS: list[tuple[str, int | None, str]] = [
    ("NVIDIA GeForce RTX 3060", 12288, "GeForce RTX 3060 12 GB"),
    ("NVIDIA GeForce RTX 3060", 8192, "GeForce RTX 3060 8 GB"),
    ("RTX 3060", None, "GeForce RTX 3060 12 GB"),
    ("rtx3060", None, "GeForce RTX 3060 12 GB"),
    ("GA106 [GeForce RTX 3060]", None, "GeForce RTX 3060 12 GB"),
    ("GA106 [GeForce RTX 3060 Lite Hash Rate]", 12288, "GeForce RTX 3060 12 GB"),
    ("NVIDIA GeForce RTX 3060 Laptop GPU", 6144, "GeForce RTX 3060 Laptop"),
    ("GA106M [GeForce RTX 3060 Mobile / Max-Q]", None, "GeForce RTX 3060 Laptop"),
    ("NVIDIA GeForce RTX 3060 Ti", 8192, "GeForce RTX 3060 Ti"),
    ("NVIDIA GeForce RTX 3080", 10240, "GeForce RTX 3080 10 GB"),
    ("NVIDIA GeForce RTX 3080", 12288, "GeForce RTX 3080 12 GB"),
    ("NVIDIA GeForce RTX 3080 Ti", 12288, "GeForce RTX 3080 Ti"),
    (
        "01:00.0 VGA compatible controller [0300]: NVIDIA Corporation GA102 [GeForce RTX 3090] "
        "[10de:2204] (rev a1)",
        None,
        "GeForce RTX 3090",
    ),
    ("NVIDIA GeForce RTX 4060 Ti", 8188, "GeForce RTX 4060 Ti 8 GB"),
    ("NVIDIA GeForce RTX 4060 Ti", 16380, "GeForce RTX 4060 Ti 16 GB"),
    ("AD106 [GeForce RTX 4060 Ti 16GB]", None, "GeForce RTX 4060 Ti 16 GB"),
    ("AD107M [GeForce RTX 4060 Max-Q / Mobile]", 8188, "GeForce RTX 4060 Laptop"),
    ("AD103M / GN21-X11 [GeForce RTX 4090 Laptop GPU]", 16376, "GeForce RTX 4090 Laptop"),
    ("NVIDIA GeForce RTX 4080 ...", 16376, "GeForce RTX 4080 SUPER"),
    ("NVIDIA GeForce RTX 4080 ...", 12282, "GeForce RTX 4080 Laptop"),
    ("NVIDIA GeForce RTX 208...", 11264, "GeForce RTX 2080 Ti"),
    ("NVIDIA GeForce RTX 4090 D", 24564, "GeForce RTX 4090 D"),
    ("NVIDIA GeForce RTX 5060 Ti", 16311, "GeForce RTX 5060 Ti 16 GB"),
    ("NVIDIA GeForce RTX 5060 Ti", 8151, "GeForce RTX 5060 Ti 8 GB"),
    ("NVIDIA GeForce RTX 5090", 32607, "GeForce RTX 5090"),
    ("NVIDIA GeForce RTX 2060", 6144, "GeForce RTX 2060 6 GB"),
    ("NVIDIA GeForce RTX 2060", 12288, "GeForce RTX 2060 12 GB"),
    ("GeForce RTX 2070 with Max-Q Design", 8192, "GeForce RTX 2070 Max-Q"),
    ("TU102 [GeForce RTX 2080 Ti Rev. A]", None, "GeForce RTX 2080 Ti"),
    ("GP106 [GeForce GTX 1060 3GB]", None, "GeForce GTX 1060 3 GB"),
    ("NVIDIA TITAN X (Pascal)", 12288, "TITAN X (Pascal)"),
    ("NVIDIA TITAN RTX", 24576, "TITAN RTX"),
    ("TU102GL [Quadro RTX 6000/8000]", 46080, "Quadro RTX 8000"),
    ("TU102GL [Quadro RTX 6000/8000]", 23040, "Quadro RTX 6000"),
    ("NVIDIA RTX A6000", 49140, "RTX A6000"),
    ("NVIDIA RTX 6000 Ada Generation", 49140, "RTX 6000 Ada"),
    ("NVIDIA RTX 4000 SFF Ada Generation", 20475, "RTX 4000 SFF Ada"),
    ("NVIDIA RTX PRO 6000 Blackwell Workstation Edition", 97887, "RTX PRO 6000 Blackwell"),
    (
        "NVIDIA RTX PRO 6000 Blackwell Max-Q Workstation Edition",
        97887,
        "RTX PRO 6000 Blackwell Max-Q",
    ),
    ("NVIDIA RTX PRO 6000 Blackwell Server Edition", 97887, "RTX PRO 6000 Blackwell Server"),
    ("Tesla P40", 22919, "Tesla P40"),
    ("GP102GL [Tesla P40]", None, "Tesla P40"),
    ("Tesla P100-PCIE-16GB", 16280, "Tesla P100 PCIe 16 GB"),
    ("Tesla P100-PCIE-12GB", 12198, "Tesla P100 PCIe 12 GB"),
    ("Tesla V100-SXM2-32GB", 32510, "Tesla V100 SXM2 32 GB"),
    ("Tesla V100-PCIE-16GB", 16160, "Tesla V100 PCIe 16 GB"),
    ("Tesla T4", 15109, "Tesla T4"),
    ("NVIDIA A10", 23028, "A10"),
    ("NVIDIA A100-SXM4-80GB", 81920, "A100 SXM4 80 GB"),
    ("NVIDIA A100 80GB PCIe", 81920, "A100 PCIe 80 GB"),
    ("NVIDIA A100-PCIE-40GB", 40960, "A100 PCIe 40 GB"),
    ("NVIDIA A100-SXM4-40GB MIG 1g.5gb", 4864, "A100 SXM4 40 GB"),
    ("NVIDIA H100 80GB HBM3", 81559, "H100 SXM5 80 GB"),
    ("NVIDIA H200", 143771, "H200 SXM 141 GB"),
    ("NVIDIA L40S", 46068, "L40S"),
    ("NVIDIA GB10", None, "GB10"),
    ("AMD Radeon RX 7900 XTX", 24560, "Radeon RX 7900 XTX"),
    ("AMD Radeon RX 7900 XTX (RADV NAVI31)", None, "Radeon RX 7900 XTX"),
    ("Navi 31 [Radeon RX 7900 XT/7900 XTX/7900M]", 24560, "Radeon RX 7900 XTX"),
    ("Navi 31 [Radeon RX 7900 XT/7900 XTX/7900M]", 20464, "Radeon RX 7900 XT"),
    (
        "03:00.0 VGA compatible controller: Advanced Micro Devices, Inc. [AMD/ATI] Navi 33 "
        "[Radeon RX 7600/7600 XT/7600M XT/7600S/7700S / PRO W7600] (rev c0)",
        16368,
        "Radeon RX 7600 XT",
    ),
    ("Vega 20 [Radeon Pro VII/Radeon Instinct MI50 32GB]", 32752, "Radeon Instinct MI50 32 GB"),
    ("AMD Instinct MI60 / MI50", 16368, "Radeon Instinct MI50 16 GB"),
    ("Polaris 20 XT [Radeon RX 470/480/570/580]", 4096, "Radeon RX 570 4 GB"),
    ("NVIDIA GeForce RTX 3060 Ti LHR", None, "GeForce RTX 3060 Ti"),
    ("TU117M [GeForce GTX 1650 Mobile]", 4096, "GeForce GTX 1650 Laptop"),
    ("AMD Instinct MI100", 32752, "Instinct MI100"),
    ("AMD Radeon AI PRO R9700", 32624, "Radeon AI PRO R9700"),
    ("AMD Radeon 780M Graphics", 4096, "Radeon 780M"),
    ("AMD Radeon 8060S Graphics", 98304, "Radeon 8060S"),
    ("Intel(R) Arc(TM) A770 Graphics", 16288, "Arc A770 16 GB"),
    ("Battlemage G21 [Arc B580]", None, "Arc B580"),
    ("Intel(R) UHD Graphics 770", None, "UHD Graphics"),
    ("Alder Lake-P GT2 [Iris Xe Graphics]", None, "Iris Xe Graphics"),
]

# Published figures: name, GiB, GB a second, PCIe, capability, fp16 in 1e12 a second, NVLink.
KNOWN: list[tuple[str, int, float, tuple[int, int], tuple[int, int] | None, float, float | None]]
KNOWN = [
    ("GeForce RTX 2080 Ti", 11, 616, (3, 16), (7, 5), 53.8, 100),
    ("TITAN RTX", 24, 672, (3, 16), (7, 5), 130.5, 100),
    ("GeForce RTX 3060 12 GB", 12, 360, (4, 16), (8, 6), 25.5, None),
    ("GeForce RTX 3080 10 GB", 10, 760.3, (4, 16), (8, 6), 59.5, None),
    ("GeForce RTX 3090", 24, 936.2, (4, 16), (8, 6), 71.2, 112.5),
    ("GeForce RTX 4060", 8, 272, (4, 8), (8, 9), 30.2, None),
    ("GeForce RTX 4060 Ti 16 GB", 16, 288, (4, 8), (8, 9), 44.1, None),
    ("GeForce RTX 4090", 24, 1008, (4, 16), (8, 9), 165.2, None),
    ("GeForce RTX 5060 Ti 16 GB", 16, 448, (5, 8), (12, 0), 47.4, None),
    ("GeForce RTX 5090", 32, 1792, (5, 16), (12, 0), 209.5, None),
    ("RTX A6000", 48, 768, (4, 16), (8, 6), 154.8, 112.5),
    ("RTX 6000 Ada", 48, 960, (4, 16), (8, 9), 364.2, None),
    ("RTX PRO 6000 Blackwell", 96, 1792, (5, 16), (12, 0), 503.8, None),
    ("Tesla P40", 24, 347.1, (3, 16), (6, 1), 0.18, None),
    ("Tesla P100 PCIe 16 GB", 16, 732.2, (3, 16), (6, 0), 19.1, None),
    ("Tesla V100 SXM2 16 GB", 16, 900, (3, 16), (7, 0), 125, 300),
    ("Tesla T4", 16, 320, (3, 16), (7, 5), 65.1, None),
    ("A100 SXM4 80 GB", 80, 2039, (4, 16), (8, 0), 311.9, 600),
    ("L40S", 48, 864, (4, 16), (8, 9), 366.4, None),
    ("H100 SXM5 80 GB", 80, 3352, (5, 16), (9, 0), 989.4, 900),
    ("Radeon RX 7900 XTX", 24, 960, (4, 16), None, 122.8, None),
    ("Radeon RX 9070 XT", 16, 644.6, (5, 16), None, 195, None),
    ("Radeon Instinct MI50 32 GB", 32, 1024, (4, 16), None, 26.8, 184),
    ("Arc B580", 12, 456, (4, 8), None, 117, None),
]


@pytest.mark.parametrize(("name", "mib", "row"), SPELLINGS)
def test_every_tools_spelling_finds_its_card(name: str, mib: int | None, row: str) -> None:
    found = find(name, None if mib is None else mib * MIB)
    assert found is not None
    assert (found.name, found.modded) == (row, False)


@pytest.mark.parametrize(
    ("name", "mib", "bandwidth"),
    [
        ("NVIDIA GeForce RTX 4090", 49140, 1008e9),
        ("NVIDIA GeForce RTX 2080 Ti", 22528, 616e9),
        ("NVIDIA GeForce RTX 3080", 20480, 760.3e9),  # the 10 GB board, not the 12 GB one
        ("NVIDIA GeForce RTX 3070", 16384, 448e9),
    ],
)
def test_more_memory_than_sold_keeps_the_chips_figures(
    name: str, mib: int, bandwidth: float
) -> None:
    found = find(name, mib * MIB)
    assert found is not None
    assert (found.modded, found.memory, found.bandwidth) == (True, mib * MIB, bandwidth)


def test_several_cards_of_one_name_give_what_they_share() -> None:
    found = find("Navi 31 [Radeon RX 7900 XT/7900 XTX/7900M]")
    assert found is not None
    assert found.name == "Radeon RX 7900 XT / Radeon RX 7900 XTX / Radeon RX 7900M"
    assert (found.target, found.pcie) == ("gfx1100", PcieReading(4, 16))
    assert (found.memory, found.bandwidth, found.fp16) == (None, None, None)
    same_memory = find("Navi 21 [Radeon RX 6800/6800 XT / 6900 XT]", 16368 * MIB)
    assert same_memory is not None
    assert (same_memory.bandwidth, same_memory.fp16) == (512e9, None)


@pytest.mark.parametrize(
    "name",
    [
        "",
        "///",
        "[]",
        "...",
        "NVIDIA GeForce RTX...",
        "AMD Radeon Graphics",
        "RTX 9999",
        "Device 2d04",
    ],
)
def test_what_the_table_does_not_have_is_nothing(name: str) -> None:
    assert find(name, 8 * GIB) is None


@given(name=st.text(max_size=300), total=st.none() | st.integers(0, 2**45))
def test_any_text_is_answered(name: str, total: int | None) -> None:
    found = find(name, total)
    assert found is None or found.vendor in ("nvidia", "amd", "intel")


@pytest.mark.parametrize("row", KNOWN, ids=lambda row: row[0])
def test_known_figures(
    row: tuple[str, int, float, tuple[int, int], tuple[int, int] | None, float, float | None],
) -> None:
    name, memory, bandwidth, pcie, capability, fp16, nvlink = row
    gpu = _row(name)
    assert gpu.memory == memory * GIB
    assert gpu.bandwidth == pytest.approx(bandwidth * 1e9, rel=1e-3)
    assert gpu.pcie == PcieReading(*pcie)
    assert gpu.capability == capability
    assert gpu.fp16 == pytest.approx(fp16 * 1e12, rel=0.03)
    assert gpu.nvlink == (None if nvlink is None else nvlink * 1e9)


def test_the_table_is_wide_and_its_names_are_unique() -> None:
    count = Counter(gpu.name for gpu in catalog())
    assert [name for name, times in count.items() if times > 1] == []
    assert len(count) >= 130
    assert {gpu.vendor for gpu in catalog()} == {"nvidia", "amd", "intel"}


def test_every_row_finds_itself() -> None:
    lost = []
    for gpu in catalog():
        found = find(gpu.name, gpu.memory)
        if found != gpu:
            lost.append((gpu.name, found and found.name))
    assert lost == []


def test_every_rows_figures_are_in_range_and_agree() -> None:
    """Ratios that hold by construction of the hardware, so a slipped digit shows."""
    wrong = [(gpu.name, what) for gpu in catalog() for what in _oddities(gpu)]
    assert wrong == []


def test_bandwidth_grows_with_the_class_of_card() -> None:
    for ladder in (
        ["GeForce RTX 3060 8 GB", "GeForce RTX 3060 12 GB", "GeForce RTX 3080 10 GB"],
        ["GeForce RTX 4060", "GeForce RTX 4070", "GeForce RTX 4080", "GeForce RTX 4090"],
        ["GeForce RTX 5060", "GeForce RTX 5070", "GeForce RTX 5080", "GeForce RTX 5090"],
        ["Radeon RX 7600", "Radeon RX 7800 XT", "Radeon RX 7900 XT", "Radeon RX 7900 XTX"],
    ):
        speeds = [_row(name).bandwidth or 0 for name in ladder]
        assert speeds == sorted(speeds)


def test_a_device_is_filled_in_and_measured_values_stay() -> None:
    bare = Device("0000:01:00.0", "cuda", "NVIDIA GeForce RTX 3090", 24576 * MIB, 24000 * MIB)
    filled = with_catalog(bare)
    assert (filled.bandwidth, filled.flops, filled.capability) == (936.2e9, 71.2e12, (8, 6))
    assert filled.facts == CardFacts(
        vendor="nvidia", architecture="ampere", pcie_card=PcieReading(4, 16), integrated=False
    )
    measured = Device("0000:01:00.0", "cuda", bare.name, bare.total, bare.free, bandwidth=839e9)
    assert with_catalog(measured).bandwidth == 839e9
    amd = with_catalog(Device("0000:03:00.0", "rocm", "AMD Radeon RX 7900 XTX", 24560 * MIB, 0))
    assert (amd.facts.architecture, amd.flops) == ("gfx1100", 122.8e12)


def test_an_unknown_card_gets_a_cautious_context_and_a_processor_none() -> None:
    processor = Device("cpu", "cpu", "GeForce RTX 3090", 64 * GIB, 60 * GIB)
    stranger = Device("0000:01:00.0", "cuda", "Unheard 1", 8 * GIB, 8 * GIB)
    assert with_catalog(processor) == processor
    assert processor.context == 0
    assert with_catalog(stranger) == replace(stranger, context=457 * MIB)
    measured = replace(stranger, context=300 * MIB)
    assert with_catalog(measured) == measured


@pytest.mark.parametrize(
    ("name", "sms", "context"),
    [
        ("GeForce RTX 4060 Ti 16 GB", 34, 107),  # measured
        ("GeForce RTX 3090", 82, 256),  # measured
        ("RTX PRO 6000 Blackwell", 188, 555),  # measured
        ("GeForce GTX 1060 6 GB", 10, 107),  # the least that was measured
        ("GeForce RTX 3060 12 GB", 28, 107),
        ("GeForce RTX 4090", 128, 380),  # 8 + 128 x 2.91
        ("GeForce RTX 5090", 170, 503),
        ("H100 SXM5 80 GB", 132, 392),
        ("Radeon RX 7900 XTX", None, 410),
        ("Radeon RX 6600", None, 410),
        ("Arc B580", None, None),
    ],
)
def test_what_a_process_takes_before_its_data(
    name: str, sms: int | None, context: int | None
) -> None:
    gpu = _row(name)
    assert (gpu.sms, gpu.context and gpu.context // MIB) == (sms, context)


def test_every_card_says_whether_its_context_was_measured() -> None:
    for gpu in catalog():
        said = {label for label in gpu.sources if label.startswith("context-")}
        measured = said - {"context-line", "context-amd"}
        assert len(said) == (gpu.context is not None), gpu.name
        if gpu.vendor == "nvidia":
            assert gpu.context is not None, gpu.name
            line = max(107, round(8 + 2.91 * (gpu.sms or 0)))
            # Measured figures lie near the line that was drawn through them.
            assert abs(gpu.context / MIB - line) <= (10 if measured else 0), gpu.name


def test_a_card_slow_at_16_bits_is_rated_in_fp32() -> None:
    assert _row("Tesla P40").flops == 11.8e12


ROW = '{ name = "X 1", memory = 8, target = "sm_86", pcie = "4.0 x16", sources = ["db"] }'


@pytest.mark.parametrize(
    ("right", "wrong", "says"),
    [
        ("memory = 8", "memory = 0", "X 1: memory: expected a number above zero"),
        ("memory = 8", "memory = nan", "X 1: memory: expected a number above zero"),
        ("memory = 8, ", "", "X 1: memory: missing: expected GiB, or integrated = true"),
        ("memory", "memroy", "did you mean memory?"),
        ('"db"', '"hearsay"', "X 1: sources: 'hearsay' is not in the table sources"),
        ('["db"]', "[]", "X 1: sources: expected at least one label"),
        ("sm_86", "ampere", 'X 1: target: expected a text like "sm_86" or "gfx1100"'),
        ("4.0 x16", "4 x16", "X 1: '4 x16': expected a generation and lanes like \"4.0 x16\""),
        (ROW, f"{ROW}, {ROW}", "X 1: name: stands there twice with the same memory"),
        ("vendor", "seller", "architecture['a']: unknown key 'seller'"),
        ("]", "", "gpus.toml: "),
        ("memory = 8", f"memory = {'9' * 5000}", "gpus.toml: "),
    ],
)
def test_a_damaged_table_is_refused_in_one_line(
    tmp_path: Path, right: str, wrong: str, says: str
) -> None:
    text = f'[sources]\ndb = "a book"\n[architecture.a]\nvendor = "nvidia"\ncards = [{ROW}]\n'
    path = tmp_path / "gpus.toml"
    path.write_text(text)
    assert [gpu.name for gpu in read_catalog(path)] == ["X 1"]
    path = tmp_path / "damaged" / "gpus.toml"
    path.parent.mkdir()
    path.write_text(text.replace(right, wrong, 1))
    with pytest.raises(InputError) as caught:
        read_catalog(path)
    assert says in str(caught.value)
    assert str(caught.value).startswith("gpus.toml: ")
    assert "\n" not in str(caught.value)


def test_every_source_is_used() -> None:
    text = (settings.presets() / "gpus.toml").read_text(encoding="utf-8")
    stated = [
        line.split(" = ")[0]
        for line in text.partition("[sources]")[2].partition("\n\n")[0].splitlines()
        if line
    ]
    used = {label for gpu in catalog() for label in gpu.sources}
    assert set(stated) == used


def _row(name: str) -> Gpu:
    return next(gpu for gpu in catalog() if gpu.name == name)


def _oddities(gpu: Gpu) -> list[str]:
    odd = []
    ranges = {
        "memory": (2 * GIB, 141 * GIB),
        "bandwidth": (80e9, 5000e9),
        "fp32": (0.5e12, 130e12),
        "fp16": (0.02e12, 1000e12),
        "int8": (4e12, 2000e12),
        "fp8": (25e12, 2000e12),
        "nvlink": (50e9, 900e9),
        "tdp": (15, 700),
        "sms": (3, 200),
        "context": (100 * MIB, 600 * MIB),
    }
    for field, (low, high) in ranges.items():
        value = getattr(gpu, field)
        if value is not None and not low <= value <= high:
            odd.append(f"{field} {value}")
    if gpu.fp16_fast and gpu.fp16 and gpu.fp16_fast / gpu.fp16 != pytest.approx(2, rel=0.01):
        odd.append("fp16_fast is not twice fp16")
    if gpu.bf16 and gpu.bf16 != gpu.fp16 and gpu.name != "Instinct MI100":
        odd.append("bf16 is not fp16")
    capability = gpu.capability or (99, 0)
    if gpu.vendor == "nvidia" and gpu.bf16 and capability < (8, 0):
        odd.append("bf16 before Ampere")
    if gpu.vendor == "nvidia" and gpu.fp8 and capability < (8, 9):
        odd.append("fp8 before Ada")
    if gpu.integrated is False and not (gpu.bandwidth and gpu.pcie):
        odd.append("a card without bandwidth or PCIe")
    if gpu.vendor == "nvidia" and gpu.capability is None:
        odd.append("no capability")
    if gpu.memory and spelling(gpu.name).size not in (None, gpu.memory // GIB):
        odd.append("the size in its name is another")
    return odd

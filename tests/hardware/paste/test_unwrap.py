"""What forums, mail, lists and logs put in front of lines, and that a tool's own signs stay."""

from __future__ import annotations

import html

import pytest
from pasted_text import read

from local_tp.hardware.paste.unwrap import unwrapped

LINES = [
    "+------+",
    "GPU 0: card",
    "Model name: A",
    "| NVIDIA-SMI 550 |",
    "|   0  card | 00000000:42:00.0 Off |",
    "",
    "|  0%  33C |",
    "last",
]
TABLE = (
    "+---------------------------------------------------------------------------+\n"
    "| NVIDIA-SMI 550.54.14   Driver Version: 550.54.14      CUDA Version: 12.4     |\n"
    "|   0  NVIDIA GeForce RTX 3090        On  |   00000000:42:00.0 Off |       N/A |\n"
    "| 30%   49C    P8             28W /  350W |       1MiB /  24576MiB | 0% Default |\n"
)
RANKS = (
    "# nThread 1 nGpus 2 minBytes 8 maxBytes 134217728 step: 2(factor)\n#\n# Using devices\n"
    "#  Rank  0 Group  0 Pid 17 on  host device  0 [0x04] NVIDIA GeForce RTX 3090\n"
    "#  Rank  1 Group  0 Pid 17 on  host device  1 [0x05] NVIDIA GeForce RTX 3090\n"
    "     1048576        262144     float     sum      -1   151.2    6.94    6.94      0\n"
)
PREFIXES = [
    "> ", ">> ", "> > ", ">>> ", "- ", "* ", "    ", "  ", "> - ",
    "2025-10-10T10:00:01.123456Z ", "2025-10-10 10:00:01,123 INFO ", "[10:00:01] ",
    "Oct 10 10:00:01 ", "Oct  1 10:00:01 host check[123]: ", "2025-10-10 10:00:01 | ", "vllm-1  | ",
    "2025-03-08T10:21:00.123Z  node-1 kubelet[991]: ",
]  # fmt: skip


@pytest.mark.parametrize("prefix", PREFIXES)
def test_marks_of_all_lines_are_taken_off(prefix: str) -> None:
    assert unwrapped([prefix + line for line in LINES]) == LINES
    assert unwrapped([(prefix + line).rstrip() for line in LINES]) == LINES


@pytest.mark.parametrize("prefix", PREFIXES)
def test_outputs_behind_marks_are_read(prefix: str) -> None:
    wrapped = "".join(f"{prefix}{line}\n" for line in TABLE.splitlines())
    assert [device.id for device in read(wrapped).rig.devices] == ["0000:42:00.0"]
    wrapped = "".join(f"{prefix}{line}\n" for line in RANKS.splitlines())
    rig = read(wrapped).rig
    assert [device.id for device in rig.devices] == ["0000:04:00.0", "0000:05:00.0"]
    assert [(told.ranks, told.nbytes) for told in rig.collectives] == [(2, 1048576)]


@pytest.mark.parametrize(
    "lines",
    [
        ["Agent 1", "*******", "  Name: gfx1100", "- note", "text"],
        ["2025/10/10 10:00:01.123, NVIDIA A, 3 %", "2025/10/10 10:00:02.123, NVIDIA A, 9 %"] * 2,
        ["2025-10-10 10:00:01, NVIDIA A, 3 %", "2025-10-10 10:00:02, NVIDIA A, 9 %"] * 2,
        ["- **GPU 0:** NVIDIA A", "- **CPU:** Example", "- **RAM:** 64 GB"],
        ["GPU 0000:01:00.0", "    Product Name : A", "    Minor : 1", "        Deep : 2"],
        ["-[0000:00]-+-00.0  A", "           +-01.0-[01]----00.0  B", "           \\-02.0  C"],
        ["> one quoted line", "an answer", "another"],
        ["        GPU0    GPU1", "GPU0     X      PHB", "GPU1    PHB      X"],
    ],
)
def test_a_tools_own_signs_stay(lines: list[str]) -> None:
    assert unwrapped(lines) == lines


def test_code_in_markdown_is_moved_out() -> None:
    lines = ["I see this:", "", "    # Using devices", "    #  Rank", "", "      deep", "and that"]
    assert unwrapped(lines) == [
        "I see this:", "", "# Using devices", "#  Rank", "", "  deep", "and that",
    ]  # fmt: skip


def test_escaped_xml_is_read_and_escapes_in_xml_stay() -> None:
    xml = (
        '<nvidia_smi_log>\n<gpu id="00000000:01:00.0">\n<product_name>NVIDIA A</product_name>\n'
        "<processes><process_info><pid>1</pid><process_name>&lt;none&gt;</process_name>"
        "</process_info></processes>\n</gpu>\n</nvidia_smi_log>\n"
    )
    for text in (xml, html.escape(xml)):
        found = read(text)
        assert [(d.id, d.name) for d in found.rig.devices] == [("0000:01:00.0", "NVIDIA A")]
        assert found.unread == ()


@pytest.mark.parametrize("prefix", [">> ", "2025-10-10T10:00:01Z ", "- "])
def test_a_lone_line_is_taken_out_too(prefix: str) -> None:
    assert unwrapped([f'{prefix}{{"card0": 1}}']) == ['{"card0": 1}']

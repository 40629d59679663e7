"""Line numbers of `cat -n`, `grep -n`, `nl` and editors, and numbers that are a tool's own."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from pasted_text import read

from local_tp.hardware.paste.line_numbers import without_numbers
from local_tp.hardware.paste.unwrap import unwrapped

QUERY = [
    "index, name, pci.bus_id, memory.total [MiB]",
    "0, NVIDIA RTX A4000, 00000000:17:00.0, 16376 MiB",
    "1, NVIDIA RTX A4000, 00000000:65:00.0, 16376 MiB",
    "",
    "        GPU0    GPU1    CPU Affinity",
    "GPU0     X      NODE    0-15",
    "GPU1    NODE     X      0-15",
]
NUMBERED: dict[str, Callable[[int, str], str]] = {
    "cat -n": lambda number, line: f"{number:6}\t{line}",
    "cat -n without tabs": lambda number, line: f"{number:6}  {line}",
    "nl": lambda number, line: f"{number:6}\t{line}" if line else "",
    "grep -n": lambda number, line: f"{number}:{line}",
    "colon": lambda number, line: f"{number:4}: {line}",
    "stroke": lambda number, line: f"{number:3}| {line}",
    "bat": lambda number, line: f"{number:4} │ {line}",
    "arrow": lambda number, line: f"{number:6}→{line}",
    "quoted": lambda number, line: f"> {number:3}: {line}",
}


@pytest.mark.parametrize("form", NUMBERED)
@pytest.mark.parametrize("first", [1, 7, 96])
def test_numbers_in_front_of_all_lines_are_taken_off(form: str, first: int) -> None:
    lines = [NUMBERED[form](number, line).rstrip() for number, line in enumerate(QUERY, first)]
    pasted = read("\n".join(lines))
    assert [(d.id, d.total >> 20) for d in pasted.rig.devices] == [
        ("0000:17:00.0", 16376),
        ("0000:65:00.0", 16376),
    ]
    assert [link.facts.path for link in pasted.rig.links] == ["NODE"]
    assert pasted.unread == ()


def test_finds_of_grep_with_lines_around_them() -> None:
    log = [
        "14-[    3.1] start",
        "15:NVRM: Xid (PCI:0000:41:00): 79",
        "--",
        "207:NVRM: x",
        "208-end",
    ]
    assert without_numbers(log) == [
        "[    3.1] start", "NVRM: Xid (PCI:0000:41:00): 79", "--", "NVRM: x", "end",
    ]  # fmt: skip


def test_a_numbered_piece_between_words() -> None:
    lines = ["This is it:", *(f"{i:3}| {line}" for i, line in enumerate("abcd", 1)), "Is it right?"]
    assert unwrapped(lines) == ["This is it:", "a", "b", "c", "d", "Is it right?"]


def test_places_on_the_bus_behind_numbers_stay_whole() -> None:
    title = "00.0 VGA compatible controller: NVIDIA Corporation AD102 [GeForce RTX 4090] (rev a1)"
    lines = [f"{bus}:{title}" for bus in (41, 42, 43, 44, 45)]
    assert without_numbers(lines) == lines
    assert without_numbers([f"{i}:{line}" for i, line in enumerate(lines, 9)]) == lines
    assert [d.id for d in read("\n".join(lines)).rig.devices][::4] == [
        "0000:41:00.0",
        "0000:45:00.0",
    ]


@pytest.mark.parametrize(
    "lines",
    [
        [f"{hour}:00:01 text" for hour in range(10, 20)],
        [f"{hour}:30:01.250 text" for hour in range(10, 20)],
        [f"     {i}  {i}.06 {i}.17" for i in range(8)],
        ["  GPU     0      1", *(f"     {i}  1.37 {i}.14" for i in range(8)), "", "  CPU     0  1"],
        [f"0{i}: text" for i in range(1, 9)],
        ["5: text", "4: text", "3: text", "2: text", "1: text"],
        ["1: a lone line"],
        ["1: one", "3: two", "text", "text", "text", "text"],
        ["1 GPU", "2 GPU", "3 GPU", "4 GPU"],
    ],
)
def test_numbers_that_are_a_tools_own_stay(lines: list[str]) -> None:
    assert without_numbers(lines) == lines

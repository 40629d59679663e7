"""What must not be told of text that nobody understood, and of names in all their forms."""

from __future__ import annotations

import pytest

from local_tp.core import Rig
from local_tp.hardware.paste import read_pasted
from local_tp.hardware.report.report import Report, scrub

PRIVATE = (
    "Serial Number : 1650320012345",
    "chassis_serial_number 165032001",
    r"C:\\Users\\paula\\models",
    r"C:\Users\paula\models",
    "marialopez@10.0.0.17's password:",
    "Dec 01 10:11:12 thekla-ws kernel: usb 1-1",
    "2026-12-01T10:11:12.345+01:00 thekla-ws kernel: usb 1-1",
    "thekla-ws:4123:4123 [0] NCCL INFO Bootstrap",
    "Node name : buero-pc7",
    "user: paula",
    "SUDO_USER=paula",
    "Unique ID: 0x99aabb",
    "HF_TOKEN=hf_abcdefghij",
    "logged in with hf_abcdefghij",
    "Linux thekla-ws 6.8.0-45-generic #45",
)
SECRETS = ("165032", "paula", "lopez", "10.0.0.17", "thekla", "buero", "99aabb", "abcdefghij")


def told(line: str) -> list[str]:
    return [secret for secret in SECRETS if secret in line]


@pytest.mark.parametrize("line", PRIVATE)
def test_names_and_numbers_are_removed_from_every_sentence(line: str) -> None:
    assert told(line)
    rig = scrub(Report(Rig((), unknown=(line, repr(line))))).rig
    assert not told(" ".join(rig.unknown))


@pytest.mark.parametrize("line", [*PRIVATE, "paula pts/0 thekla-ws", "thekla-ws login: buero"])
def test_what_was_not_understood_is_not_quoted(line: str) -> None:
    found = read_pasted([("paste.txt", f"hello\n\n\n\n\n{line}\n".encode())])
    report = Report(found.rig, unread=found.unread)
    assert any("not understood: 'hello'" in word for word in report.unread)
    scrubbed = scrub(report)
    assert "line 1: not understood" in scrubbed.unread
    assert not told(" ".join(scrubbed.unread))
    assert scrub(scrubbed) == scrubbed


@pytest.mark.parametrize(
    ("unread", "expected"),
    [
        ("line 3: not understood: 'dmesg of paula'", "line 3: not understood: dmesg …"),
        ("x: lines 3 to 9: not understood: 'lscpu'", "x: lines 3 to 9: not understood: lscpu …"),
        ("line 3: not understood: 'paula 5'", "line 3: not understood"),
        ("line 4: columns without a header: 1650320", "line 4: columns without a header"),
        (
            "line 5: the XML is damaged or cut off here",
            "line 5: the XML is damaged or cut off here",
        ),
    ],
)
def test_only_names_of_tools_are_left_of_a_quotation(unread: str, expected: str) -> None:
    assert scrub(Report(Rig(()), unread=(unread,))).unread == (expected,)


@pytest.mark.parametrize(
    "text",
    [
        "Ubuntu 24.04.1 LTS",
        "Linux 6.8.0-45-generic",
        "Intel Xeon E5-2690 v4 @ 2.60GHz",
        "0000:01:00.0: memory not in the text",
        "serial interface",
        "the user may not open the card's device files",
        "more than 64 tokens a second",
    ],
)
def test_other_sentences_stay_as_they_are(text: str) -> None:
    assert scrub(Report(Rig((), unknown=(text,)))).rig.unknown == (text,)

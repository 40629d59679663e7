"""What a report tells, in every form, and what it must not tell."""

from __future__ import annotations

import json
import re
from dataclasses import replace

import pytest
from report_rigs import GIB, eight, four, one, report_of, two, uuid

from local_tp.core import Rig
from local_tp.facts import CardFacts, Finding, Process, SoftwareFacts
from local_tp.hardware.report.facts import (
    device_facts,
    operations,
    size,
    speed,
    system_facts,
    tables,
)
from local_tp.hardware.report.html import report_html
from local_tp.hardware.report.json import report_json
from local_tp.hardware.report.markdown import escaped, report_markdown
from local_tp.hardware.report.report import Report, own_names, scrub, summary, worst_first
from local_tp.hardware.report.text import report_text

RIGS = (one, two, four, eight)
HOSTILE = '</code></pre><script>alert("x")</script> | @someone `cmd` \x1b[31m*red*\n# head'


def every_form(report: Report) -> str:
    forms = (report_text, report_html, report_markdown, report_json)
    return "\n".join(form(report) for form in forms)


# ----------------------------------------------------------------------------- what is removed


def test_no_form_of_a_scrubbed_report_names_a_person_a_host_or_a_card() -> None:
    report = report_of(two())
    whole = every_form(report)
    for private in ("ann-tower", "/home/ann", uuid(1), "0321018012345", "ann--vg"):
        assert private in whole
    told = every_form(scrub(report, ("ann-tower", "ann")))
    assert re.findall(r"\bann\b", told) == []
    for private in ("ann-tower", uuid(1), uuid(0x21), "0321018012345", "/home", "/dev/mapper"):
        assert private not in told
    assert "game" in told
    assert "0000:21:00.0" in told


def test_scrubbing_changes_nothing_else() -> None:
    report = replace(report_of(four()), unread=())
    devices = tuple(replace(device, uuid=None) for device in report.rig.devices)
    expected = replace(report, rig=replace(report.rig, devices=devices))
    assert scrub(report) == expected
    assert scrub(scrub(report)) == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("Serial Number : 0321018012345", "Serial Number : (removed)"),
        ("serial: 1A2B-3C", "serial: (removed)"),
        ("Device Serial Number 48-b0-2d-ff-ff-12", "Device Serial Number (removed)"),
        ("serial interface", "serial interface"),
        ("/home/ann/models/x.gguf", "/home/(removed)/models/x.gguf"),
        (r"C:\Users\Ann Other\x", r"C:\Users\(removed)\x"),
        ("/Users/ann: denied", "/Users/(removed): denied"),
        ("ann@tower:~$ nvidia-smi", "(removed):~$ nvidia-smi"),
        ("link/ether 3c:7c:3f:aa:bb:cc brd", "link/ether (removed) brd"),
        ("0000:01:00.0 at 00000000:0A:00.0", "0000:01:00.0 at 00000000:0A:00.0"),
        ("Hostname: tower driver 580.10", "Hostname: (removed) driver 580.10"),
        (f"{uuid(1)} {uuid(2)} {uuid(1).upper()}", "uuid-1 uuid-2 uuid-1"),
        ("MIG-0a0a0a0a-1111-2222-3333-0123456789ab", "uuid-1"),
    ],
)
def test_what_is_private_by_its_form(text: str, expected: str) -> None:
    assert scrub(Report(Rig(()), unread=(text,))).unread == (expected,)


def test_a_common_name_takes_no_words_along() -> None:
    report = Report(Rig((), os="Linux on nvidia", unknown=("the root said no",)))
    assert scrub(report, ("nvidia", "root", "pc")) == report


def test_names_are_removed_from_sentences_only() -> None:
    rig = replace(one(), os="Linux on TOWER", host=replace(one().host, processor="Tower 5"))
    told = scrub(Report(rig, unread=("towers at tower.local",)), ("tower",))
    assert told.rig.os == "Linux on (removed)"
    assert told.rig.host.processor == "Tower 5"
    assert told.unread == ("towers at (removed).local",)


def test_a_process_loses_its_path_on_every_system() -> None:
    for path in ("/opt/x/python3", r"C:\Program Files\x\python3"):
        (device,) = one().devices[:1]
        used = replace(device.facts, processes=(Process(1, path, GIB),))
        told = scrub(Report(Rig((replace(device, facts=used),))))
        assert told.rig.devices[0].facts.processes == (Process(1, "python3", GIB),)


def test_this_host_and_this_person_have_names() -> None:
    assert all(own_names())


# -------------------------------------------------------------------------------- what is told


def test_the_worst_comes_first_in_every_form() -> None:
    report = report_of(two())
    assert [f.severity for f in worst_first(report.findings)] == ["error", "warning", "info"]
    assert summary(report) == "1 error, 1 warning, 1 note"
    assert summary(replace(report, findings=report.findings[:1] * 2)) == "2 notes"
    for form in (report_text, report_html, report_markdown):
        text = form(report)
        places = [text.index(word) for word in ("p2p-broken", "narrow-link", "display-attached")]
        assert places == sorted(places)
        assert places[-1] < text.index("Linux 6.8.0", places[0])


@pytest.mark.parametrize("rig", RIGS)
def test_every_form_tells_every_value_of_a_finding(rig: object) -> None:
    report = report_of(rig())  # type: ignore[operator]
    for form in (lambda r: report_text(r, 1000), report_html, report_json):
        text = form(report).replace("&quot;", '"')
        for finding in report.findings:
            for value in (finding.id, finding.evidence, finding.cost, finding.remedy):
                assert value in text


def test_a_machine_without_trouble() -> None:
    report = Report(Rig(()))
    assert (
        report_text(report)
        == "Findings: no graphics card was found, and nothing wrong with the rest"
    )
    assert report_markdown(report).startswith(
        "### Hardware report: no graphics card was found, and nothing wrong with the rest\n"
    )
    assert "no graphics card" in report_html(report)


def test_lines_are_no_wider_than_the_terminal() -> None:
    report = report_of(two())
    lines = report_text(replace(report, unread=("word " * 60,)), 60).splitlines()
    assert max(map(len, lines)) <= 60
    assert all(line == line.rstrip() for line in lines)


def test_the_machine_in_words() -> None:
    rig = four()
    facts = dict(system_facts(rig))
    assert facts["Memory"] == ("256 GiB, 240 GiB available, 8 channels, 140 GB/s measured, no swap")
    assert facts["Processor"] == "Example EPYC 7003, 32 cores"
    assert facts["Driver"] == "580.10, CUDA up to 13.0"
    card = dict(device_facts(rig.devices[1]))
    assert card["Slot"] == "0000:02:00.0"
    assert card["PCIe"] == (
        "1.0 x16 now, 4.0 x16 at most, 4.0 x8 under load, 12.9 GB/s to the card, 12.6 GB/s back"
    )
    assert card["NVLink"] == "4 of 4 up, 56.2 GB/s one way"


def test_what_is_not_known_is_not_told() -> None:
    bare = Rig((replace(one().devices[0], pcie=None, capability=None, total=0, free=0),))
    assert [fact.label for fact in system_facts(bare)] == []
    labels = [fact.label for fact in device_facts(replace(bare.devices[0], facts=CardFacts()))]
    assert labels == ["Slot"]
    assert tables(bare) == ()


def test_an_idle_link_is_not_called_slow() -> None:
    idle = dict(device_facts(two().devices[0]))["PCIe"]
    assert idle == "1.0 x16 now (idle cards slow down), 4.0 x16 at most"


def test_pairs_stand_in_a_table_with_both_directions() -> None:
    speeds, ways, sums = tables(four())
    assert speeds.columns == ("", "cuda:0", "cuda:1", "cuda:2", "cuda:3")
    assert speeds.rows[0] == ("cuda:0", "·", "52.4", "11.2", "0.7")
    assert speeds.rows[1] == ("cuda:1", "47.2", "·", "11.2", "0.7")
    assert ways.rows[0] == ("cuda:0", "·", "NV4, P2P verified", "PHB, no P2P", "PHB, no P2P")
    assert sums.rows == (
        ("shared-memory", "4", "8 KiB", "31.0 µs", "right"),
        ("shared-memory", "4", "1 MiB", "400.0 µs", "right"),
    )
    (broken,) = tables(two())
    assert broken.rows[0] == ("cuda:0", "·", "PHB, P2P BROKEN")


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (size(0), "0 B"),
        (size(1536), "1.5 KiB"),
        (size(24 * GIB), "24 GiB"),
        (size(25_757_220_864), "24.0 GiB"),
        (speed(0.98e9), "1.0 GB/s"),
        (speed(99.4e9), "99.4 GB/s"),
        (speed(1792e9), "1,792 GB/s"),
        (operations(149e9), "149 GOPS"),
        (operations(71.2e12), "71.2 TOPS"),
    ],
)
def test_units(value: str, expected: str) -> None:
    assert value == expected


# ---------------------------------------------------------------------------- foreign words


def hostile() -> Report:
    rig = two()
    device = replace(rig.devices[0], name=HOSTILE)
    rig = replace(
        rig, devices=(device, *rig.devices[1:]), os=HOSTILE, software=SoftwareFacts(HOSTILE)
    )
    finding = Finding(HOSTILE, "error", (HOSTILE,), HOSTILE, HOSTILE, HOSTILE)
    return Report(replace(rig, unknown=(HOSTILE,)), (finding,), (HOSTILE,))


def test_foreign_words_do_nothing() -> None:
    page, markdown, text = (f(hostile()) for f in (report_html, report_markdown, report_text))
    assert "<script" not in page
    assert "</code>" not in page
    assert "<script" not in markdown
    assert "@someone" not in markdown
    foreign = [line for line in markdown.splitlines() if not line.startswith("  - Do: ")]
    assert not any("`cmd`" in line.replace("\\`", "") for line in foreign)
    assert "\n# head" not in markdown
    assert "\x1b" not in page + markdown + text
    assert json.loads(report_json(hostile()))["unread"] == [HOSTILE]


def test_markdown_shows_commands_as_code() -> None:
    remedy = "run `a _b_ | c`, not `a <b> @d`, ` ` or `` or one ` alone, then *wait*"
    told = Finding("x", "info", (), "from `text`", "", remedy)
    markdown = report_markdown(replace(report_of(four()), findings=(told,)))
    assert (
        "  - Do: run `a _b_ | c`, not \\`a &lt;b&gt; @\u2060d\\`, \\` \\` or \\`\\` or one "
        "\\` alone, then \\*wait\\*\n"
    ) in markdown
    assert "  - Seen: from \\`text\\`\n" in markdown


def test_markdown_reads_the_same() -> None:
    assert escaped("avx512_vnni a|b _x_") == r"avx512_vnni a\|b \_x\_"
    assert escaped("<b> & `") == "&lt;b&gt; &amp; \\`"


def test_long_leftovers_do_not_fill_the_issue() -> None:
    report = replace(report_of(one()), unread=("x" * 5000,) * 3000)
    assert len(report_markdown(report)) < 20_000
    assert "and 2,988 more" in report_text(report)


def test_details_are_folded() -> None:
    markdown = report_markdown(report_of(four()))
    head, _, folded = markdown.partition("<details>")
    assert "p2p-broken" in head
    assert "| cuda:0 | NVIDIA GeForce RTX 3090 |" in head
    assert "All-reduce" in folded
    assert markdown.count("<details>") == markdown.count("</details>") == 8

"""The picture of the topology, and the page around it, as a browser would parse them."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace
from xml.etree import ElementTree

import pytest
from report_rigs import eight, four, one, report_of, two

from local_tp.core import Link, Rig
from local_tp.facts import CardFacts, PairFacts
from local_tp.hardware.report.facts import tables
from local_tp.hardware.report.html import report_html
from local_tp.hardware.report.topology import pairs, sockets
from local_tp.hardware.report.topology_lines import BROKEN, BUCKETS, bucket
from local_tp.hardware.report.topology_svg import topology_svg

SVG = "{http://www.w3.org/2000/svg}"


def drawn(rig: Rig) -> ElementTree.Element:
    return ElementTree.fromstring(topology_svg(rig))


def words(rig: Rig) -> list[str]:
    return [element.text or "" for element in drawn(rig).iter(f"{SVG}text")]


def lines(rig: Rig) -> dict[str, ElementTree.Element]:
    """The lines that say what they are, by their tooltip."""
    found = {}
    for path in drawn(rig).iter(f"{SVG}path"):
        title = path.find(f"{SVG}title")
        if title is not None:
            found[title.text or ""] = path
    return found


@pytest.mark.parametrize(("rig", "cards"), [(one, 1), (two, 2), (four, 4), (eight, 8)])
def test_every_card_has_a_box_inside_the_picture(rig: Callable[[], Rig], cards: int) -> None:
    picture = drawn(rig())
    _, _, width, height = map(float, picture.attrib["viewBox"].split())
    boxes = [
        tuple(float(box.attrib[key]) for key in ("x", "y", "width", "height"))
        for box in picture.iter(f"{SVG}rect")
    ]
    assert all(x >= 0 and x + w <= width and y >= 0 and y + h <= height for x, y, w, h in boxes)
    rows = [x for x, y, _, _ in boxes if y == max(y for _, y, _, _ in boxes)]
    assert len(set(rows)) == cards
    assert {f"cuda:{i}" for i in range(cards)} <= set(words(rig()))


def test_switches_and_sockets_stand_where_the_paths_say() -> None:
    (socket,) = sockets(four())
    assert [[card.name for card in branch.cards] for branch in socket.branches] == [
        ["cuda:0", "cuda:1"],
        ["cuda:2", "cuda:3"],
    ]
    assert words(four()).count("PCIe switch") == 2
    near, far = sockets(eight())
    assert [card.name for card in near.cards] == ["cuda:0", "cuda:1", "cuda:2", "cuda:3"]
    assert (near.numa, far.numa) == (0, 1)
    assert not any(branch.switched for branch in near.branches)
    assert {"NUMA node 0", "NUMA node 1"} <= set(words(eight()))


def test_sockets_are_told_apart_by_paths_alone() -> None:
    rig = eight()
    bare = tuple(replace(d, facts=replace(d.facts, numa=None)) for d in rig.devices)
    near, far = sockets(replace(rig, devices=bare))
    assert (len(near.cards), len(far.cards), near.numa) == (4, 4, None)


def test_nothing_known_is_no_boundary() -> None:
    (socket,) = sockets(replace(eight(), links=(), devices=four().devices))
    assert [len(branch.cards) for branch in socket.branches] == [1, 1, 1, 1]


def test_a_machine_without_cards() -> None:
    rig = Rig((one().devices[-1],))
    assert sockets(rig)[0].cards == ()
    assert "Example Processor 16-Core" in words(rig)


@pytest.mark.parametrize(
    ("rate", "index"),
    [(None, None), (0.0, 0), (1.99e9, 0), (2e9, 1), (11e9, 2), (12e9, 3), (24e9, 4), (900e9, 5)],
)
def test_a_speed_has_a_colour(rate: float | None, index: int | None) -> None:
    assert bucket(rate) == index


def test_links_have_the_colour_of_their_measured_speed() -> None:
    found = lines(four())
    card = found["cuda:1 to the root: PCIe 4.0 x8, 12.6 GB/s"]
    assert card.attrib["stroke"] == BUCKETS[3][1]
    assert "stroke-dasharray" not in card.attrib
    assert found["cuda:3 to the root: PCIe 3.0 x1, 0.8 GB/s"].attrib["stroke"] == BUCKETS[0][1]
    pair = found["0000:01:00.0 and 0000:02:00.0: NVLink 47.2 GB/s"]  # its slower direction
    assert pair.attrib["stroke"] == BUCKETS[4][1]


def test_what_nobody_measured_is_dashed() -> None:
    """Width as it is, generation at its best: an idle card lowers only the latter."""
    found = lines(two())
    assert found["cuda:1 to the root: PCIe 5.0 x1, 3.9 GB/s"].attrib["stroke-dasharray"]
    assert found["cuda:0 to the root: PCIe 4.0 x16, 31.5 GB/s"].attrib["stroke"] == BUCKETS[4][1]


def test_a_broken_pair_is_marked() -> None:
    (title,) = [title for title in lines(two()) if " and " in title]
    assert title.endswith("P2P broken")
    assert lines(two())[title].attrib["stroke"] == BROKEN
    assert "P2P broken" in words(two())


def test_a_pair_of_which_nothing_is_known_has_no_line() -> None:
    rig = two()
    (link,) = rig.links
    host = replace(link, kind="host", facts=replace(link.facts, verdict=None))
    assert pairs(replace(rig, links=(host,))) == ()
    assert len(pairs(eight())) == 28


LEGEND = {text for _, _, text in BUCKETS} | {"not known", "nominal only", "✕ fails"}


def legend(rig: Rig) -> list[str]:
    return [text for text in words(rig) if text in LEGEND]


@pytest.mark.parametrize(
    ("rig", "named"),
    [
        (one, ["6 to 12 GB/s"]),  # the card's own link, and no pair
        (two, ["2 to 6 GB/s", "24 to 50 GB/s", "nominal only", "✕ fails"]),
        (four, ["under 2 GB/s", "6 to 12 GB/s", "12 to 24 GB/s", "24 to 50 GB/s", "not known"]),
        (eight, ["50 GB/s and more", "not known", "nominal only"]),
    ],
)
def test_the_legend_names_what_is_drawn(rig: Callable[[], Rig], named: list[str]) -> None:
    assert legend(rig()) == named


def test_without_a_line_there_is_no_legend() -> None:
    assert legend(Rig((one().devices[-1],))) == []


def test_amds_bridge_has_its_own_name() -> None:
    rig = four()
    radeons = tuple(replace(d, kind="rocm") if d.kind == "cuda" else d for d in rig.devices)
    rig = replace(rig, devices=radeons)
    assert "XGMI 47.2 GB/s" in words(rig)
    ways = next(table for table in tables(rig) if table.title == "Way between cards")
    assert ways.rows[0][2] == "4 XGMI, P2P verified"
    bare = replace(
        rig, links=(Link(radeons[0].id, radeons[1].id, "host", facts=PairFacts(path="nvlink")),)
    )
    way = tables(bare)[0]
    assert way.rows[0][2] == "XGMI"
    assert "NVLink" not in report_html(report_of(rig))


def test_slices_stand_in_their_cards_box() -> None:
    rig = one()
    card = replace(rig.devices[0], facts=CardFacts(vendor="nvidia", mig=True))
    facts = CardFacts(vendor="nvidia", slice_of=card.id, profile="1g.10gb")
    parts = [replace(card, id=f"{card.id}/mig-{n}", facts=facts) for n in (0, 1)]
    links = (Link(parts[0].id, parts[1].id, "host", facts=PairFacts(path="self")),)
    rig = replace(rig, devices=(card, *parts), links=links)
    assert [len(socket.cards) for socket in sockets(rig)] == [1]
    assert "12 GiB, MIG" in words(rig)
    assert tables(rig) == ()
    assert f"MIG slice 1g.10gb of {card.id}" in report_html(report_of(rig))


def test_names_are_text() -> None:
    rig = one()
    rig = replace(rig, devices=(replace(rig.devices[0], name='<x onload="y"> & \x1b'),))
    assert "<x onload=" not in topology_svg(rig)
    assert drawn(rig).find(f"{SVG}title") is not None


def test_the_page_fetches_nothing() -> None:
    page = report_html(report_of(four()))
    assert re.findall(r"(?:src|href)\s*=|url\(|@import|<script", page) == []
    addresses = set(re.findall(r"https?://[^\"']+", page))
    assert addresses == {"http://www.w3.org/2000/svg"}  # a name space, never fetched
    assert "default-src 'none'" in page
    assert "prefers-color-scheme: dark" in page


def test_a_pair_that_peer_to_peer_makes_slower_is_called_slow() -> None:
    pair = PairFacts(path="PHB", read="ok", write="ok", forth=0.9e9, back=0.9e9, staged=11.5e9)
    rig = two()
    (link,) = rig.links
    slow = replace(rig, links=(replace(link, kind="host", bandwidth=None, facts=pair),))
    fine = replace(rig, links=(replace(slow.links[0], facts=replace(pair, forth=26e9, back=26e9)),))
    for machine, word in ((slow, "PHB, P2P SLOW"), (fine, "PHB, P2P ok")):
        cells = [cell for table in tables(machine) for row in table.rows for cell in row]
        assert word in cells, cells

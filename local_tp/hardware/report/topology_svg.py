"""A picture of the machine as SVG: sockets, switches, cards, and links coloured by their speed.

Knows nothing of how anything was learned. Solid lines were measured, dashed ones are what the
hardware promises. Text and frames take the colour of the text around the picture, so it fits a
light and a dark page; nothing in it is fetched.
"""

from __future__ import annotations

from collections.abc import Iterator
from html import escape
from itertools import pairwise

from local_tp.core import Link, Rig
from local_tp.hardware.devices import bridge_name
from local_tp.hardware.report.facts import measured_pcie, nominal_pcie, size, speed
from local_tp.hardware.report.report import printable
from local_tp.hardware.report.topology import Branch, Card, Socket, pairs, sockets
from local_tp.hardware.report.topology_lines import BROKEN, Line, legend, legend_height

CARD, GAP, MARGIN = 132, 16, 16
SOCKET_TOP, SOCKET_HEIGHT = 12, 50
SWITCH_TOP, SWITCH_HEIGHT = 92, 24
CARD_TOP, CARD_HEIGHT = 176, 82
CARD_BOTTOM = CARD_TOP + CARD_HEIGHT
LEAST_WIDTH = 400
# A narrow window scrolls rather than make the words smaller than this share of their size.
SMALLEST = 0.7
# More arcs than these get no labels of their own: the table beside the picture has the numbers.
LABELLED_ARCS = 6


def topology_svg(rig: Rig) -> str:
    """The whole picture as one `svg` element, as wide as its cards need."""
    tree = sockets(rig)
    columns = _columns(tree)
    count = sum(max(1, len(socket.cards)) for socket in tree)
    width = max(LEAST_WIDTH, 2 * MARGIN + count * CARD + (count - 1) * GAP)
    offset = (width - 2 * MARGIN - count * CARD - (count - 1) * GAP) / 2
    centres = {key: MARGIN + offset + x for key, x in columns.items()}
    arcs = pairs(rig)
    depth = max((_depth(link, centres) for link in arcs), default=0.0)
    bottom = (CARD_BOTTOM if any(s.cards for s in tree) else SOCKET_TOP + SOCKET_HEIGHT) + depth
    lines = _lines_drawn(tree, arcs)
    legend_top = bottom + (46 if arcs else 30)
    height = legend_top + legend_height(lines, width - 2 * MARGIN) if lines else bottom + MARGIN
    body = [
        *_between_sockets(tree, centres),
        *(part for socket in tree for part in _branches(socket, centres)),
        *(_arc(link, centres, bridge_name(link, rig)) for link in arcs),
        *(
            _arc_label(link, centres, bridge_name(link, rig))
            for link in arcs
            if len(arcs) <= LABELLED_ARCS
        ),
        *(_socket(socket, centres, rig, len(tree)) for socket in tree),
        *(_card(card, centres[card.device.id]) for socket in tree for card in socket.cards),
        *legend(lines, MARGIN, legend_top, width - 2 * MARGIN),
    ]
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" class="tp-topology" role="img" '
        f'viewBox="0 0 {width:.0f} {height:.0f}" width="{width:.0f}" height="{height:.0f}" '
        f'style="max-width:100%;min-width:{width * SMALLEST:.0f}px;height:auto" '
        f'font-family="system-ui, sans-serif" font-size="12" fill="currentColor">'
        f"<title>{_text(_title(tree))}</title>{''.join(body)}</svg>"
    )


# ------------------------------------------------------------------------------------ places


def _columns(tree: tuple[Socket, ...]) -> dict[str, float]:
    """The middle of each card by device id, from 0; a socket without cards takes a column."""
    columns: dict[str, float] = {}
    x = 0.0
    for socket in tree:
        for card in socket.cards:
            columns[card.device.id] = x + CARD / 2
            x += CARD + GAP
        if not socket.cards:
            columns[""] = x + CARD / 2
            x += CARD + GAP
    return columns


def _extent(cards: tuple[Card, ...], centres: dict[str, float]) -> tuple[float, float]:
    xs = [centres[card.device.id] for card in cards] or [centres[""]]
    return min(xs) - CARD / 2, max(xs) + CARD / 2


def _depth(link: Link, centres: dict[str, float]) -> float:
    """How far the arc of a link hangs below the cards; far pairs hang lower."""
    steps = abs(centres[link.a] - centres[link.b]) / (CARD + GAP)
    return 26 + 20 * (steps - 1)


# --------------------------------------------------------------------------------- the boxes


def _socket(socket: Socket, centres: dict[str, float], rig: Rig, count: int) -> str:
    left, right = _extent(socket.cards, centres)
    middle = (left + right) / 2
    if count == 1:  # room for the processor's name above a single card
        left, right = min(left, middle - 150), max(right, middle + 150)
    name = rig.host.processor or next((d.name for d in rig.devices if d.kind == "cpu"), "Processor")
    place = f"NUMA node {socket.numa}" if socket.numa is not None and count > 1 else ""
    rate = rig.host.memory_bandwidth
    memory = ", ".join(
        part
        for part in (
            f"{size(rig.ram)} RAM" if rig.ram and count == 1 else "",
            f"{speed(rate)} measured" if rate and count == 1 else "",
        )
        if part
    )
    lines = (_clipped(name, int((right - left - 16) / 6.6)), place or memory)
    return _box(left, SOCKET_TOP, right - left, SOCKET_HEIGHT, ".10") + _lines(
        middle, SOCKET_TOP + (20 if lines[1] else 30), lines, bold=True
    )


def _card(card: Card, x: float) -> str:
    device, facts = card.device, card.device.facts
    left = x - CARD / 2
    notes = [
        size(device.total) + (" shared" if facts.integrated else "") if device.total else "",
        "display" if device.display else "",
        "external" if facts.external else "",
        "MIG" if facts.mig else "",
    ]
    dash = ' stroke-dasharray="4 3"' if facts.integrated or facts.lost else ""
    state = "LOST" if facts.lost else ", ".join(note for note in notes if note)
    first, second = _two_lines(device.name)
    texts = (
        _lines(x, CARD_TOP + 17, (card.name,), bold=True)
        + _lines(x, CARD_TOP + 34, (first, second) if second else (first,))
        + _lines(x, CARD_TOP + 68, (state,), faint=not facts.lost)
    )
    title = f"<title>{_text(f'{card.name}: {device.name} at {device.id}')}</title>"
    return f"<g>{title}{_box(left, CARD_TOP, CARD, CARD_HEIGHT, '.05', dash)}{texts}</g>"


def _box(x: float, y: float, width: float, height: float, tint: str, more: str = "") -> str:
    return (
        f'<rect x="{x:.1f}" y="{y:.1f}" width="{width:.1f}" height="{height:.1f}" rx="8" '
        f'fill="currentColor" fill-opacity="{tint}" stroke="currentColor" '
        f'stroke-opacity=".45"{more}/>'
    )


def _lines(
    x: float, y: float, lines: tuple[str, ...], *, bold: bool = False, faint: bool = False
) -> str:
    """Centred lines of text; with `bold` the first stands out."""
    drawn = []
    for number, line in enumerate(line for line in lines if line):
        weight = ' font-weight="600"' if bold and not number else ""
        opacity = ' opacity=".75"' if faint or (bold and number) else ""
        drawn.append(
            f'<text x="{x:.1f}" y="{y + 16 * number:.1f}" text-anchor="middle"{weight}{opacity}>'
            f"{_text(line)}</text>"
        )
    return "".join(drawn)


# --------------------------------------------------------------------------------- the lines


def _between_sockets(tree: tuple[Socket, ...], centres: dict[str, float]) -> Iterator[str]:
    for one, other in pairwise(tree):
        x1, x2 = _extent(one.cards, centres)[1], _extent(other.cards, centres)[0]
        y = SOCKET_TOP + SOCKET_HEIGHT / 2
        yield f'<path d="M{x1:.1f} {y}H{x2:.1f}" {Line(None, measured=True).style}/>'


def _lines_drawn(tree: tuple[Socket, ...], arcs: tuple[Link, ...]) -> list[Line]:
    """Every line of the picture that has a speed, known or not."""
    joints = len(tree) - 1 + sum(branch.switched for s in tree for branch in s.branches)
    return [
        *[Line(None, measured=True)] * joints,
        *(_drop_line(card) for socket in tree for card in socket.cards),
        *(_arc_line(link) for link in arcs),
    ]


def _branches(socket: Socket, centres: dict[str, float]) -> Iterator[str]:
    top = SOCKET_TOP + SOCKET_HEIGHT
    for branch in socket.branches:
        if branch.switched:
            left, right = _extent(branch.cards, centres)
            middle = (left + right) / 2
            up = Line(None, measured=True).style
            yield f'<path d="M{middle:.1f} {top}V{SWITCH_TOP}" {up}/>'
            yield _box(left + 20, SWITCH_TOP, right - left - 40, SWITCH_HEIGHT, ".10")
            yield _lines(middle, SWITCH_TOP + 16, ("PCIe switch",))
        yield from _drops(branch, centres, SWITCH_TOP + SWITCH_HEIGHT if branch.switched else top)


def _drops(branch: Branch, centres: dict[str, float], top: float) -> Iterator[str]:
    """The line from the root or a switch down to each card, with its lanes and speed."""
    for card in branch.cards:
        x = centres[card.device.id]
        line = _drop_line(card)
        lanes = _lanes(card)
        shown = "" if line.rate is None else speed(line.rate)
        words = ", ".join(part for part in (lanes, shown) if part)
        said = f"{card.name} to the root: {words or 'speed not known'}"
        title = f"<title>{_text(said)}</title>"
        yield f'<path d="M{x:.1f} {top}V{CARD_TOP}" {line.style}>{title}</path>'
        for number, label in enumerate(part for part in (lanes, shown) if part):
            y = CARD_TOP - 34 + 15 * number
            yield f'<text x="{x + 9:.1f}" y="{y}" font-size="11">{_text(label)}</text>'


def _drop_line(card: Card) -> Line:
    rate = measured_pcie(card.device)
    return Line(nominal_pcie(card.device) if rate is None else rate, rate is not None)


def _arc_line(link: Link) -> Line:
    measured = link.measured or link.facts.forth is not None
    return Line(_rate(link), measured=measured, broken=_fails(link))


def _lanes(card: Card) -> str:
    loaded, pcie = card.device.facts.pcie_loaded, card.device.pcie
    generation = loaded.generation if loaded else pcie and pcie.max_generation
    width = (loaded.width if loaded else None) or (pcie and (pcie.width or pcie.max_width))
    if not width:
        return ""
    return f"PCIe {f'{generation}.0 ' if generation else ''}x{width}"


def _arc(link: Link, centres: dict[str, float], bridge: str) -> str:
    """A pair of cards, coloured by the slower direction, with a cross if its data goes astray."""
    x1, x2 = sorted((centres[link.a], centres[link.b]))
    low = CARD_BOTTOM + _depth(link, centres)
    line = _arc_line(link)
    # A cubic reaches three quarters of the way to its control points.
    control = CARD_BOTTOM + (low - CARD_BOTTOM) / 0.75
    inset = 10 if x2 - x1 > CARD + GAP else 24
    curve = f"M{x1 + inset:.1f} {CARD_BOTTOM}C{x1 + inset + 20:.1f} {control:.1f} "
    curve += f"{x2 - inset - 20:.1f} {control:.1f} {x2 - inset:.1f} {CARD_BOTTOM}"
    words = f"{link.a} and {link.b}: {_arc_words(link, bridge)}"
    drawn = f'<path d="{curve}" {line.style}><title>{_text(words)}</title></path>'
    if line.broken:
        middle = (x1 + x2) / 2
        drawn += (
            f'<path d="M{middle - 6:.1f} {low - 6:.1f}l12 12m0 -12l-12 12" '
            f'stroke="{BROKEN}" stroke-width="3"/>'
        )
    return drawn


def _arc_label(link: Link, centres: dict[str, float], bridge: str) -> str:
    """Words on the arc's lowest point, in a halo of the page's colour."""
    middle = (centres[link.a] + centres[link.b]) / 2
    y = CARD_BOTTOM + _depth(link, centres) + (20 if _fails(link) else 4)
    return (
        f'<text x="{middle:.1f}" y="{y:.1f}" text-anchor="middle" font-size="11" '
        f'stroke="var(--r-panel, Canvas)" stroke-width="5" stroke-linejoin="round" '
        f'paint-order="stroke">{_text(_arc_words(link, bridge))}</text>'
    )


def _arc_words(link: Link, bridge: str) -> str:
    name = {"nvlink": bridge, "p2p": "P2P", "host": "via RAM"}[link.kind]
    rate = _rate(link)
    if _fails(link):
        return f"{name} {link.facts.verdict}"
    return name if rate is None else f"{name} {speed(rate)}"


def _rate(link: Link) -> float | None:
    """The slower direction, bytes a second."""
    rates = [r for r in (link.facts.forth, link.facts.back) if r is not None]
    return min(rates) if rates else link.bandwidth


def _fails(link: Link) -> bool:
    return link.facts.verdict in ("broken", "hangs", "failed")


# ---------------------------------------------------------------------------------- the words


def _title(tree: tuple[Socket, ...]) -> str:
    cards = sum(len(socket.cards) for socket in tree)
    shown = f"{cards} card{'' if cards == 1 else 's'}" if cards else "no cards"
    return f"Topology: {shown} on {len(tree)} socket{'' if len(tree) == 1 else 's'}"


def _two_lines(name: str, room: int = 18) -> tuple[str, str]:
    """A card's name without its maker, over at most two lines."""
    for maker in ("NVIDIA ", "GeForce ", "AMD ", "Intel(R) "):
        if any(c.isdigit() for c in name):  # "NVIDIA card" without its maker says nothing
            name = name.removeprefix(maker)
    first, words = "", name.split()
    while words and len(f"{first} {words[0]}".strip()) <= room:
        first = f"{first} {words.pop(0)}".strip()
    if not first and words:
        return _clipped(" ".join(words), room), ""
    return first, _clipped(" ".join(words), room)


def _clipped(text: str, room: int) -> str:
    return text if len(text) <= room else f"{text[: max(1, room - 1)].rstrip()}…"


def _text(text: str) -> str:
    return escape(printable(text))

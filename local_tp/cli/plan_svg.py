"""The plan as an SVG: a frame a stage, a bar a device, and what lies between them.

Pure. Text takes the colour of the page around it, so it fits a light and a dark one; nothing in
it is fetched. Every foreign word is escaped.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from html import escape as escape_html

from local_tp.cli.plan_picture import KINDS, longest_bars, segments
from local_tp.core import Plan
from local_tp.hardware.report.report import printable
from local_tp.plan.explain import DeviceUse, Explanation, Way

WIDTH, INSET, ROW, HEAD, LINE, GAP = 460, 14, 50, 32, 16, 40
BAR = WIDTH - 2 * INSET
TITLE, NAME = 62, 30  # characters, at most
GIB = 1024**3


def plan_svg(plan: Plan, explanation: Explanation) -> str:
    """The whole picture as one `svg` element."""
    uses = {use.device: use for use in explanation.devices}
    longest = longest_bars(explanation.devices)
    body: list[str] = []
    top = 1
    for title, inside, members, below in _blocks(plan, explanation):
        head = HEAD + (LINE if inside else 0)
        height = head + ROW * len(members) + 6
        body.append(
            f'<rect class="frame" x="1" y="{top}" width="{WIDTH - 2}" '
            f'height="{height}" rx="8"/><text class="title" x="{INSET}" y="{top + 20}">'
            f"{_short(title, TITLE)}</text>"
        )
        if inside:
            body.append(
                f'<text class="quiet" x="{INSET}" y="{top + 20 + LINE}" font-size="12">'
                f"{_short(inside, TITLE)}</text>"
            )
        for row, device in enumerate(members):
            body += _device(uses[device], longest[device], top + head + row * ROW)
        top += height
        if below:
            body += _below(below, top)
            top += GAP
        else:
            top += 10
    described = f"{plan.split} split over {len(plan.placements)} workers"
    return (
        f'<svg class="tp-picture" xmlns="http://www.w3.org/2000/svg" role="img" '
        f'viewBox="0 0 {WIDTH} {top}" aria-label="{escape(described)}" '
        f'font-family="system-ui, sans-serif" font-size="13" fill="currentColor">'
        f"{''.join(body)}</svg>"
    )


def legend() -> str:
    """What the colours stand for."""
    keys = "".join(
        f'<span><i class="tp-{colour}" aria-hidden="true"></i>{name}</span>'
        for name, colour, _, _ in KINDS
    )
    return f'<div class="tp-keys">{keys}</div>'


def escape(text: str) -> str:
    return escape_html(printable(text))


def speed_words(ways: Sequence[Way], purpose: str) -> str:
    """What these ways are, in one line."""
    said = dict.fromkeys(
        f"{way.how}{f', {way.bandwidth / 1e9:.1f} GB/s' if way.bandwidth else ''}"
        f"{' (measured)' if way.sure else ''}"
        for way in ways
    )
    return f"{purpose} by {' and '.join(said)}" if said else ""


def _blocks(
    plan: Plan, explanation: Explanation
) -> Iterator[tuple[str, str, tuple[str, ...], str]]:
    """Title, what lies inside, devices, and what follows: of each stage and replica, and beside."""
    for index in range(plan.stages):
        members = plan.stage(index)
        mine = {p.device for p in members}
        layers = members[0].layers
        title, inside, below = f"layers {layers.start} to {layers.stop - 1}", "", ""
        if plan.stages > 1:
            title = f"stage {index}: {title}"
        if len(members) > 1:
            title += f", cut over {len(members)} workers"
            sums = [w for w in explanation.ways if w.purpose == "sum" and {w.a, w.b} <= mine]
            inside = speed_words(sums, "sums")
        if index + 1 < plan.stages:
            ends = (members[0].device, plan.stage(index + 1)[0].device)
            onward = [
                w for w in explanation.ways if w.purpose == "hand-over" and (w.a, w.b) == ends
            ]
            below = speed_words(onward[:1], "hand-over")
        yield title, inside, tuple(dict.fromkeys(p.device for p in members)), below
    for copy in plan.copies:
        yield "the same once more", "", tuple(dict.fromkeys(copy)), ""
    drawn = {p.device for p in plan.placements} | {d for copy in plan.copies for d in copy}
    if rest := tuple(use.device for use in explanation.devices if use.device not in drawn):
        yield "beside: the PC's memory", "", rest, ""


def _device(use: DeviceUse, longest: int, top: int) -> Iterator[str]:
    yield (
        f'<text x="{INSET}" y="{top + 13}">{escape(use.label)} '
        f'<tspan class="quiet">{_short(use.name, NAME)}</tspan></text>'
        f'<text x="{WIDTH - INSET}" y="{top + 13}" text-anchor="end">'
        f"{(use.used + use.reserve) / GIB:.1f} of {use.free / GIB:.1f} GiB</text>"
    )
    x, width = float(INSET), BAR * use.total / max(1, longest)
    for (name, colour, _, _), amount in zip(KINDS, segments(use), strict=True):
        part = width * amount / use.total if use.total else 0.0
        if part > 0:
            yield (
                f'<rect class="tp-{colour}" x="{x:.1f}" y="{top + 20}" width="{part:.1f}" '
                f'height="18"><title>{name}: {amount / GIB:.2f} GiB</title></rect>'
            )
        x += part


def _short(text: str, most: int) -> str:
    return escape(text if len(text) <= most else f"{text[: most - 1]}…")


def _below(line: str, top: int) -> Iterator[str]:
    yield f'<path class="arrow" d="M40 {top + 4} V{top + GAP - 4} m-5 -8 l5 8 l5 -8"/>'
    yield f'<text class="quiet" x="56" y="{top + 24}">{_short(line, TITLE)}</text>'

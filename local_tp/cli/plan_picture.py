"""The plan as a picture in a terminal: stages, a bar a device, and what lies between them.

Pure: values in, lines out. A card's bar is as long as its memory is to the largest card's, the PC's
memory fills a line; whatever a device has something of shows at least one character.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from local_tp.cli.terminal import Colour, Look
from local_tp.core import Placement, Plan
from local_tp.plan.explain import DeviceUse, Explanation, Way

GIB = 1024**3
SHORTEST = 8  # characters of a bar
KINDS: tuple[tuple[str, Colour, str, str], ...] = (  # words, colour, glyph, in ASCII
    ("weights", "weights", "█", "#"),
    ("keys and values", "kv", "▓", "="),
    ("workspace", "workspace", "▒", "+"),
    ("kept free", "reserve", "░", "-"),
    ("free", "left", "·", "."),
    ("others", "others", "×", "x"),
)


def picture(plan: Plan, explanation: Explanation, look: Look) -> list[str]:
    """The picture with its legend."""
    uses = {use.device: use for use in explanation.devices}
    longest = longest_bars(explanation.devices)
    name = min(24, max(len(use.name) for use in uses.values()))
    label = max(len(use.label) for use in uses.values())
    lines: list[str] = []
    shown: set[str] = set()
    for index in range(plan.stages):
        members = plan.stage(index)
        lines.append(look.paint(_stage(plan, members, look), "strong"))
        for placement in members:
            use = uses[placement.device]
            lines.append(_row(use, longest, label, name, look, placement.device in shown))
            shown.add(placement.device)
        lines += _between(explanation.ways, members, plan, index, uses, look)
    for copy in plan.copies:
        where = ", ".join(uses[device].label for device in copy)
        lines.append(look.paint(f"  the same once more on {where}", "strong"))
        lines += [_row(uses[d], longest, label, name, look, d in shown) for d in copy]
        shown.update(copy)
    rest = [use for use in explanation.devices if use.device not in shown]
    if rest:
        lines.append(look.paint("  beside", "strong"))
        lines += [_row(use, longest, label, name, look, False) for use in rest]
    return [*lines, *_legend(look)]


def segments(use: DeviceUse) -> tuple[int, ...]:
    """Bytes of a bar in the order of `KINDS`; they add up to the device's memory."""
    left = max(0, use.left)
    reserve = max(0, use.total - use.used - left - use.others)
    return use.weights, use.kv, use.workspace, reserve, left, use.others


def cells(amounts: Sequence[int], width: int) -> list[int]:
    """`width` characters shared out by amount, at least one to each that is there."""
    total = sum(amounts) or 1
    counts = [max(1, round(width * amount / total)) if amount else 0 for amount in amounts]
    while (over := sum(counts) - width) > 0 and max(counts) > 1:
        counts[counts.index(max(counts))] -= min(over, max(counts) - 1)
    if sum(counts) < width:
        counts[counts.index(max(counts))] += width - sum(counts)
    return counts


def _stage(plan: Plan, members: Sequence[Placement], look: Look) -> str:
    layers = members[0].layers
    held = f"layers {layers.start} to {layers.stop - 1}" if layers.size > 1 else "one layer"
    together = f", each cut over {len(members)} workers" if len(members) > 1 else ""
    number = f"stage {members[0].stage}: " if plan.stages > 1 else ""
    return f"  {number}{held}{together}"


def longest_bars(devices: Sequence[DeviceUse]) -> dict[str, int]:
    """The bytes that a full bar stands for, of each device."""
    largest = max((use.total for use in devices if use.kind != "cpu"), default=1)
    return {use.device: use.total if use.kind == "cpu" else largest for use in devices}


def _row(
    use: DeviceUse, longest: dict[str, int], label: int, name: int, look: Look, again: bool
) -> str:
    start = f"    {use.label:<{label}}  {look.plain(use.name)[:name]:<{name}}  "
    if again:
        return start + "(the same device)"
    end = f"  {(use.used + use.reserve) / GIB:6.1f} of {use.free / GIB:.1f} GiB"
    room = max(SHORTEST, look.width - len(start) - len(end))
    width = max(SHORTEST, round(room * use.total / max(1, longest[use.device])))
    bar = "".join(
        look.paint((glyph if look.unicode else plain) * count, colour)
        for count, (_, colour, glyph, plain) in zip(cells(segments(use), width), KINDS, strict=True)
    )
    return start + bar + " " * (room - width) + end


def _between(
    found: Sequence[Way],
    members: Sequence[Placement],
    plan: Plan,
    index: int,
    uses: dict[str, DeviceUse],
    look: Look,
) -> Iterator[str]:
    inside = {p.device for p in members}
    sums = [w for w in found if w.purpose == "sum" and {w.a, w.b} <= inside]
    said: dict[str, list[str]] = {}
    for way in sums:
        pair = f"{uses[way.a].label}-{uses[way.b].label}"
        said.setdefault(_speed(way), []).append(pair)
    for how, pairs in said.items():
        where = "" if len(said) == 1 else f" ({', '.join(pairs)})"
        yield look.paint(_fit(f"      sums by {how}{where}", look), "quiet")
    if index + 1 < plan.stages:
        onward = plan.stage(index + 1)[0].device
        way = next(
            w
            for w in found
            if w.purpose == "hand-over" and (w.a, w.b) == (members[0].device, onward)
        )
        arrow = "↓" if look.unicode else "|"
        yield look.paint(_fit(f"      {arrow} hand-over by {_speed(way)}", look), "quiet")


def _speed(way: Way) -> str:
    rate = f", {way.bandwidth / 1e9:.1f} GB/s" if way.bandwidth else ""
    sure = ", measured" if way.sure else ""
    return f"{way.how}{rate}{sure}"


def _fit(text: str, look: Look) -> str:
    text = look.plain(text)
    return text if len(text) <= look.width else text[: look.width - 3] + "..."


def _legend(look: Look) -> list[str]:
    """The kinds of bytes in a bar, on as many lines as they need."""
    lines, used = [""], 0
    for name, colour, glyph, plain in KINDS:
        if used + len(name) + 4 > look.width - 4:
            lines.append("")
            used = 0
        lines[-1] += f"{look.paint(glyph if look.unicode else plain, colour)} {name}  "
        used += len(name) + 4
    return [f"    {line.rstrip()}" for line in lines]

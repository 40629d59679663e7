"""The rule of what is worth measuring on a machine.

Pure: knows nothing of how anything is measured. It reads a `Rig` and may be asked again when the
rig has learned something, as pair verdicts decide whether NCCL can be chosen at all.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import combinations

from local_tp.core import Device, Rig, Transport
from local_tp.hardware.devices import in_slot_order
from local_tp.hardware.measuring.transport_gate import forbidding_pairs

Ranks = tuple[Device, ...]


@dataclass(frozen=True, slots=True)
class Scope:
    """`collectives` are transports to try together over the ranks of one crew."""

    devices: tuple[Device, ...]
    pairs: tuple[tuple[Device, Device], ...]
    collectives: tuple[tuple[tuple[Transport, ...], Ranks], ...]


def worth_measuring(rig: Rig, full: bool) -> Scope:
    """What can change a plan for this rig, or with `full` everything that can be measured.

    - Devices: every card but lost ones, those that no program may use as a whole (MIG, compute
      mode) and a processor's own graphics; and the processor, which holds what does not fit on
      the cards. `full` adds a processor's own graphics.
    - Pairs: any two cards of one kind; without cards, any two processors. One device has no pair,
      and of MIG slices a process sees only one.
    - Collectives: over one rank a card, or over two of a processor with two cores, since those are
      the crews that are planned unasked. One device alone needs none. Gloo always, as it is what
      remains; shared memory among processors whose stores are ordered; NCCL among whole cards,
      unless a pair's verdict forbids it anyway (with `full` even then). All cards of a crew are
      of one kind, since torch is built for one. `full` adds the
      processor's own crew to a machine with cards.
    """
    usable = [d for d in rig.devices if _usable(d, full)]
    cards = sorted((d for d in usable if d.kind != "cpu"), key=in_slot_order)
    processors = [d for d in usable if d.kind == "cpu"]
    together = [
        (a, b)
        for a, b in combinations(cards or processors, 2)
        if a.kind == b.kind and a.id != b.id and not (a.facts.slice_of or b.facts.slice_of)
    ]
    crews: list[tuple[tuple[Transport, ...], Ranks]] = []
    ranks = next((r for kind in ("cuda", "rocm", "xpu") if (r := _of_kind(cards, kind))), ())
    if len(ranks) > 1:
        crews.append((("gloo",), ranks))
        whole = not any(card.facts.slice_of for card in ranks)
        forbidden = forbidding_pairs(rig, [card.id for card in ranks])
        if ranks[0].kind != "xpu" and whole and (full or not forbidden):
            crews.append((("nccl",), ranks))
    if not cards or full:
        crews += _processor_crews(processors, rig.cores)
    return Scope((*cards, *processors), tuple(together), tuple(crews))


def _of_kind(cards: list[Device], kind: str) -> Ranks:
    return tuple(card for card in cards if card.kind == kind)


def _processor_crews(
    processors: list[Device], cores: int
) -> list[tuple[tuple[Transport, ...], Ranks]]:
    ranks = tuple(processors) if len(processors) > 1 else tuple(processors) * 2
    if cores < 2 or not ranks:
        return []
    ordered = all(d.ordered_stores for d in ranks)
    return [(("shared-memory", "gloo") if ordered else ("gloo",), ranks)]


def _usable(device: Device, full: bool) -> bool:
    facts = device.facts
    if device.kind == "cpu":
        return True
    if facts.lost or facts.mig or facts.compute_mode == "Prohibited":
        return False
    # An NVIDIA PC with shared memory has no other card.
    return full or device.kind == "cuda" or not facts.integrated

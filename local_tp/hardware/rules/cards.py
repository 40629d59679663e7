"""Rules on what the cards are: mixed generations, slices, guests' cards, integrated graphics.

Knows nothing of faults. Most of these are facts to plan with rather than things to mend.
"""

from __future__ import annotations

from collections.abc import Iterator

from local_tp.core import Rig
from local_tp.facts import Finding
from local_tp.hardware.rules.advice import (
    Advice,
    answering,
    capability,
    discrete,
    gib,
    is_laptop,
    label,
    listed,
    nvidia,
    slices,
)
from local_tp.hardware.rules.link_costs import load_seconds, pcie_rate, prompt_seconds

# From which compute capability a card has each of these in its tensor cores.
NEEDS: tuple[tuple[str, tuple[int, int]], ...] = (
    ("fast 16-bit matrix products", (7, 0)),
    ("bf16", (8, 0)),
    ("fp8", (8, 9)),
    ("fp4", (10, 0)),
)
# What to run by the first of these that the weakest card lacks.
FORMATS: tuple[tuple[str, str], ...] = (
    ("bf16", "GGUF with float16"),
    ("fp8", "GGUF or 4-bit integers, no fp8"),
    ("fp4", "GGUF, 4-bit integers or fp8, no fp4"),
)
ANY_FORMAT = "all of them have the same ones"
EXTERNAL_GENERATION, EXTERNAL_WIDTH = 3, 4  # what Thunderbolt 3 and 4 tunnel at best

MIXED = Advice(
    "mixed-architectures",
    "info",
    "{cards}: compute capabilities {capabilities}",
    "one model over all of them runs in what the weakest has: {weakest} lacks {lacking}",
    "choose a format that every card computes ({advice}), or keep the model to the newer cards "
    "with --devices; shares are weighted by memory and speed either way",
)
MIXED_RADEON = Advice(
    "mixed-architectures",
    "info",
    "{cards}: targets {targets}",
    "torch's kernels must be built for each of them, and the older card sets the pace of a tensor "
    "split",
    "look that your torch names both targets; where it does not, keep the model to one of them "
    "with --devices",
)
MIXED_VENDORS = Advice(
    "mixed-vendors",
    "info",
    "{cards}: cards of {vendors}",
    "one model cannot be split by tensor across makers: each needs a build of torch of its own",
    "use the cards of one maker for a model (--devices), the others for a second one",
)
MIG = Advice(
    "mig-on",
    "warning",
    "{card} is cut into slices (MIG is on): {slices}",
    "the whole card is left out of plans; a process uses one slice, with its memory and its part "
    "of the processors, and there is no peer-to-peer between slices",
    "use a slice as a device of its own; `sudo nvidia-smi -i BUS_ID -mig 0` and a reset give the "
    "whole card back, if nobody else uses the slices",
)
VIRTUAL = Advice(
    "virtual-gpu",
    "info",
    "{card} is a share of a card that others use too (vGPU)",
    "speed depends on the neighbours, and peer-to-peer and larger memory are not offered",
    "for full speed ask for the whole card to be passed through",
)
DRIVER_MODELS = Advice(
    "driver-models-differ",
    "warning",
    "{cards}: some run under WDDM, the display driver model, and some under {others}",
    "{tcc}cards of the two kinds cannot share memory, and limits and readings differ between them",
    "`nvidia-smi -i BUS_ID -dm 0` as administrator and a restart put a card back under WDDM",
)
INTEGRATED = Advice(
    "integrated-gpu",
    "info",
    "{card} is the processor's own graphics and borrows the PC's memory",
    "{memory} no memory of its own: counted as graphics memory a plan would be too large, and slow",
    "nothing to do: local_tp leaves it out of plans; plug the monitor in there to free the other "
    "card's memory",
)
EXCLUSIVE = Advice(
    "compute-mode-exclusive",
    "warning",
    "{card}: compute mode is {mode}",
    "a second program on this card fails, and so does a worker that starts while another one ends",
    "`sudo nvidia-smi -i BUS_ID -c 0` sets the default mode",
)
PROHIBITED = Advice(
    "compute-mode-prohibited",
    "error",
    "{card}: compute mode is {mode}",
    "no program may compute on this card",
    "`sudo nvidia-smi -i BUS_ID -c 0` sets the default mode",
)
PERSISTENCE = Advice(
    "persistence-off",
    "info",
    "{cards}: persistence mode is off, and no display keeps the driver loaded",
    "each first use waits a second or more for every card, and power limits are forgotten between",
    "`sudo nvidia-smi -pm 1`, or enable the service nvidia-persistenced",
)
EXTERNAL = Advice(
    "external-gpu",
    "warning",
    "{card} is in an external case (Thunderbolt, USB4 or OCuLink){width}",
    "the link carries about {rate:.1f} GB/s: a tensor split of a 32B model spends {prompt:.1f} s "
    "on it per 1,000 tokens of prompt, and 20 GB of weights load in {load:.0f} s; decode on this "
    "card alone is not slowed",
    "give it whole layers or a whole model rather than a share of each layer, and plug it in "
    "before the PC starts",
)
LAPTOP = Advice(
    "laptop-gpu",
    "info",
    "{card} is a laptop's{limit}",
    "it runs at a lower power than the desktop card of that number and slows down further on "
    "battery or when hot",
    "plug in the power supply, choose the performance profile, and keep the air vents free",
)


def mixed_architectures(rig: Rig) -> Iterator[Finding]:
    """NVIDIA cards of several generations: what the weakest lacks that another has."""
    known = {card.id: c for card in nvidia(rig) if (c := capability(card))}
    if len(set(known.values())) < 2:
        return
    cards = [card for card in nvidia(rig) if card.id in known]
    least, most = min(known.values()), max(known.values())
    lacking = [name for name, needed in NEEDS if least < needed <= most]
    weakest = next(card for card in cards if known[card.id] == least)
    yield MIXED.finding(
        cards,
        "warning" if "bf16" in lacking else "info",
        cards=listed(cards),
        capabilities=", ".join("{}.{}".format(*c) for c in sorted(set(known.values()))),
        weakest=label(weakest),
        lacking=", ".join(lacking) or "no number format, only newer kernels",
        advice=_advice(least),
    )


def _advice(least: tuple[int, int]) -> str:
    """Which formats a card of this compute capability computes, and so every newer one."""
    lacking = [name for name, needed in NEEDS if least < needed]
    return next((words for name, words in FORMATS if name in lacking), ANY_FORMAT)


def mixed_radeons(rig: Rig) -> Iterator[Finding]:
    """AMD cards of several targets."""
    cards = [
        card
        for card in discrete(rig)
        if card.kind == "rocm" and (card.facts.architecture or "").startswith("gfx")
    ]
    targets = {str(card.facts.architecture) for card in cards}
    if len(targets) > 1:
        yield MIXED_RADEON.finding(cards, cards=listed(cards), targets=", ".join(sorted(targets)))


def mixed_vendors(rig: Rig) -> Iterator[Finding]:
    """Cards that need different drivers and different builds of torch."""
    makers = {"cuda": "NVIDIA", "rocm": "AMD", "xpu": "Intel"}
    kinds = sorted({makers[card.kind] for card in discrete(rig) if card.kind in makers})
    if len(kinds) > 1:
        cards = discrete(rig)
        yield MIXED_VENDORS.finding(cards, cards=listed(cards), vendors=" and ".join(kinds))


def mig(rig: Rig) -> Iterator[Finding]:
    """Cards cut into slices."""
    for card in nvidia(rig):
        if card.facts.mig:
            parts = [
                f"{part.facts.profile or 'one'} with {gib(part.total)} ({part.id})"
                if part.total
                else f"{part.facts.profile or 'one'} ({part.id})"
                for part in slices(card, rig)
            ]
            listed_parts = ", ".join(parts) or "none of them is known"
            yield MIG.finding([card], card=label(card), slices=listed_parts)


def virtual(rig: Rig) -> Iterator[Finding]:
    """Shares of cards; a whole card that is passed through is none."""
    for card in discrete(rig):
        if card.facts.virtual:
            yield VIRTUAL.finding([card], card=label(card))


def driver_models(rig: Rig) -> Iterator[Finding]:
    """Windows cards under different driver models."""
    cards = [card for card in nvidia(rig) if card.facts.driver_model]
    models = {str(card.facts.driver_model) for card in cards}
    if len(models) > 1 and "WDDM" in models:
        others = " and ".join(sorted(models - {"WDDM"}))
        tcc = "WSL2 shows no card at all beside one in TCC; " if "TCC" in models else ""
        yield DRIVER_MODELS.finding(cards, cards=listed(cards), others=others, tcc=tcc)


def integrated(rig: Rig) -> Iterator[Finding]:
    """Graphics of the processor listed beside a card."""
    for card in answering(rig):
        if card.facts.integrated and card.kind != "cuda" and discrete(rig):
            memory = f"its {gib(card.total)} are" if card.total else "what it shows is"
            yield INTEGRATED.finding([card], card=label(card), memory=memory)


def compute_mode(rig: Rig) -> Iterator[Finding]:
    """Modes that let one program or none compute."""
    for card in nvidia(rig):
        mode = (card.facts.compute_mode or "").replace("_", " ")
        advice = PROHIBITED if "prohibited" in mode.lower() else EXCLUSIVE
        if advice is PROHIBITED or "exclusive" in mode.lower():
            yield advice.finding([card], card=label(card), mode=mode)


def persistence(rig: Rig) -> Iterator[Finding]:
    """Cards whose driver unloads between uses. Windows and WSL keep it loaded."""
    cards = [
        card
        for card in nvidia(rig)
        if card.facts.persistence is False and card.display is False and not card.facts.processes
    ]
    if cards and not rig.host.wsl and not any(card.facts.driver_model for card in cards):
        yield PERSISTENCE.finding(cards, cards=listed(cards))


def external(rig: Rig) -> Iterator[Finding]:
    """Cards outside the case, behind a narrow link."""
    for card in discrete(rig):
        if not card.facts.external:
            continue
        width = card.pcie.width if card.pcie else None
        speed = card.facts.copy_to or pcie_rate(EXTERNAL_GENERATION, width or EXTERNAL_WIDTH)
        if speed:
            yield EXTERNAL.finding(
                [card],
                card=label(card),
                width=f", x{width}" if width else "",
                rate=speed / 1e9,
                prompt=prompt_seconds(speed),
                load=load_seconds(speed),
            )


def laptop(rig: Rig) -> Iterator[Finding]:
    """Cards soldered into a laptop."""
    for card in discrete(rig):
        if is_laptop(card, rig):
            watts = card.facts.power_limit or card.facts.power_max
            limit = f", limited to {watts:.0f} W" if watts else ""
            yield LAPTOP.finding([card], card=label(card), limit=limit)

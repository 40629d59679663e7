"""Rules on graphics memory: what the desktop, the system and other programs take of it.

Knows nothing of speed, but for what a small window into the memory costs. Memory in use is only
a finding where an amount was read.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator

from local_tp.core import Device, Rig
from local_tp.facts import Finding, Process
from local_tp.hardware.rules.advice import (
    GIB,
    MIB,
    Advice,
    answering,
    capability,
    discrete,
    gib,
    is_guest,
    label,
    listed,
    nvidia,
    slices,
    sold_as,
    under_wddm,
)

SMALL_WINDOW = 256 * MIB
FULL_PERCENT = 90
_SHARE_TOLD = re.compile(r"(\S+): (\d{1,3})% of its memory is in use")
# GeForce 20 and older have no resizable window; earlier Radeon cards are not used for models.
RESIZABLE_FROM = (8, 6)
DESKTOP_FROM = 100 * MIB
PROGRAM_FROM = 256 * MIB
UNNAMED_FROM = 512 * MIB
HEAVY_SHARE = 0.25
WSL_HIDDEN = 1.3 * GIB  # measured as 1.31 GiB on one card
ECC_SHARE = 1 / 16  # of GDDR5 and GDDR6; GDDR7 and HBM keep the code beside the data
ECC_COSTLY = frozenset({(6, 1), (7, 5), (8, 6), (8, 9)})
ECC_VISIBLE = 0.03
DESKTOP = frozenset(
    {
        "xorg", "xwayland", "gnome-shell", "kwin_wayland", "kwin_x11", "plasmashell", "mutter",
        "sway", "hyprland", "weston", "cinnamon", "xfwm4", "compiz", "sddm", "gdm", "cosmic-comp",
        "budgie-wm", "dwm.exe", "explorer.exe", "csrss.exe", "shellexperiencehost.exe",
        "searchhost.exe", "startmenuexperiencehost.exe", "lockapp.exe", "textinputhost.exe",
    }
)  # fmt: skip

REBAR = Advice(
    "resizable-bar-off",
    "info",
    "{card}: the processor sees its {total} through a window of {window}",
    "loading and copies through the window are somewhat slower; with several cards peer-to-peer "
    "needs the whole memory visible and stays off",
    "switch on 'Above 4G Decoding' and 'Resizable BAR' ('Smart Access Memory') in the BIOS, with "
    "CSM off; where it is on already, update the BIOS and the card's firmware",
)
DISPLAY = Advice(
    "display-on-card",
    "info",
    "{card} drives the desktop, which holds {taken}{largest}",
    "{taken} less for the model and its context, and each window that opens takes more",
    "plug the monitor into the processor's own graphics or into the weakest card, or close the "
    "desktop while the model runs; local_tp keeps a larger reserve on this card",
)
IN_USE = Advice(
    "memory-in-use",
    "info",
    "{card}: {taken} of {total} taken by {who}",
    "{taken} less for the model and its context",
    "close {who} before you load a model; `nvidia-smi` or `rocm-smi --showpids` lists what is "
    "running",
)
NEARLY_FULL = Advice(
    "memory-nearly-full",
    "warning",
    "{card}: {percent}% of its memory is in use; how much it has is not known",
    "{left}% of its memory is left for a model and its context",
    "close what is running there (`rocm-smi --showpids` lists it), then look again with "
    "`rocm-smi --showmeminfo vram`, which tells bytes",
)
WDDM = Advice(
    "wddm-spill",
    "info",
    "{cards}: Windows' driver model (WDDM) lets memory spill into the PC's RAM when full",
    "a model that does not quite fit is not refused but runs at PCIe speed, often at half its "
    "speed or less; Windows also keeps part of the memory for itself",
    "in the NVIDIA control panel set 'CUDA - Sysmem Fallback Policy' to 'Prefer No Sysmem "
    "Fallback', and leave the reserve in local_tp as it is",
)
WSL = Advice(
    "wsl-hidden-memory",
    "info",
    "{cards} under WSL2: Windows takes about {hidden} of each card that no reading shows",
    "about {all_hidden} less for the model and its context than the free memory suggests",
    "leave the larger reserve in the plan; if you need the memory, start Linux itself instead of "
    "Windows",
)
ECC = Advice(
    "ecc-takes-memory",
    "info",
    "{card}: error correction (ECC) is on, and {total} remain usable",
    "about {lost} of memory and some bandwidth, hence decode speed, go to the correction",
    "`sudo nvidia-smi -e 0` and a restart free it; leave it on if a rare wrong bit matters more",
)


def resizable_bar(rig: Rig) -> Iterator[Finding]:
    """A 256 MiB window on a card that could show all. A guest sees one whatever the host has."""
    cards = discrete(rig)
    for card in cards:
        window, row = card.facts.bar1_total, sold_as(card)
        total = card.total or (row and (row.memory or row.memory_least)) or 0
        if window is None or window > SMALL_WINDOW or total <= 4 * window or is_guest(rig):
            continue
        version = capability(card)
        resizable = card.kind in ("rocm", "xpu") or (
            version is not None and version >= RESIZABLE_FROM
        )
        if resizable and not card.facts.virtual and not rig.host.wsl:
            yield REBAR.finding(
                [card],
                "warning" if len(cards) > 1 else "info",
                card=label(card),
                total=gib(total) if card.total or (row and row.memory) else f"{gib(total)} or more",
                window=gib(window),
            )


def display(rig: Rig) -> Iterator[Finding]:
    """The desktop's share. Server cards claim a display too; without memory in use it is none."""
    for card in discrete(rig):
        named = _held(p for p in card.facts.processes if _is_desktop(p.name))
        others = sum(p.used or 0 for p in card.facts.processes if _is_program(p))
        held = max(sum(named.values()), (card.facts.used or 0) - others)
        if card.display is not True or held < DESKTOP_FROM:
            continue
        first = max(named, key=lambda name: named[name], default=None)
        yield DISPLAY.finding(
            [card],
            card=label(card),
            taken=gib(held),
            largest=f", {first} among others" if first else "",
        )


def programs(rig: Rig) -> Iterator[Finding]:
    """What other programs hold, by name where the driver tells it."""
    for card in answering(rig):
        if card.facts.integrated or slices(card, rig):
            continue
        named = _held(p for p in card.facts.processes if _is_program(p))
        taken = sum(named.values())
        who = ", ".join(f"{name or 'a program'} ({gib(used)})" for name, used in named.items())
        if not named:
            taken, who = _unexplained(card), "programs or a desktop that the reading does not name"
            if card.display is True or taken < UNNAMED_FROM:
                continue
        row = sold_as(card)
        total = card.total or (row and row.memory) or 0
        heavy = total > 0 and taken >= HEAVY_SHARE * total
        yield IN_USE.finding(
            [card],
            "warning" if heavy else "info",
            card=label(card),
            taken=gib(taken),
            total=gib(total) if total else "an unknown amount",
            who=who,
        )


def nearly_full(rig: Rig) -> Iterator[Finding]:
    """Cards whose memory in use is told in percent alone, by a line of a pasted text."""
    cards = {card.id: card for card in discrete(rig)}
    for match in filter(None, map(_SHARE_TOLD.match, rig.unknown)):
        card, percent = cards.get(match[1]), int(match[2])
        if card and not card.total and percent >= FULL_PERCENT:
            yield NEARLY_FULL.finding(
                [card], card=label(card), percent=percent, left=max(0, 100 - percent)
            )


def wddm(rig: Rig) -> Iterator[Finding]:
    """Windows pages graphics memory out rather than refuse it."""
    cards = [card for card in nvidia(rig) if under_wddm(card, rig)]
    if cards and not rig.host.wsl:
        yield WDDM.finding(cards, cards=listed(cards))


def wsl(rig: Rig) -> Iterator[Finding]:
    """Memory that Windows takes below WSL2."""
    cards = nvidia(rig)
    if rig.host.wsl and cards:
        yield WSL.finding(
            cards,
            cards=listed(cards),
            hidden=gib(WSL_HIDDEN),
            all_hidden=gib(WSL_HIDDEN * len(cards)),
        )


def ecc_takes_memory(rig: Rig) -> Iterator[Finding]:
    """Error correction that is paid for in memory, on cards where it may be switched off."""
    for card in nvidia(rig):
        if card.facts.ecc is not True or capability(card) not in ECC_COSTLY or card.facts.virtual:
            continue
        row = sold_as(card)
        sold = row.memory if row and row.memory else card.total / (1 - ECC_SHARE)
        lost = sold - card.total
        if lost >= ECC_VISIBLE * card.total:
            yield ECC.finding([card], card=label(card), total=gib(card.total), lost=gib(lost))


def _held(processes: Iterable[Process]) -> Counter[str | None]:
    """Bytes by program name: several processes of one name count together."""
    held: Counter[str | None] = Counter()
    for process in processes:
        held[process.name] += process.used or 0
    return held


def _is_desktop(name: str | None) -> bool:
    return name is not None and name.lower() in DESKTOP


def _is_program(process: Process) -> bool:
    return (process.used or 0) >= PROGRAM_FROM and not _is_desktop(process.name)


def _unexplained(card: Device) -> int:
    """Memory in use beyond what named programs hold."""
    explained = sum(process.used or 0 for process in card.facts.processes)
    return max(0, (card.facts.used or 0) - explained)

"""Rules on versions: the driver, torch, and the cards that torch was built for.

Knows nothing of how versions were found. Where torch is not known only a driver too old for
every torch of today is a finding; where its list of architectures is not, its CUDA stands for it.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from local_tp.core import Device, Rig
from local_tp.facts import Finding
from local_tp.hardware.rules.advice import Advice, capability, label, listed, nvidia

# The oldest driver for programs built with each CUDA, on Linux; Windows numbers are within two.
OLDEST_DRIVER = {11: 450, 12: 525, 13: 580}
OLDEST_ANY = OLDEST_DRIVER[12]
# CUDA 13 compiles for nothing older, and driver 580 is the last for cards before it.
CUDA_13_FROM = (7, 5)
# What torch's own wheels are built for, by the CUDA and the release of torch from which they are:
# the release matrix of PyTorch (RELEASE.md). CUDA 12.8 wheels left cards before 7.5 out in 2.7,
# held 7.0 from 2.8 to 2.10, and never 5.0 to 6.1, which 12.6 keeps. Where the release is not known
# it is the most that any had, so that a card is never called unsupported on a guess. Neither older
# CUDAs nor cards before 5.0 are judged: the driver that such a card needs is too old anyway.
_TURING_ON = ("sm_75", "sm_80", "sm_86", "sm_90", "sm_100", "sm_120")
WHEELS: tuple[tuple[tuple[int, int], tuple[int, int], tuple[str, ...]], ...] = (
    ((11, 0), (0, 0), ("sm_50", "sm_60", "sm_70", "sm_75", "sm_80", "sm_86", "sm_90")),
    ((12, 8), (0, 0), _TURING_ON),
    ((12, 8), (2, 8), ("sm_70", *_TURING_ON)),
    ((12, 8), (2, 11), _TURING_ON),
    ((13, 0), (0, 0), ("sm_75", "sm_80", "sm_86", "sm_90", "sm_100", "sm_110", "sm_120")),
)
OLD_WHEEL = "cu126"  # the newest whose wheels hold every card from 5.0 to 9.0
_ARCHITECTURE = re.compile(r"(sm|compute)_(\d+)(\d)([af]?)")

DRIVER_OLD = Advice(
    "driver-too-old",
    "error",
    "NVIDIA driver {driver}; torch {torch} is built with CUDA {cuda} and needs {needed} or newer",
    "torch finds no card and everything runs on the processor, or not at all",
    "update the driver to {needed} or newer, or install a torch built with CUDA {older}",
)
DRIVER_ANCIENT = Advice(
    "driver-too-old",
    "warning",
    "NVIDIA driver {driver}; torch is built with CUDA 12 or 13 today and needs {needed} or newer",
    "no current torch can use the cards",
    "update the driver to the newest that supports the card; if that is older than {needed}, the "
    "card itself is too old for a current torch",
)
NO_KERNELS = Advice(
    "torch-lacks-architecture",
    "error",
    "{cards}: torch {torch} was built for {built}, not for {wanted}",
    "work on the card ends with 'no kernel image is available'",
    "install a torch whose build names {wanted}: newer cards need a newer CUDA build, old ones an "
    "older torch",
)
WHEEL_LACKS = Advice(
    "torch-lacks-architecture",
    "error",
    "{cards}: torch {torch} is built with CUDA {cuda}, whose builds hold {least} to {most}; the "
    "card is {wanted}",
    "work on the card ends with 'no kernel image is available'",
    "install a torch for this card, which needs {needed}: `pip install torch --index-url "
    "https://download.pytorch.org/whl/{index}`",
)
OLD_CARD = Advice(
    "card-before-cuda-13",
    "info",
    "{cards}: compute capability {version}; builds for CUDA 13 begin at 7.5",
    "a torch for CUDA 13 finds the card and then ends with 'no kernel image is available'",
    "install a torch built for CUDA 12.6 (`pip install torch --index-url "
    "https://download.pytorch.org/whl/cu126`; wheels for 12.8 leave most of these cards out), and "
    "stay with driver 580 or older, the last for this card",
)
CPU_ONLY = Advice(
    "torch-without-cuda",
    "error",
    "torch {torch} is built for the processor only, beside {cards}",
    "the cards stay idle, and a model runs at the speed of the PC's memory",
    "install a CUDA build: `pip install torch --index-url https://download.pytorch.org/whl/cu130` "
    "for driver 580 or newer, cu126 in its place for 525 or newer",
)


def driver_age(rig: Rig) -> Iterator[Finding]:
    """A driver older than the installed torch, or any torch of today, can use."""
    text = rig.software.driver or rig.driver
    driver, cuda = _major(text), _major(rig.software.torch_cuda)
    cards = nvidia(rig)
    if driver is None or not cards or (rig.host.wsl and driver < 100):
        return
    needed = OLDEST_DRIVER.get(cuda or 0)
    if needed and driver < needed:
        older = max((c for c, least in OLDEST_DRIVER.items() if driver >= least), default=None)
        yield DRIVER_OLD.finding(
            cards,
            driver=text,
            torch=rig.software.torch or "as installed",
            cuda=rig.software.torch_cuda,
            needed=needed,
            older=f"{older}" if older else "11 (none fits this driver)",
        )
    elif needed is None and driver < OLDEST_ANY:
        yield DRIVER_ANCIENT.finding(cards, driver=text, needed=OLDEST_ANY)


def no_kernels(rig: Rig) -> Iterator[Finding]:
    """Cards that the installed torch has no machine code for."""
    built = rig.software.torch_architectures
    if not built:
        yield from _wheel_lacks(rig)
    for version, cards in _unserved(rig, built).items():
        yield NO_KERNELS.finding(
            cards,
            cards=listed(cards),
            torch=rig.software.torch or "as installed",
            built=", ".join(built),
            wanted=_machine_code(version),
        )
    gfx = [name.partition(":")[0] for name in built if name.startswith("gfx")]
    for card in rig.devices:
        chip = card.facts.architecture or ""
        if card.kind == "rocm" and gfx and chip.startswith("gfx") and chip not in gfx:
            if card.facts.integrated or card.facts.lost:
                continue
            yield NO_KERNELS.finding(
                [card],
                cards=label(card),
                torch=rig.software.torch or "as installed",
                built=", ".join(gfx),
                wanted=chip,
            )


def old_card(rig: Rig) -> Iterator[Finding]:
    """Cards that the CUDA of today left behind. Where torch's build is known it decides."""
    if rig.software.torch_architectures or _wheel(rig):
        return
    for card in nvidia(rig):
        version = capability(card)
        if version and version < CUDA_13_FROM:
            text = "{}.{}".format(*version)
            yield OLD_CARD.finding([card], cards=label(card), version=text)


def cpu_only(rig: Rig) -> Iterator[Finding]:
    """A torch for the processor on a machine with NVIDIA cards."""
    torch, cards = rig.software.torch or "", nvidia(rig)
    if cards and torch.endswith("+cpu"):
        yield CPU_ONLY.finding(cards, torch=torch, cards=listed(cards))


def _wheel_lacks(rig: Rig) -> Iterator[Finding]:
    """Cards outside what torch's own builds with this CUDA hold."""
    wheel = _wheel(rig)
    for version, cards in _unserved(rig, wheel).items():
        fitting = [cuda for cuda, _, names in WHEELS if any(_runs(name, version) for name in names)]
        if not fitting:
            continue
        newer = fitting[0] > _cuda(rig)
        yield WHEEL_LACKS.finding(
            cards,
            cards=listed(cards),
            torch=rig.software.torch or "as installed",
            cuda=rig.software.torch_cuda,
            least=wheel[0],
            most=wheel[-1],
            wanted=_machine_code(version),
            needed="cu{}{} or newer".format(*fitting[0]) if newer else OLD_WHEEL,
            index="cu{}{}".format(*fitting[0]) if newer else OLD_WHEEL,
        )


def _unserved(rig: Rig, built: Sequence[str]) -> dict[tuple[int, int], list[Device]]:
    """NVIDIA cards that none of the builds run on, by compute capability."""
    names = [name for name in built if _ARCHITECTURE.fullmatch(name)]
    missing: dict[tuple[int, int], list[Device]] = {}
    for card in nvidia(rig):
        version = capability(card)
        if names and version and not any(_runs(name, version) for name in names):
            missing.setdefault(version, []).append(card)
    return missing


def _wheel(rig: Rig) -> tuple[str, ...]:
    """What torch's own builds of this release and CUDA hold; empty where that is not known."""
    cuda, release = _cuda(rig), _version(rig.software.torch)
    newest = max((since for since, _, _ in WHEELS if cuda >= since), default=None)
    rows = [(first, names) for since, first, names in WHEELS if since == newest]
    if release is None:
        return max((names for _, names in rows), key=len, default=())
    return next((names for first, names in reversed(rows) if release >= first), ())


def _cuda(rig: Rig) -> tuple[int, int]:
    """The CUDA that torch was built with, (0, 0) where it is not known or is ROCm's version."""
    if "rocm" in (rig.software.torch or ""):
        return 0, 0
    return _version(rig.software.torch_cuda) or (0, 0)


def _version(text: str | None) -> tuple[int, int] | None:
    match = re.match(r"(\d+)\.(\d+)", text or "")
    return (int(match[1]), int(match[2])) if match else None


def _machine_code(version: tuple[int, int]) -> str:
    return "sm_{}{}".format(*version)


def _runs(name: str, card: tuple[int, int]) -> bool:
    """Whether code of a build runs on a card.

    Machine code (sm) runs within its major number on the same or a later minor one; the letters a
    and f bind it closer. Intermediate code (compute) is translated for any later card.
    """
    match = _ARCHITECTURE.fullmatch(name)
    if match is None:
        return False
    kind, major, minor, bound = match.groups()
    built = (int(major), int(minor))
    if bound == "a":
        return built == card
    if kind == "compute" and not bound:
        return built <= card
    return built[0] == card[0] and built[1] <= card[1]


def _major(version: str | None) -> int | None:
    match = re.match(r"\d+", version or "")
    return int(match[0]) if match else None

"""Rules on a driver that does not answer: why, and what to do.

Knows nothing of a driver that works. Lines that a probe or a pasted text left in `Rig.unknown` say
more than the fault's own words, and stand as evidence where they are there.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from local_tp.core import Rig
from local_tp.facts import DriverFault, Finding
from local_tp.hardware.rules.advice import Advice, discrete, label, listed, nvidia

# What programs print when NVIDIA's driver does not answer, and what is then the matter.
_DRIVER_WORDS: dict[DriverFault, re.Pattern[str]] = {
    "mismatch": re.compile(
        r"driver/library version mismatch|lib_rm_version_mismatch|older one is still loaded", re.I
    ),
    "not-running": re.compile(
        r"couldn't communicate with the nvidia driver|driver not loaded"
        r"|driver is installed but not loaded|driver is not running",
        re.I,
    ),
    "library-missing": re.compile(
        r"nvml library was not found|nvml shared library not found|libnvidia-ml[^\n]*not found"
        r"|nvidia-smi: it was not found",
        re.I,
    ),
    "no-permission": re.compile(r"this user may not open"),
    "unknown-error": re.compile(r"nvml does not start|tools: they do not start", re.I),
    "amdgpu-missing": re.compile(r"amdgpu is not loaded"),
}
_OF_AMD = re.compile(r"AMD's tools:")
DRIVER: dict[DriverFault, Advice] = {
    "not-running": Advice(
        "driver-not-running",
        "error",
        "{evidence}",
        "no NVIDIA card can be used",
        "restart the PC; if it stays so reinstall the driver (after a kernel update its module "
        "must be built anew; with Secure Boot it must be signed), then run `nvidia-smi`",
    ),
    "mismatch": Advice(
        "driver-mismatch",
        "error",
        "{evidence}",
        "no program can use the NVIDIA cards until both have one version",
        "restart the PC: the driver was updated while the old one stayed loaded; in a container "
        "mount the host's libraries",
    ),
    "library-missing": Advice(
        "driver-library-missing",
        "error",
        "{evidence}",
        "the NVIDIA cards cannot be read, so nothing can be planned on them",
        "install the driver package that holds libnvidia-ml.so.1, or start the container with the "
        "NVIDIA runtime and the `utility` capability",
    ),
    "no-permission": Advice(
        "driver-no-permission",
        "error",
        "{evidence}",
        "the driver is there, but no program of this user can use the cards",
        "let this user read and write /dev/nvidia* (`ls -l /dev/nvidia*` says who may); start a "
        "container with `--gpus all`; on Windows try a terminal of the administrator's",
    ),
    "unknown-error": Advice(
        "driver-unknown-error",
        "error",
        "{evidence}",
        "no program can use the cards",
        "in a container: restart it, for its access to the cards ends when the host reloads its "
        "services; under WSL2: update Windows' driver and run `wsl --update`; else restart the PC "
        "and look for NVRM or amdgpu lines in `dmesg`",
    ),
    "amdgpu-missing": Advice(
        "driver-amdgpu-missing",
        "error",
        "{evidence}",
        "no AMD card can be used",
        "`sudo modprobe amdgpu` and read `dmesg`; if the card is newer than the kernel, install a "
        "newer kernel or AMD's amdgpu-dkms; look for `nomodeset` or a blacklist, and in a "
        "container pass /dev/kfd and /dev/dri on",
    ),
}
NO_PERMISSION_AMD = Advice(
    "driver-no-permission",
    "error",
    "{evidence}",
    "the driver is there, but no program of this user can use the AMD cards",
    "`sudo usermod -aG render,video USER`, then log in again; a container needs /dev/kfd, /dev/dri "
    "and `--group-add render`",
)
NO_CARD = Advice(
    "driver-sees-no-card",
    "error",
    "the NVIDIA driver runs and finds no card it can use{listed}",
    "no NVIDIA card can be used",
    "see whether `lspci` lists the card: if not, reseat it and its power cables; if it does, read "
    "`dmesg` for NVRM lines: RTX 50 and RTX PRO cards need the open kernel modules (nvidia-open), "
    "and a card handed to virtual machines (vfio-pci) is not the driver's",
)
# Kernel drivers that hold a card and do not let it compute: which they are, and what to do.
_GIVE_BACK = (
    "take its number out of vfio-pci.ids (kernel options, /etc/modprobe.d) or out of the virtual "
    "machine's devices, then restart; leave it so if a virtual machine is to have the card"
)
NOT_COMPUTING: dict[str, tuple[str, str]] = {
    "nouveau": (
        "the open driver for the display, which cannot compute",
        "install NVIDIA's driver, which keeps nouveau from loading, and restart (with Secure Boot "
        "its module must be signed); if it is installed, look for what blocks it in `dmesg`",
    ),
    "radeon": (
        "the driver of older cards, which cannot compute",
        "start Linux with radeon.cik_support=0 amdgpu.cik_support=1, if amdgpu knows the card",
    ),
    "vfio-pci": ("which keeps it for virtual machines", _GIVE_BACK),
    "pci-stub": ("which keeps it for virtual machines", _GIVE_BACK),
}
HELD = Advice(
    "driver-cannot-compute",
    "warning",
    "{card} is held by {driver}, {what}",
    "no program on this system can compute on this card",
    "{remedy}",
)
DRIVER_SAID: dict[DriverFault, str] = {
    "not-running": "the NVIDIA driver does not answer: it is not loaded, or not for this kernel",
    "mismatch": "the NVIDIA driver's library and its loaded module are of different versions",
    "library-missing": "the NVIDIA driver's library NVML was not found",
    "no-permission": "this user may not open the cards' device files",
    "unknown-error": "the driver does not start, and reports an unknown error",
    "amdgpu-missing": "AMD cards have no driver: the kernel module amdgpu is not loaded",
}


def driver(rig: Rig) -> Iterator[Finding]:
    """A driver that does not answer, or two versions of it at once."""
    library, module = rig.software.driver or rig.driver, rig.software.cuda_module
    told_apart = rig.software.driver_fault == "mismatch"
    if library and module and (told_apart or not _same(library, module)):
        evidence = f"the driver's library is {library} and its loaded module {module}"
        yield DRIVER["mismatch"].finding([], evidence=evidence)
        return
    for fault, words in _DRIVER_WORDS.items():
        told = () if nvidia(rig) else rig.unknown  # a card that answers has a driver
        line = next((text for text in told if words.search(text)), None)
        if line is not None or rig.software.driver_fault == fault:
            said = " ".join(line.split()) if line else DRIVER_SAID[fault]
            of_amd = fault == "no-permission" and _OF_AMD.match(said)
            yield (NO_PERMISSION_AMD if of_amd else DRIVER[fault]).finding([], evidence=said)
            return


def _same(a: str, b: str) -> bool:
    """Whether two versions agree as far as both go, since NVML leaves the last number out."""
    return all(x == y for x, y in zip(a.split("."), b.split("."), strict=False))


def held(rig: Rig) -> Iterator[Finding]:
    """Cards that another driver holds than the one that computes."""
    for card in discrete(rig):
        driver = card.facts.driver_in_use
        if driver in NOT_COMPUTING:
            what, remedy = NOT_COMPUTING[driver]
            yield HELD.finding([card], card=label(card), driver=driver, what=what, remedy=remedy)


def no_card(rig: Rig) -> Iterator[Finding]:
    """A driver that runs and names no card."""
    if any("no devices were found" in line for line in rig.unknown):
        cards = nvidia(rig)
        yield NO_CARD.finding(cards, listed=f", beside {listed(cards)}" if cards else "")

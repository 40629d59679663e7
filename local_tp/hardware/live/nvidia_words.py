"""NVML's numbers as words: errors, architectures, topology, peer-to-peer states, clocks.

Knows nothing of cards or of calling NVML. The words are those that `nvidia-smi` prints, so that
a machine reads the same when it is probed and when its owner pastes that program's output.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from types import MappingProxyType

from local_tp.facts import DriverFault, DriverModel, P2pStatus, Path

ERRORS: Mapping[int, str] = MappingProxyType(
    {
        1: "NVML was not started",
        2: "the driver does not accept the question",
        3: "not supported by this card or driver",
        4: "no permission: run once as administrator to see it",
        5: "NVML was started twice",
        6: "not found",
        7: "the answer did not fit",
        8: "an extra power cable of the card is not connected",
        9: "the driver is not loaded",
        10: "the driver took too long",
        11: "the card's interrupts do not arrive",
        12: "the NVML library was not found",
        13: "this driver does not have the call yet",
        14: "the card's own configuration memory is corrupted",
        15: "GPU is lost: it has fallen off the bus",
        16: "GPU requires a reset",
        17: "the operating system has blocked the request",
        18: "driver and library are of different versions",
        19: "the card is in use",
        20: "the driver ran out of memory",
        21: "the driver has no data",
        22: "ECC is not available inside a virtual GPU",
        23: "the driver ran out of resources",
        24: "the frequency is not supported",
        25: "this driver has another version of the call",
        26: "the driver no longer answers this",
        27: "the driver is not ready",
        28: "no card was found",
        29: "the card is in a state that does not allow it",
        30: "this kind of reset is not supported",
        999: "the driver reports an unknown error",
    }
)

# Errors that say of the whole driver why no card can be read.
FAULTS: Mapping[int, DriverFault] = MappingProxyType(
    {
        4: "no-permission",
        9: "not-running",
        12: "library-missing",
        18: "mismatch",
        999: "unknown-error",
    }
)

ARCHITECTURES: Mapping[int, str] = MappingProxyType(
    {
        2: "kepler",
        3: "maxwell",
        4: "pascal",
        5: "volta",
        6: "turing",
        7: "ampere",
        8: "ada",
        9: "hopper",
        10: "blackwell",
        13: "rubin",
    }
)

PATHS: Mapping[int, Path] = MappingProxyType(
    {0: "internal", 10: "PIX", 20: "PXB", 30: "PHB", 40: "NODE", 50: "SYS"}
)

P2P_STATES: Mapping[int, P2pStatus] = MappingProxyType(
    {
        0: "ok",
        1: "chipset",
        2: "gpu",
        3: "topology",
        4: "disabled",
        5: "not-supported",
        6: "unknown",
    }
)

DRIVER_MODELS: Mapping[int, DriverModel] = MappingProxyType({0: "WDDM", 1: "TCC", 2: "MCDM"})

COMPUTE_MODES: Mapping[int, str] = MappingProxyType(
    {0: "Default", 1: "Exclusive_Thread", 2: "Prohibited", 3: "Exclusive_Process"}
)

# NVML counts versions of NVLink, half steps included, from 1.
NVLINK_GENERATIONS: Mapping[int, int] = MappingProxyType(
    {1: 1, 2: 2, 3: 2, 4: 3, 5: 3, 6: 4, 7: 5, 8: 6}
)

_CLOCK_REASONS: Mapping[int, str] = MappingProxyType(
    {
        0x001: "Idle",
        0x002: "Applications Clocks Setting",
        0x004: "SW Power Cap",
        0x008: "HW Slowdown",
        0x010: "Sync Boost",
        0x020: "SW Thermal Slowdown",
        0x040: "HW Thermal Slowdown",
        0x080: "HW Power Brake Slowdown",
        0x100: "Display Clock Setting",
        0x200: "Board Limit",
        0x400: "Reliability",
    }
)


def error_words(code: int) -> str:
    """What an NVML error code means to a person."""
    return ERRORS.get(code, f"the driver reports error {code}")


def fault_of(codes: Collection[int]) -> DriverFault | None:
    """What is wrong with a driver that answered with these errors and told of no card."""
    return next((fault for code, fault in FAULTS.items() if code in codes), None)


def clock_reasons(bits: int) -> tuple[str, ...]:
    """Why the clocks are what they are; bits that no driver documents yet keep their number."""
    known = tuple(word for bit, word in _CLOCK_REASONS.items() if bits & bit)
    rest = bits & ~sum(_CLOCK_REASONS)
    return (*known, f"reason {rest:#x}") if rest else known

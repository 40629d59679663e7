"""Torch's side of every measurement: which device a place is, and how long work on it takes.

Only imported by measuring child processes. A card is found by its PCI bus id or by its own
identifier, never by a number. Times include the end of the work, not only its start.
"""

from __future__ import annotations

import time
from collections.abc import Callable

import torch

from local_tp.errors import DeviceError
from local_tp.hardware.devices import SLICE, bus_id
from local_tp.hardware.measuring.readings import Place

SHORTEST = 2e-2  # seconds a timed batch lasts at least, many times what a clock or a call costs


def find(place: Place) -> torch.device:
    """The torch device of a place. Raises `DeviceError` where torch does not see it."""
    if place.kind == "cpu":
        return torch.device("cpu")
    if place.kind == "xpu":
        return _only_xpu(place)
    for index in range(torch.cuda.device_count()):
        card = torch.cuda.get_device_properties(index)
        slot = bus_id(
            f"{getattr(card, 'pci_domain_id', 0):x}:{getattr(card, 'pci_bus_id', -1) & 0xFF:02x}:"
            f"{getattr(card, 'pci_device_id', 0):02x}.0"
        )
        named = place.uuid is not None and str(getattr(card, "uuid", "")) in place.uuid
        if slot == place.id or named or _only_slice(place, slot):
            return torch.device("cuda", index)
    raise DeviceError(
        f"torch {torch.__version__} sees no card at {place.id}: install the torch build that fits "
        "the card and its driver, with `local-tp` started anew afterwards"
    )


def _only_slice(place: Place, slot: str | None) -> bool:
    """Whether the card in `slot` is shown as the one slice that this process may see."""
    home, is_slice, _ = place.id.partition(SLICE)
    return bool(is_slice) and slot == home and torch.cuda.device_count() == 1


def _only_xpu(place: Place) -> torch.device:
    """Torch tells no bus id of an Intel card, so that only a single one is beyond doubt."""
    count = torch.xpu.device_count()
    if count != 1:
        raise DeviceError(f"torch sees {count} Intel cards and cannot tell which is {place.id}")
    return torch.device("xpu", 0)


def finish(*devices: torch.device) -> None:
    """Wait until the devices have done all that they were given."""
    for device in devices:
        if device.type == "cuda":
            torch.cuda.synchronize(device)
        elif device.type == "xpu":
            torch.xpu.synchronize(device)


def fastest(
    work: Callable[[], object], *devices: torch.device, batches: int = 5, lasting: float = SHORTEST
) -> float:
    """Seconds that `work` takes: the best of several batches, each of `lasting` seconds or more.

    The best, because other programs can only make it slower. The first call is not timed: it
    touches memory and compiles.
    """
    work()
    finish(*devices)
    best = _batch(work, 1, devices)
    calls = max(1, int(lasting / max(best, 1e-7)))
    return min(_batch(work, calls, devices) for _ in range(batches))


def _batch(work: Callable[[], object], calls: int, devices: tuple[torch.device, ...]) -> float:
    started = time.perf_counter()
    for _ in range(calls):
        work()
    finish(*devices)
    return (time.perf_counter() - started) / calls

"""Intel graphics, cards and processors' own, as Linux shows them in `/sys`.

Knows nothing of Level Zero or SYCL: reading wakes no card. How full a card's memory is the kernel
does not tell, so all of it counts as free and `unknown` says so.
"""

from __future__ import annotations

from itertools import combinations
from pathlib import Path

from local_tp.core import Device, Link
from local_tp.facts import CardFacts, PairFacts, PcieReading
from local_tp.hardware.devices import RESERVE, RESERVE_WITH_DISPLAY
from local_tp.hardware.live import pci
from local_tp.hardware.live.amd import Found
from local_tp.hardware.live.linux_card import read_sensors

GIB = 1024**3
_DRIVERS = ("i915", "xe")
# Cards by PCI device number: name, architecture, and bytes where there is one size only.
_CARDS: dict[int, tuple[str, str, int | None]] = {
    0x5690: ("Intel Arc A770M", "alchemist", 16 * GIB),
    0x5691: ("Intel Arc A730M", "alchemist", 12 * GIB),
    0x5692: ("Intel Arc A550M", "alchemist", 8 * GIB),
    0x5693: ("Intel Arc A370M", "alchemist", 4 * GIB),
    0x5694: ("Intel Arc A350M", "alchemist", 4 * GIB),
    0x56A0: ("Intel Arc A770", "alchemist", None),
    0x56A1: ("Intel Arc A750", "alchemist", 8 * GIB),
    0x56A2: ("Intel Arc A580", "alchemist", 8 * GIB),
    0x56A5: ("Intel Arc A380", "alchemist", 6 * GIB),
    0x56A6: ("Intel Arc A310", "alchemist", 4 * GIB),
    0xE20B: ("Intel Arc B580", "battlemage", 12 * GIB),
    0xE20C: ("Intel Arc B570", "battlemage", 10 * GIB),
    0xE211: ("Intel Arc Pro B60", "battlemage", 24 * GIB),
    0xE212: ("Intel Arc Pro B50", "battlemage", 16 * GIB),
}
_MEMORY_BAR = 2  # the BAR through which the processor sees the card's memory


def read_intel(root: Path = Path("/")) -> Found:
    """The Intel graphics that a driver holds. `root` is where `/sys` is found."""
    functions = [f for f in pci.graphics(root) if f.vendor == pci.INTEL and f.driver in _DRIVERS]
    unknown = []
    devices = []
    for card in functions:
        device = _device(card, root)
        devices.append(device)
        if not device.facts.integrated:
            missing = "how much of its memory is in use" if device.total else "its memory"
            unknown.append(f"{card.slot}: the driver does not tell {missing}")
    links = tuple(
        Link(a.slot, b.slot, "host", facts=PairFacts(path=pci.path_between(a, b)))
        for a, b in combinations(functions, 2)
    )
    return Found(tuple(devices), links, tuple(unknown))


def _device(card: pci.Function, root: Path) -> Device:
    known = _CARDS.get(card.device)
    window = _memory_window(card)
    integrated = known is None and not _local_memory(card) and card.slot.startswith("0000:00:")
    total = 0 if integrated else _memory(card, window)
    display = pci.display(card)
    name = known[0] if known else pci.product_name(root, card)
    sensors = read_sensors(card.folder)
    most = pci.card_most(card)
    # A card whose switch is not seen, as in a guest, shows the link inside: 2.5 GT/s x1, always.
    inner = integrated or most == PcieReading(1, 1)
    clock, clock_max = _clocks(card)
    return Device(
        id=card.slot,
        kind="xpu",
        name=name or f"Intel graphics {card.device:04x}",
        total=total,
        free=total,
        reserve=min(total, RESERVE if display is False else RESERVE_WITH_DISPLAY),
        pcie=None if inner else pci.pcie(card),
        display=display,
        facts=CardFacts(
            vendor="intel",
            architecture=known[1] if known else None,
            bar1_total=None if integrated else window,
            pcie_card=None if inner else most,
            pcie_slot=None if integrated else pci.slot_above(card),
            link_errors=None if integrated else pci.link_errors(card),
            driver_in_use=card.driver,
            power_draw=sensors.draw,
            power_limit=sensors.limit,
            power_max=sensors.most,
            clock=clock,
            clock_max=clock_max,
            temperature=sensors.temperature,
            temperature_limit=sensors.critical,
            numa=pci.numa_node(card),
            integrated=integrated,
            external=pci.is_external(card),
            chipset=pci.hangs_off_chipset(card),
        ),
    )


def _memory(card: pci.Function, window: int | None) -> int:
    """Bytes on the card: the driver's word, the card's only size, or what a full BAR shows."""
    if local := _local_memory(card):
        return local
    known = _CARDS.get(card.device)
    if known and known[2]:
        return known[2]
    # Without Resizable BAR the window is 256 MiB, whatever the card has.
    return window if window and window >= GIB else 0


def _local_memory(card: pci.Function) -> int | None:
    for path in card.folder.glob("drm/card*/lmem_total_bytes"):
        return pci.read_number(path)
    return None


def _memory_window(card: pci.Function) -> int | None:
    """The size of the BAR that shows the card's memory, from lines of start, end and flags."""
    lines = (card.text("resource") or "").splitlines()
    if len(lines) <= _MEMORY_BAR:
        return None
    try:
        start, end, _ = (int(word, 16) for word in lines[_MEMORY_BAR].split())
    except ValueError:
        return None
    return end - start + 1 if end > start else None


def _clocks(card: pci.Function) -> tuple[int | None, int | None]:
    """Megahertz now and at most, by i915's files or by those of xe."""
    places = (
        ("drm/card*/gt_act_freq_mhz", "drm/card*/gt_RP0_freq_mhz"),
        ("tile0/gt0/freq0/act_freq", "tile0/gt0/freq0/rp0_freq"),
    )
    for now, most in places:
        found = [[pci.read_number(p) for p in card.folder.glob(name)] for name in (now, most)]
        if any(found):
            return (found[0] or [None])[0], (found[1] or [None])[0]
    return None, None

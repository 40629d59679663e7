"""Graphics cards and the bridges above them, as Linux lists the PCI bus in `/sys`.

Knows nothing of any vendor's driver. Nothing is asked of a card: the kernel's own files say where
it sits, what the slot above can do and whether a cable leads to it.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from local_tp.core import Pcie
from local_tp.facts import Path as PciPath
from local_tp.facts import PcieReading
from local_tp.hardware.devices import bus_id

NVIDIA, AMD, INTEL = 0x10DE, 0x1002, 0x8086
_AMD_PROCESSOR = 0x1022
_DISPLAY, _ACCELERATOR = 0x03, 0x12  # PCI base classes
_GENERATIONS = {2.5: 1, 5.0: 2, 8.0: 3, 16.0: 4, 32.0: 5, 64.0: 6}  # by GT/s
# Intel's cards carry a PCIe switch of their own; the kernel tells it from a slot only by number.
_INTEL_CARD_SWITCHES = frozenset({0x4FA0, 0x4FA1, 0x4FA4, 0xE2F0, 0xE2F1, 0xE2FF})
# The switches that AMD's chipsets (300 to 800 series) are, seen from the bus; X570's has another.
_AMD_CHIPSETS = range(0x43A0, 0x4400)
_X570_SWITCH = 0x57AD
_INTEL_CHIPSET_SLOTS = frozenset({"1b", "1c", "1d"})  # of root ports; the processor's are 01 and 06
_LINK_ERRORS = re.compile(r"^(?:RxErr|BadTLP|BadDLLP|Rollover|Timeout) (\d+)$", re.MULTILINE)
_NAME_TABLES = ("usr/share/hwdata/pci.ids", "usr/share/misc/pci.ids", "usr/share/pci.ids")


@dataclass(frozen=True, slots=True)
class Function:
    """One PCI function: its bus id, its folder, and what it is."""

    slot: str
    folder: Path
    vendor: int
    device: int
    base_class: int

    def text(self, name: str) -> str | None:
        """A file of its folder, None where it is absent or may not be read."""
        return read_text(self.folder / name)

    def number(self, name: str) -> int | None:
        return read_number(self.folder / name)

    @property
    def driver(self) -> str | None:
        """The kernel driver that holds it."""
        link = self.folder / "driver"
        return link.resolve().name if link.exists() else None


def graphics(root: Path) -> tuple[Function, ...]:
    """Every graphics function of the machine in bus order."""
    try:
        folders = sorted((root / "sys/bus/pci/devices").iterdir())
    except OSError:
        return ()
    found = [function for folder in folders if (function := read_function(folder.resolve()))]
    return tuple(f for f in found if f.base_class in (_DISPLAY, _ACCELERATOR))


def read_function(folder: Path) -> Function | None:
    """The function whose folder this is, None where it is no PCI function."""
    if (slot := bus_id(folder.name)) is None:
        return None
    numbers = [_hexadecimal(read_text(folder / name)) for name in ("vendor", "device", "class")]
    vendor, device, kind = (-1 if number is None else number for number in numbers)
    return Function(slot, folder, vendor, device, kind >> 16)


def bridges(function: Function) -> tuple[Function, ...]:
    """The bridges between a card and the processor, the nearest first.

    A switch that is soldered on the card belongs to the card, and is not among them.
    """
    return tuple(bridge for bridge in _above(function) if not _on_card(bridge, function))


def pcie(function: Function) -> Pcie:
    """The link between the card and its slot, as it is now and at most.

    Behind a switch of their own, cards show the link inside the card, which says nothing.
    """
    end = _outer_end(function)
    now, most = _reading(end, "current"), _reading(end, "max")
    slot = slot_above(function) or PcieReading()
    return Pcie(
        now.generation,
        now.width,
        _least(most.generation, slot.generation),
        _least(most.width, slot.width),
    )


def card_most(function: Function) -> PcieReading | None:
    """What the card could do in the best slot."""
    return _or_none(_reading(_outer_end(function), "max"))


def slot_above(function: Function) -> PcieReading | None:
    """What the slot that holds the card can do."""
    above = bridges(function)
    return _or_none(_reading(above[0], "max")) if above else None


def link_errors(function: Function) -> int | None:
    """Corrected errors since the start, counted at both ends of the link between card and slot.

    Errors that are merely advisory, which healthy cards report too, are none of the link's.
    """
    ends = (_outer_end(function), *bridges(function)[:1])
    texts = [text for end in ends if (text := end.text("aer_dev_correctable")) is not None]
    counts = [int(count) for text in texts for count in _LINK_ERRORS.findall(text)]
    return sum(counts) if texts else None


def is_external(function: Function) -> bool | None:
    """True behind Thunderbolt or USB4. OCuLink looks like any slot, so False is never said."""
    chain = (function, *_above(function))
    return True if any(f.text("removable") == "removable" for f in chain) else None


def hangs_off_chipset(function: Function) -> bool | None:
    """True where the way to the processor leads through the chipset, as far as numbers tell."""
    above = bridges(function)
    return True if any(map(_of_chipset, above)) else None


def numa_node(function: Function) -> int | None:
    node = function.number("numa_node")
    return None if node is None or node < 0 else node


def display(function: Function) -> bool | None:
    """Whether a monitor is connected to one of its outputs."""
    outputs = list(function.folder.glob("drm/card*/card*-*/status"))
    if not outputs:
        return False if (function.folder / "drm").is_dir() else None
    return any(read_text(output) == "connected" for output in outputs)


def path_between(a: Function, b: Function) -> PciPath:
    """The common ancestor of two cards, in the words of `nvidia-smi topo -m`."""
    a_up, b_up = [f.slot for f in bridges(a)], [f.slot for f in bridges(b)]
    if shared := [slot for slot in a_up if slot in b_up]:
        # A switch is two bridges: the port above it, and one below it for each card.
        near = max(a_up.index(shared[0]), b_up.index(shared[0])) <= 1
        return "PIX" if near else "PXB"
    if _host_bridge(a) == _host_bridge(b):
        return "PHB"
    return "NODE" if numa_node(a) == numa_node(b) else "SYS"


def product_name(root: Path, function: Function) -> str | None:
    """The card's name in the PCI table that most systems carry; it may name several models."""
    for table in _NAME_TABLES:
        if text := read_text(root / table):
            return _in_table(text.splitlines(), function)
    return None


def read_text(path: Path) -> str | None:
    try:
        return path.read_text(encoding="utf-8", errors="replace").strip()
    except OSError:
        return None


def read_number(path: Path) -> int | None:
    """A decimal number that is all of a file."""
    text = read_text(path)
    try:
        return None if text is None else int(text)
    except ValueError:
        return None


def _outer_end(function: Function) -> Function:
    """The function that meets the slot: the card's, or the upper port of the card's own switch."""
    inside = [bridge for bridge in _above(function) if _on_card(bridge, function)]
    return inside[-1] if inside else function


def _above(function: Function) -> Sequence[Function]:
    return [f for parent in function.folder.parents if (f := read_function(parent))]


def _on_card(bridge: Function, function: Function) -> bool:
    if function.vendor == INTEL:
        return bridge.vendor == INTEL and bridge.device in _INTEL_CARD_SWITCHES
    # AMD's processors have bridges of another vendor number than its cards.
    return function.vendor == bridge.vendor == AMD


def _of_chipset(bridge: Function) -> bool:
    if bridge.vendor == INTEL:
        bus, slot = bridge.slot.rsplit(".", 1)[0].rsplit(":", 2)[1:]
        return bus == "00" and slot in _INTEL_CHIPSET_SLOTS
    known = bridge.device in _AMD_CHIPSETS or bridge.device == _X570_SWITCH
    return bridge.vendor == _AMD_PROCESSOR and known


def _host_bridge(function: Function) -> str:
    roots = [parent.name for parent in function.folder.parents if parent.name.startswith("pci")]
    return roots[0] if roots else function.slot.partition(":")[0]


def _reading(function: Function, when: str) -> PcieReading:
    speed = (function.text(f"{when}_link_speed") or "").partition(" ")[0]
    width = function.number(f"{when}_link_width")
    return PcieReading(
        generation=_GENERATIONS.get(float(speed)) if speed.replace(".", "", 1).isdigit() else None,
        width=None if width is None or not 0 < width <= 32 else width,
    )


def _or_none(reading: PcieReading) -> PcieReading | None:
    return None if reading == PcieReading() else reading


def _least(a: int | None, b: int | None) -> int | None:
    known = [value for value in (a, b) if value is not None]
    return min(known, default=None)


def _hexadecimal(text: str | None) -> int | None:
    try:
        return None if text is None else int(text, 16)
    except ValueError:
        return None


def _in_table(lines: Sequence[str], function: Function) -> str | None:
    vendor, device = f"{function.vendor:04x}  ", f"\t{function.device:04x}  "
    inside = False
    for line in lines:
        if line.startswith(vendor):
            inside = True
        elif inside and line.startswith(device):
            name = line[len(device) :].strip()
            start = name.find("[")
            return name[start + 1 : -1] if start >= 0 and name.endswith("]") else name
        elif inside and line and line[0] not in "\t#":
            return None
    return None

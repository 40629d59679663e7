"""One look at this machine: the `Rig` that every plan starts from.

Knows nothing of models and never loads torch, so no card holds a CUDA context afterwards and no
process stays behind. It does not raise: what cannot be learned is said in `Rig.unknown`.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path

from local_tp.core import Device, Rig
from local_tp.facts import DriverFault, PcieReading
from local_tp.hardware.catalog import with_catalog
from local_tp.hardware.devices import in_slot_order, why_left_out, with_hidden
from local_tp.hardware.live import pci
from local_tp.hardware.live.amd import Found, read_amd, without_driver
from local_tp.hardware.live.host import read_host
from local_tp.hardware.live.host_facts import attempt
from local_tp.hardware.live.intel import read_intel
from local_tp.hardware.live.nvidia import SECONDS, Nvidia, read_nvidia
from local_tp.hardware.live.software import read_software

_ADAPTERS = {
    0x1234: "a virtual display adapter (QEMU)",
    0x1B36: "a virtual display adapter (QXL)",
    0x1AF4: "a virtual display adapter (virtio)",
    0x15AD: "a virtual display adapter (VMware)",
    0x80EE: "a virtual display adapter (VirtualBox)",
    0x1414: "a virtual display adapter (Hyper-V)",
    0x1A03: "the display chip of the server's remote console",
    0x102B: "the display chip of the server's remote console",
}
_MAKERS = {pci.NVIDIA: "NVIDIA", pci.AMD: "AMD", pci.INTEL: "Intel"}
_DRIVERS = {pci.NVIDIA: "NVIDIA's driver", pci.AMD: "amdgpu", pci.INTEL: "i915 or xe"}


def probe(root: Path = Path("/"), nvidia_seconds: float = SECONDS) -> Rig:
    """The machine as it is now: cards in PCI bus order, then the processor.

    Takes well under a second where the drivers answer, most of it for the memory bandwidth, and
    `nvidia_seconds` longer where NVIDIA's does not. `root` is where `/proc` and `/sys` are found.
    """
    unknown: list[str] = []
    host = read_host(root)
    nvidia = read_nvidia(root, nvidia_seconds)
    amd = attempt("AMD cards", lambda: read_amd(root), Found(), unknown)
    intel = attempt("Intel cards", lambda: read_intel(root), Found(), unknown)
    functions = {function.slot: function for function in pci.graphics(root)}
    cards = [_placed(card, functions.get(card.id)) for card in nvidia.devices]
    found = sorted([*cards, *amd.devices, *intel.devices, host.cpu], key=in_slot_order)
    devices = [with_hidden(with_catalog(device), host.facts.wsl) for device in found]
    left_out = [(d, why) for d in devices if (why := why_left_out(d))]
    unknown += [f"{d.id} ({d.name}): left out of plans: {why}" for d, why in left_out]
    unknown += _undriven(functions.values(), devices)
    if sys.platform in ("win32", "darwin"):
        unknown.append("AMD and Intel graphics: read only on Linux")
    return Rig(
        devices=tuple(devices),
        links=(*nvidia.links, *amd.links, *intel.links),
        ram=host.cpu.total,
        available_ram=host.cpu.free,
        cores=host.cores,
        os=host.os,
        driver=nvidia.driver,
        unknown=(*nvidia.unknown, *amd.unknown, *intel.unknown, *host.unknown, *unknown),
        host=host.facts,
        software=replace(
            read_software(nvidia, root), driver_fault=_fault(nvidia, functions.values())
        ),
    )


def _fault(nvidia: Nvidia, functions: Iterable[pci.Function]) -> DriverFault | None:
    """Why cards that are on the bus have no driver that answers for them."""
    if nvidia.fault:
        return nvidia.fault
    idle = any(f.vendor == pci.NVIDIA and f.driver in (None, "nouveau") for f in functions)
    if idle and not nvidia.devices:
        return "not-running"
    return "amdgpu-missing" if without_driver(functions) else None


def _placed(card: Device, function: pci.Function | None) -> Device:
    """An NVIDIA card with what only the bus knows of it: the slot above and the cable to it."""
    if function is None:
        return card
    facts = card.facts
    generation = facts.pcie_card.generation if facts.pcie_card else None
    own = pci.card_most(function) or PcieReading()
    known = PcieReading(generation or own.generation, own.width)
    return replace(
        card,
        facts=replace(
            facts,
            pcie_card=None if known == PcieReading() else known,
            pcie_slot=pci.slot_above(function),
            link_errors=pci.link_errors(function),
            driver_in_use=function.driver,
            numa=pci.numa_node(function) if facts.numa is None else facts.numa,
            external=pci.is_external(function),
            chipset=pci.hangs_off_chipset(function),
        ),
    )


def _undriven(functions: Iterable[pci.Function], devices: Iterable[Device]) -> list[str]:
    """A line for each graphics function on the bus that no driver made a device of."""
    read = {device.id for device in devices}
    lines = []
    for function in functions:
        if function.slot in read:
            continue
        maker, driver = _MAKERS.get(function.vendor), function.driver
        if function.vendor in _ADAPTERS:
            lines.append(f"{function.slot}: {_ADAPTERS[function.vendor]}: no card to compute on")
        elif driver == "vfio-pci":
            lines.append(f"{function.slot}: handed to virtual machines (vfio-pci): left out")
        elif maker and driver not in ("nvidia", "amdgpu", "i915", "xe"):
            held = f"held by {driver}" if driver else "without a driver"
            wanted = _DRIVERS[function.vendor]
            lines.append(f"{function.slot}: {maker} graphics {held}: install {wanted} to use it")
    return lines

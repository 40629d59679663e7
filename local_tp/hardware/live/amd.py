"""AMD graphics as Linux shows them in `/sys`, with names from AMD's own tools where installed.

Knows nothing of ROCm's libraries: reading wakes no card. Unique and serial numbers are never
read. A processor's own graphics are kept and marked: they have no memory but the PC's.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from itertools import combinations
from pathlib import Path
from typing import NamedTuple

from local_tp.core import Device, Link
from local_tp.facts import CardFacts, PairFacts, Process
from local_tp.hardware.devices import RESERVE, RESERVE_WITH_DISPLAY
from local_tp.hardware.live import pci
from local_tp.hardware.live.amd_tools import AmdTools, read_tools
from local_tp.hardware.live.linux_card import read_sensors

_XGMI = 11  # the compute driver's type of a link over an Infinity Fabric bridge
# From PCI numbers where the kernel has no compute driver to say an architecture.
_INTEGRATED_NUMBERS = frozenset(
    (0x1114, 0x13C0, 0x1506, 0x150E, 0x1586, 0x15BF, 0x15C8, 0x15D8, 0x15DD, 0x15E7)
) | frozenset((0x1636, 0x1638, 0x163F, 0x164C, 0x164D, 0x164E, 0x1681, 0x1900, 0x1901))
_INTEGRATED_ARCHITECTURES = frozenset(
    ("gfx902", "gfx909", "gfx90c", "gfx1013", "gfx1033", "gfx1035", "gfx1036")
) | frozenset(("gfx1037", "gfx1103", "gfx1150", "gfx1151", "gfx1152", "gfx1153"))


class Found(NamedTuple):
    """Cards in bus order, a link for each pair, and what could not be learned."""

    devices: tuple[Device, ...] = ()
    links: tuple[Link, ...] = ()
    unknown: tuple[str, ...] = ()


class Node(NamedTuple):
    """A graphics processor as the compute driver (KFD) numbers it; `bridged` are slots by XGMI."""

    architecture: str | None
    gpu_id: int | None
    has_cores: bool  # one node with the processor's cores: an APU
    bridged: frozenset[str] = frozenset()


def read_amd(root: Path = Path("/")) -> Found:
    """The AMD cards that the amdgpu driver holds. `root` is where `/sys` is found."""
    functions = [f for f in pci.graphics(root) if f.vendor == pci.AMD and f.driver == "amdgpu"]
    if not functions:
        return Found()
    nodes = _nodes(root)
    tools = read_tools(root)
    devices = [_device(f, nodes.get(f.slot), tools, root) for f in functions]
    unknown = [*tools.unknown]
    for device in devices:
        if not device.total:
            unknown.append(f"{device.id}: the driver does not tell its memory")
    links = tuple(
        Link(a.slot, b.slot, "host", facts=_pair(a, b, nodes, tools))
        for a, b in combinations(functions, 2)
    )
    return Found(tuple(devices), links, tuple(unknown))


def without_driver(functions: Iterable[pci.Function]) -> bool:
    """Whether there are AMD cards that no driver holds. A processor's own graphics is none."""
    return any(
        f.vendor == pci.AMD and f.driver is None and f.device not in _INTEGRATED_NUMBERS
        for f in functions
    )


def _device(card: pci.Function, node: Node | None, tools: AmdTools, root: Path) -> Device:
    total = card.number("mem_info_vram_total") or 0
    used = card.number("mem_info_vram_used")
    display = pci.display(card)
    name = tools.names.get(card.slot) or card.text("product_name")
    name = name or pci.product_name(root, card)
    return Device(
        id=card.slot,
        kind="rocm",
        name=name or f"AMD graphics {card.device:04x}",
        total=total,
        free=max(0, total - (used or 0)),
        reserve=min(total, RESERVE if display is False else RESERVE_WITH_DISPLAY),
        pcie=pci.pcie(card),
        display=display,
        facts=_facts(card, node, used, root),
    )


def _facts(card: pci.Function, node: Node | None, used: int | None, root: Path) -> CardFacts:
    architecture = node.architecture if node else None
    architecture = architecture or _discovered(card)
    core, memory = _clocks(card, "pp_dpm_sclk"), _clocks(card, "pp_dpm_mclk")
    errors = re.search(r"^ue: *(\d+)", card.text("ras/umc_err_count") or "", re.MULTILINE)
    sensors = read_sensors(card.folder)
    return CardFacts(
        vendor="amd",
        architecture=architecture,
        used=used,
        processes=_processes(root, node.gpu_id) if node and node.gpu_id else (),
        bar1_total=card.number("mem_info_vis_vram_total"),
        bar1_used=card.number("mem_info_vis_vram_used"),
        pcie_card=pci.card_most(card),
        pcie_slot=pci.slot_above(card),
        replays=card.number("pcie_replay_count"),
        link_errors=pci.link_errors(card),
        power_draw=sensors.draw,
        power_limit=sensors.limit,
        power_default=sensors.default,
        power_max=sensors.most,
        clock=core[0],
        clock_max=core[1],
        memory_clock=memory[0],
        memory_clock_max=memory[1],
        temperature=sensors.temperature,
        temperature_limit=sensors.critical,
        utilization=card.number("gpu_busy_percent"),
        driver_in_use=card.driver,
        ecc_uncorrected=int(errors.group(1)) if errors else None,
        numa=pci.numa_node(card),
        integrated=_is_integrated(card, node, architecture),
        external=pci.is_external(card),
        chipset=pci.hangs_off_chipset(card),
    )


def _is_integrated(card: pci.Function, node: Node | None, architecture: str | None) -> bool:
    if node and node.has_cores:
        return True
    return architecture in _INTEGRATED_ARCHITECTURES or card.device in _INTEGRATED_NUMBERS


def _clocks(card: pci.Function, name: str) -> tuple[int | None, int | None]:
    """The clock now and the highest of a list such as `1: 2304Mhz *`, in megahertz."""
    levels = re.findall(r"^\w+: *(\d+) *mhz *(\*?)", card.text(name) or "", re.M | re.I)
    now = [int(clock) for clock, star in levels if star]
    return (now[0] if now else None), max((int(clock) for clock, _ in levels), default=None)


def _discovered(card: pci.Function) -> str | None:
    """The architecture that the card's own table of blocks states."""
    folder = "ip_discovery/die/0/GC/0"
    numbers = [card.number(f"{folder}/{part}") for part in ("major", "minor", "revision")]
    known = [number for number in numbers if number is not None]
    return "gfx{}{:x}{:x}".format(*known) if len(known) == 3 else None


def _nodes(root: Path) -> dict[str, Node]:
    """The compute driver's nodes by PCI bus id."""
    nodes: dict[str, Node] = {}
    slots: dict[int, str] = {}
    ends: dict[int, set[int]] = {}
    for folder in sorted((root / "sys/class/kfd/kfd/topology/nodes").glob("[0-9]*")):
        values = _properties(folder)
        if not values.get("simd_count"):
            continue
        place, domain = values.get("location_id", 0), values.get("domain", 0)
        slot = f"{domain:04x}:{place >> 8 & 0xFF:02x}:{place >> 3 & 0x1F:02x}.{place & 7}"
        version = values.get("gfx_target_version", 0)
        parts = version // 10000, version // 100 % 100, version % 100
        nodes[slot] = Node(
            architecture="gfx{}{:x}{:x}".format(*parts) if version else None,
            gpu_id=pci.read_number(folder / "gpu_id"),
            has_cores=bool(values.get("cpu_cores_count")),
        )
        number = int(folder.name)
        slots[number] = slot
        links = [_properties(link) for link in folder.glob("io_links/*")]
        ends[number] = {link.get("node_to", -1) for link in links if link.get("type") == _XGMI}
    return {
        slot: nodes[slot]._replace(
            bridged=frozenset(slots[end] for end in ends[number] if end in slots)
        )
        for number, slot in slots.items()
    }


def _properties(folder: Path) -> dict[str, int]:
    text = pci.read_text(folder / "properties") or ""
    return {k: int(v) for k, v in re.findall(r"^(\w+) (\d+)$", text, re.MULTILINE)}


def _processes(root: Path, gpu_id: int) -> tuple[Process, ...]:
    """Programs that compute on the card, from the compute driver's list."""
    found = []
    for path in (root / "sys/class/kfd/kfd/proc").glob(f"*/vram_{gpu_id}"):
        pid, used = path.parent.name, pci.read_number(path)
        if pid.isdecimal() and used:
            name = pci.read_text(root / "proc" / pid / "comm")
            found.append(Process(int(pid), name or None, used))
    return tuple(sorted(found, key=lambda process: -(process.used or 0)))


def _pair(a: pci.Function, b: pci.Function, nodes: dict[str, Node], tools: AmdTools) -> PairFacts:
    node = nodes.get(a.slot)
    bridged = frozenset((a.slot, b.slot)) in tools.bridged or (node and b.slot in node.bridged)
    return PairFacts(path="nvlink" if bridged else pci.path_between(a, b))

"""The facts of a rig in words, as rows and tables that every form of the report lays out.

Knows nothing of layout. Each number comes from the `Rig`; a fact that is not known has no row,
and what could not be learned stands in `Rig.unknown`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from local_tp.core import Device, Link, Rig
from local_tp.facts import CardFacts, Collective, HostFacts, PcieReading
from local_tp.hardware.devices import bridge_name, short_names
from local_tp.hardware.report.topology import is_card
from local_tp.hardware.rules.advice import is_busy
from local_tp.hardware.rules.pair_rates import is_hindered

KIB, MIB, GIB = 1024, 1024**2, 1024**3
# Bytes a second of one lane after line coding, by generation (PCI Express base specification).
LANE = {1: 0.25e9, 2: 0.5e9, 3: 0.985e9, 4: 1.969e9, 5: 3.938e9, 6: 7.563e9}
STATUS = {
    "ok": "P2P ok",
    "chipset": "no P2P: chipset",
    "gpu": "no P2P: card",
    "topology": "no P2P: topology",
    "disabled": "no P2P: disabled",
    "not-supported": "no P2P",
    "unknown": "P2P unknown",
}
VERDICT = {
    "good": "P2P verified",
    "broken": "P2P BROKEN",
    "hangs": "P2P HANGS",
    "unsupported": "no P2P",
    "failed": "P2P failed",
}


class Fact(NamedTuple):
    label: str
    value: str


class Table(NamedTuple):
    title: str
    columns: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]


def size(count: int) -> str:
    """Bytes in binary units."""
    for unit, name in ((GIB, "GiB"), (MIB, "MiB"), (KIB, "KiB")):
        if count >= unit:
            value = count / unit
            return f"{value:,.0f} {name}" if value == int(value) else f"{value:,.1f} {name}"
    return f"{count} B"


def speed(rate: float) -> str:
    """Bytes a second in decimal units, as data sheets have them."""
    return f"{rate / 1e9:,.0f} GB/s" if rate >= 99.5e9 else f"{rate / 1e9:.1f} GB/s"


def operations(rate: float) -> str:
    """Operations a second, of whatever type."""
    return f"{rate / 1e12:,.1f} TOPS" if rate >= 1e12 else f"{rate / 1e9:,.0f} GOPS"


def nominal_pcie(device: Device) -> float | None:
    """One-way bytes a second that the lanes in use promise at their best generation."""
    reading, pcie = device.facts.pcie_loaded, device.pcie
    generation = reading.generation if reading else None
    width = reading.width if reading else None
    if pcie:
        # An idle card lowers its generation, never its width.
        generation = generation or pcie.max_generation or pcie.generation
        width = width or pcie.width or pcie.max_width
    lane = LANE.get(generation or 0)
    return lane * width if lane and width else None


def measured_pcie(device: Device) -> float | None:
    """The slower of the two measured directions between host and card, bytes a second."""
    rates = [r for r in (device.facts.copy_to, device.facts.copy_from) if r is not None]
    return min(rates) if rates else None


# ------------------------------------------------------------------------------- the system


def system_facts(rig: Rig) -> tuple[Fact, ...]:
    """The machine around the cards."""
    host = rig.host
    versions = rig.software
    driver = rig.driver or versions.driver
    rows = (
        ("System", rig.os),
        ("Processor", _processor(rig)),
        ("Memory", _memory(rig)),
        ("Driver", _joined(driver, versions.cuda_driver and f"CUDA up to {versions.cuda_driver}")),
        ("Kernel module", versions.cuda_module),
        ("PyTorch", _torch(rig)),
        ("NCCL", versions.nccl),
        ("Runs in", _surroundings(host)),
        ("IOMMU", _iommu(host)),
        ("Kernel options", host.command_line),
        ("Secure Boot", _yes(host.secure_boot)),
        ("Model disk", _disk(host)),
    )
    return tuple(Fact(label, value) for label, value in rows if value)


def _processor(rig: Rig) -> str:
    host = rig.host
    seen = any(device.kind == "cpu" for device in rig.devices)
    cores = host.physical_cores or (rig.cores if seen else None)
    return _joined(
        host.processor,
        host.sockets and host.sockets > 1 and f"{host.sockets} sockets",
        cores and f"{cores} core{'' if cores == 1 else 's'}",
        host.efficiency_cores and f"{host.efficiency_cores} of them efficiency cores",
        host.core_limit is not None and f"limited to {host.core_limit:g}",
        host.numa_nodes and host.numa_nodes > 1 and f"{host.numa_nodes} NUMA nodes",
        host.instructions and " ".join(host.instructions),
        _rates(host.matmul),
    )


def _memory(rig: Rig) -> str:
    host = rig.host
    channels = host.memory_channels
    return _joined(
        rig.ram and size(rig.ram),
        rig.available_ram and f"{size(rig.available_ram)} available",
        host.memory_limit and f"limited to {size(host.memory_limit)}",
        channels and f"{channels} channel{'' if channels == 1 else 's'}",
        host.memory_speed and f"{host.memory_speed} MT/s",
        host.memory_bandwidth and f"{speed(host.memory_bandwidth)} measured",
        host.swap is not None and (f"{size(host.swap)} swap" if host.swap else "no swap"),
    )


def _torch(rig: Rig) -> str:
    versions = rig.software
    return _joined(
        versions.torch,
        versions.torch_cuda and f"for CUDA {versions.torch_cuda}",
        versions.torch_architectures and " ".join(versions.torch_architectures),
    )


def _surroundings(host: HostFacts) -> str:
    return _joined(
        host.wsl and "WSL2",
        host.container and f"container: {host.container}",
        host.virtual_machine and f"virtual machine: {host.virtual_machine}",
        host.laptop and "a laptop",
    )


def _iommu(host: HostFacts) -> str:
    acs = None if host.acs is None else f"ACS {'on' if host.acs else 'off'}"
    return _joined(host.iommu, acs)


def _disk(host: HostFacts) -> str:
    return _joined(
        host.disk_free is not None and f"{size(host.disk_free)} free",
        host.disk_read and f"reads {speed(host.disk_read)}",
    )


# -------------------------------------------------------------------------------- one device


def device_facts(device: Device) -> tuple[Fact, ...]:
    """One card or the processor, from memory to who uses it."""
    card = device.facts
    processor = device.kind == "cpu"
    rows = (
        ("State", "LOST: the driver no longer reaches it" if card.lost else None),
        ("Slot", None if processor else device.id),
        ("Memory", _device_memory(device)),
        ("PCIe", None if processor else _pcie(device)),
        ("XGMI" if device.kind == "rocm" else "NVLink", _nvlinks(card)),
        ("Compute", _compute(device)),
        ("Power", _power(card)),
        ("Clocks", _clocks(card)),
        ("Temperature", _temperature(card)),
        ("Faults", ", ".join(f"Xid {number}" for number in card.xids)),
        ("Slowed by", ", ".join(card.throttle)),
        ("Mode", _mode(device)),
        ("Used by", ", ".join(_process(p.name, p.pid, p.used) for p in card.processes)),
    )
    return tuple(Fact(label, value) for label, value in rows if value)


def _device_memory(device: Device) -> str:
    card = device.facts
    return _joined(
        device.total and size(device.total),
        device.total and _free(device),
        card.used is not None and f"{size(card.used)} used",
        card.hidden and f"{size(card.hidden)} hidden by the driver",
        card.integrated and "shared with the processor",
        device.bandwidth and speed(device.bandwidth),
        card.bar1_total and f"BAR1 {size(card.bar1_total)}",
        card.ecc is not None and f"ECC {'on' if card.ecc else 'off'}",
        card.ecc_uncorrected and f"{card.ecc_uncorrected} uncorrected errors",
        card.remap_pending and "bad rows wait for a reset",
    )


def _free(device: Device) -> str:
    """How much is free; a plan takes all of it for free where nothing told what is in use."""
    told = device.free != device.total or device.facts.used is not None or device.kind == "cpu"
    return f"{size(device.free)} free" if told else "free memory not known"


def _pcie(device: Device) -> str:
    card, pcie = device.facts, device.pcie
    parts = [
        _lanes(card.pcie_loaded, "under load"),
        _lanes(card.pcie_card, "card"),
        _lanes(card.pcie_slot, "slot"),
    ]
    if pcie:
        now = PcieReading(pcie.generation, pcie.width)
        most = PcieReading(pcie.max_generation, pcie.max_width)
        idle = " (idle cards slow down)" if _idles(device) else ""
        parts = [f"{_lanes(now, 'now')}{idle}", _lanes(most, "at most"), *parts]
    return _joined(
        *parts,
        card.copy_to and f"{speed(card.copy_to)} to the card",
        card.copy_from and f"{speed(card.copy_from)} back",
        card.replays and f"{card.replays:,} replays",
        card.link_errors and "corrected errors were seen",
        card.external and "external",
    )


def _lanes(reading: PcieReading | None, what: str) -> str:
    if reading is None or (reading.generation is None and reading.width is None):
        return ""
    generation = "" if reading.generation is None else f"{reading.generation}.0"
    width = "" if reading.width is None else f"x{reading.width}"
    return " ".join(part for part in (generation, width, what) if part)


def _idles(device: Device) -> bool:
    """Whether the generation is low for no other reason that is known than idleness."""
    pcie = device.pcie
    if pcie is None or device.facts.pcie_loaded or is_busy(device):
        return False
    return (pcie.generation or 0) < (pcie.max_generation or 0) and pcie.generation is not None


def _nvlinks(card: CardFacts) -> str:
    if not card.nvlinks:
        return ""
    up = [link for link in card.nvlinks if link.up]
    rates = [link.bandwidth for link in up if link.bandwidth]
    return _joined(f"{len(up)} of {len(card.nvlinks)} up", rates and f"{speed(sum(rates))} one way")


def _compute(device: Device) -> str:
    card = device.facts
    return _joined(
        card.architecture,
        device.capability and "compute capability {}.{}".format(*device.capability),
        device.flops and f"{operations(device.flops)} in 16 bits",
        _rates(card.matmul),
        card.utilization is not None and f"{card.utilization}% busy",
    )


def _power(card: CardFacts) -> str:
    return _joined(
        card.power_draw is not None and f"{card.power_draw:.0f} W now",
        card.power_limit and f"limit {card.power_limit:.0f} W",
        card.power_default and f"default {card.power_default:.0f} W",
        card.power_max and f"at most {card.power_max:.0f} W",
    )


def _clocks(card: CardFacts) -> str:
    return _joined(
        card.clock is not None and f"{card.clock} MHz",
        card.clock_max and f"at most {card.clock_max} MHz",
        card.memory_clock is not None and f"memory {card.memory_clock} MHz",
        card.memory_clock_max and f"memory at most {card.memory_clock_max} MHz",
        card.performance_state,
    )


def _temperature(card: CardFacts) -> str:
    return _joined(
        card.temperature is not None and f"{card.temperature} °C",
        card.temperature_limit and f"slows down at {card.temperature_limit} °C",
    )


def _mode(device: Device) -> str:
    card = device.facts
    return _joined(
        device.display and "display attached",
        card.driver_model,
        card.mig and "MIG on",
        card.slice_of and f"MIG slice {card.profile or ''} of {card.slice_of}".replace("  ", " "),
        card.virtual and "virtual",
        card.compute_mode not in (None, "Default") and f"compute mode {card.compute_mode}",
        card.numa is not None and f"NUMA node {card.numa}",
    )


def _process(name: str | None, pid: int | None, used: int | None) -> str:
    shown = name or (f"process {pid}" if pid is not None else "somebody")
    return shown if used is None else f"{shown} ({size(used)})"


# ------------------------------------------------------------------------------ between devices


def tables(rig: Rig) -> tuple[Table, ...]:
    """Speeds and ways between cards, and the timed sums; only what is known."""
    found = (
        _matrix(rig, "Speed between cards, GB/s (row to column)", _speed_cell),
        _matrix(rig, "Way between cards", _way_cell),
        _collectives(rig.collectives),
    )
    return tuple(table for table in found if table)


def _matrix(rig: Rig, title: str, cell: Callable[[Link, bool, Rig], str]) -> Table | None:
    named = {name: d for name, d in short_names(rig).items() if is_card(d)}
    cells: dict[tuple[str, str], str] = {}
    for link in rig.links:
        cells[link.a, link.b] = cell(link, True, rig) or cells.get((link.a, link.b), "")
        cells[link.b, link.a] = cell(link, False, rig) or cells.get((link.b, link.a), "")
    rows = tuple(
        (name, *("·" if d is o else cells.get((d.id, o.id), "") for o in named.values()))
        for name, d in named.items()
    )
    if not any(text not in ("", "·") for row in rows for text in row[1:]):
        return None
    return Table(title, ("", *named), rows)


def _speed_cell(link: Link, forth: bool, _: Rig) -> str:
    rate = link.facts.forth if forth else link.facts.back
    if rate is None and link.bandwidth is not None:
        return f"{link.bandwidth / 1e9:.1f}{'' if link.measured else ' nominal'}"
    return "" if rate is None else f"{rate / 1e9:.1f}"


def _way_cell(link: Link, _: bool, rig: Rig) -> str:
    facts, bridge = link.facts, bridge_name(link, rig)
    path: str | None = facts.path
    if facts.nvlinks:
        path = f"NV{facts.nvlinks}" if bridge == "NVLink" else f"{facts.nvlinks} {bridge}"
    elif path == "nvlink" or (path is None and link.kind == "nvlink"):
        path = bridge
    known = VERDICT[facts.verdict] if facts.verdict else None
    if known is None and facts.read:
        known = STATUS[facts.read]
    if is_hindered(link):
        known = "P2P SLOW"
    return _joined(path, known)


def _collectives(timed: tuple[Collective, ...]) -> Table | None:
    if not timed:
        return None
    sums = {None: "not checked", True: "right", False: "WRONG"}
    rows = tuple(
        (c.transport, str(c.ranks), size(c.nbytes), f"{c.seconds * 1e6:,.1f} µs", sums[c.correct])
        for c in timed
    )
    return Table("All-reduce", ("transport", "ranks", "bytes", "time", "sums"), rows)


def _rates(matmul: tuple[tuple[str, float], ...]) -> str:
    return ", ".join(f"{dtype} {operations(rate)}" for dtype, rate in matmul)


def _yes(value: bool | None) -> str:
    return {None: "", True: "on", False: "off"}[value]


def _joined(*parts: object) -> str:
    return ", ".join(str(part) for part in parts if part)

"""One line a measurement, for a person who watches the machine being measured.

Pure: every number comes from the `Rig`; what a test did not tell is said to be unknown.
"""

from __future__ import annotations

from collections.abc import Sequence

from local_tp.core import Rig


def device_line(rig: Rig, device: str) -> str:
    """A device's rates."""
    known = next(d for d in rig.devices if d.id == device)
    if known.kind == "cpu":
        all_cores, one = rig.host.memory_bandwidth, rig.host.memory_bandwidth_one
        rates = [f"memory {_gb(all_cores)} by all cores, {_gb(one)} by one"]
    else:
        facts = known.facts
        rates = [
            f"memory {_gb(known.bandwidth)}",
            f"from the host {_gb(facts.copy_to)}, to it {_gb(facts.copy_from)}",
        ]
        if (loaded := facts.pcie_loaded) is not None:
            rates.append(f"PCIe {loaded.generation}.0 x{loaded.width} while copying")
    rates += [f"{dtype} {_operations(rate)}" for dtype, rate in known.facts.matmul]
    return f"  {'; '.join(rates)}" + _why(rig, device)


def pair_line(rig: Rig, a: str, b: str) -> str:
    """A pair's verdict and rates."""
    link = next(link for link in rig.links if {link.a, link.b} == {a, b})
    words = {
        "good": "direct copies arrive intact",
        "broken": "WRONG DATA arrives: direct copies will not be used",
        "hangs": "copies hang: direct copies will not be used",
        "unsupported": "no direct copies; those through the PC's memory arrive intact",
        "failed": "the test failed: direct copies will not be used",
    }
    facts = link.facts
    said = words.get(facts.verdict or "", "not known")
    rates = f"; {_gb(facts.forth)} there, {_gb(facts.back)} back"
    return f"  {said}{rates if facts.forth or facts.back else ''}" + _why(rig, f"{a} to {b}")


def collective_line(rig: Rig, transport: str, devices: Sequence[str]) -> str:
    """A transport's sums: right or wrong, and how long they take."""
    found = [c for c in rig.collectives if c.transport == transport and c.devices == tuple(devices)]
    if not found:
        return f"  {transport}: no sum was completed" + _why(rig, f"over {', '.join(devices)}")
    said = "sums are right" if all(c.correct for c in found) else "WRONG SUMS: it will not be used"
    times = ", ".join(f"{c.nbytes // 1024} KiB in {c.seconds * 1e6:.0f} us" for c in found)
    return f"  {transport}: {said}; {times}"


def build_line(rig: Rig) -> str:
    """The architectures of torch's kernels."""
    said = ", ".join(rig.software.torch_architectures) or "no graphics cards"
    return f"  torch {rig.software.torch}: {said}" + _why(rig, "torch")


def disk_line(rig: Rig) -> str:
    """The model folder's read speed."""
    return f"  the disk reads {_gb(rig.host.disk_read)}" + _why(rig, "model folder")


def _operations(rate: float) -> str:
    """Operations a second of a card or of a processor, which differ a thousandfold."""
    return f"{rate / 1e12:.1f} TOPS" if rate >= 1e12 else f"{rate / 1e9:.0f} GOPS"


def _gb(rate: float | None) -> str:
    return "unknown" if rate is None else f"{rate / 1e9:.1f} GB/s"


def _why(rig: Rig, subject: str) -> str:
    """Why something about the subject is not known."""
    mark = f"{subject}: not measured: "
    lines = [line.partition(mark)[2] for line in rig.unknown if mark in line]
    return "".join(f"; not measured: {line}" for line in lines)

"""A rig in words, for a terminal and for a stranger's bug report.

Knows nothing of how the rig was read. Every number comes from the `Rig`; what is absent from it
is said to be unknown, never left blank.
"""

from __future__ import annotations

from local_tp.core import Device, Link, Pcie, Rig
from local_tp.hardware.devices import bridge_name, short_names, why_left_out
from local_tp.hardware.rules.advice import is_busy

GIB = 1024**3


def describe(rig: Rig) -> str:
    """Several lines of plain text: the system, each device, each link, what is not known."""
    named = short_names(rig)
    driver = f", NVIDIA driver {rig.driver}" if rig.driver else ""
    cores = f"{rig.cores} physical core{'' if rig.cores == 1 else 's'}"
    lines = [
        f"System  {rig.os or 'unknown'}{driver}",
        f"Memory  {_gib(rig.ram)}, {_gib(rig.available_ram)} available; {cores}",
        "",
        "Devices",
    ]
    width = max((len(name) for name in named), default=0)
    for name, device in named.items():
        head, *details = _device(device)
        lines.append(f"  {name:<{width}}  {head}")
        lines += [f"  {'':<{width}}  {detail}" for detail in details]
    if not any(device.kind != "cpu" for device in named.values()):
        lines.append("  No graphics card that can be used was found.")
    if rig.links:
        by_id = {device.id: name for name, device in named.items()}
        lines += ["", "Links"]
        lines += [f"  {_link(link, by_id, bridge_name(link, rig))}" for link in rig.links]
    if rig.unknown:
        lines += ["", "Not known", *(f"  {line}" for line in rig.unknown)]
    return "\n".join(lines)


def _device(device: Device) -> list[str]:
    place = "" if device.kind == "cpu" else f" at {device.id}"
    if device.facts.lost:
        return [f"{device.name}{place}", "lost: the driver cannot reach it any more"]
    lines = [
        f"{device.name}{place}",
        f"{_gib(device.free)} free of {_gib(device.total)}, {_gib(device.reserve)} of it kept back",
    ]
    if device.kind == "cpu":
        if device.facts.core_bandwidth is not None:
            lines.append(f"one thread moves {device.facts.core_bandwidth / 1e9:.1f} GB a second")
        return lines
    display = {None: "unknown", True: "yes", False: "no"}[device.display]
    if device.kind == "cuda":
        capability = "unknown" if device.capability is None else "{}.{}".format(*device.capability)
        lines.append(f"compute capability {capability}; display attached: {display}")
    else:
        lines.append(f"display attached: {display}")
    if left_out := why_left_out(device):
        lines.append(f"not used for models: {left_out}")
    if device.pcie:
        lines.append(_pcie(device.pcie, is_busy(device)))
    return lines


def _pcie(pcie: Pcie, busy: bool) -> str:
    now, most = _lane(pcie.generation, pcie.width), _lane(pcie.max_generation, pcie.max_width)
    slower = pcie.generation and pcie.max_generation and pcie.generation < pcie.max_generation
    idle = " (idle cards slow down)" if slower and not busy else ""
    return f"PCIe {now} now{idle}, {most} at most"


def _lane(generation: int | None, width: int | None) -> str:
    return f"{'?' if generation is None else generation}.0 x{'?' if width is None else width}"


def _link(link: Link, names: dict[str, str], bridge: str) -> str:
    how = {"nvlink": bridge, "p2p": "peer to peer", "host": "through the PC's memory"}[link.kind]
    checked = "" if link.kind == "host" else ", verified" if link.verified else ", not verified yet"
    speed = "" if link.bandwidth is None else f", {link.bandwidth / 1e9:.1f} GB a second"
    return f"{names.get(link.a, link.a)} to {names.get(link.b, link.b)}: {how}{checked}{speed}"


def _gib(count: int) -> str:
    return f"{count / GIB:.1f} GiB"

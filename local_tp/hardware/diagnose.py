"""What is wrong with a machine, or worth knowing: every rule, applied to a `Rig`.

Knows nothing of how the rig was read: a probe, a measurement and a stranger's pasted text are
judged alike. A rule is a pure function, and what is not known is never a finding.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace

from local_tp.core import Rig
from local_tp.facts import Finding, Severity
from local_tp.hardware.rules import (
    cards,
    drivers,
    faults,
    host,
    identity,
    links,
    memory,
    nvlink,
    peers,
    power,
    slow_pairs,
    software,
    starting,
)

Rule = Callable[[Rig], Iterator[Finding]]

RULES: tuple[Rule, ...] = (
    faults.lost,
    drivers.driver,
    drivers.no_card,
    drivers.held,
    starting.not_started,
    starting.modules_conflict,
    faults.ecc_errors,
    faults.xids,
    faults.replays,
    faults.link_errors,
    faults.remap_pending,
    faults.duplicates,
    identity.not_as_named,
    faults.slow,
    software.driver_age,
    software.no_kernels,
    software.old_card,
    software.cpu_only,
    links.narrow,
    links.chipset,
    links.generation_under_load,
    links.slot_older,
    links.copy_slow,
    links.uneven,
    links.uneven_slots,
    peers.off,
    peers.verdicts,
    peers.slower,
    slow_pairs.slow,
    peers.sockets,
    peers.iommu,
    peers.acs,
    nvlink.down,
    nvlink.absent,
    peers.collectives,
    peers.collective_failed,
    memory.resizable_bar,
    memory.display,
    memory.programs,
    memory.nearly_full,
    memory.wddm,
    memory.wsl,
    memory.ecc_takes_memory,
    power.capped,
    power.hot,
    power.braked,
    power.limited,
    cards.mixed_architectures,
    cards.mixed_radeons,
    cards.mixed_vendors,
    cards.mig,
    cards.virtual,
    cards.driver_models,
    cards.integrated,
    cards.compute_mode,
    cards.persistence,
    cards.external,
    cards.laptop,
    host.ram_small,
    host.channels,
    host.swap_off,
    host.container_limits,
    host.disk,
)
_ORDER: dict[Severity, int] = {"error": 0, "warning": 1, "info": 2}


def diagnose(rig: Rig) -> tuple[Finding, ...]:
    """Everything the rules find: errors first, then by device in the rig's order, then by id.

    Cards that cost the same and are mended the same way share one finding.
    """
    places = {device.id: place for place, device in enumerate(rig.devices)}

    def order(finding: Finding) -> tuple[int, int, str]:
        first = min((places.get(name, len(places)) for name in finding.devices), default=-1)
        return _ORDER[finding.severity], first, finding.id

    return tuple(sorted(_merged(finding for rule in RULES for finding in rule(rig)), key=order))


def _merged(findings: Iterable[Finding]) -> list[Finding]:
    """Findings that differ in nothing but devices and evidence, made one."""
    same: dict[tuple[str, ...], Finding] = {}
    for finding in findings:
        key = (finding.id, finding.severity, finding.cost, finding.remedy)
        if first := same.get(key):
            finding = replace(
                finding,
                devices=tuple(dict.fromkeys(first.devices + finding.devices)),
                evidence=f"{first.evidence}; {finding.evidence}",
            )
        same[key] = finding
    return list(same.values())

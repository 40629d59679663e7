"""What is wrong with a machine, or worth knowing: every rule, applied to a `Rig`.

Knows nothing of how the rig was read: a probe, a measurement and a stranger's pasted text are
judged alike. A rule is a pure function, and what is not known is never a finding.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace

from local_tp.core import Rig
from local_tp.facts import Finding, Severity
from local_tp.hardware import (
    rules_cards,
    rules_faults,
    rules_host,
    rules_links,
    rules_memory,
    rules_nvlink,
    rules_peers,
    rules_power,
    rules_software,
)

Rule = Callable[[Rig], Iterator[Finding]]

RULES: tuple[Rule, ...] = (
    rules_faults.lost,
    rules_faults.driver,
    rules_faults.ecc_errors,
    rules_faults.xids,
    rules_faults.replays,
    rules_faults.duplicates,
    rules_faults.slow,
    rules_software.driver_age,
    rules_software.no_kernels,
    rules_software.old_card,
    rules_software.cpu_only,
    rules_links.narrow,
    rules_links.generation_under_load,
    rules_links.slot_older,
    rules_links.copy_slow,
    rules_links.uneven,
    rules_links.uneven_slots,
    rules_peers.off,
    rules_peers.verdicts,
    rules_peers.sockets,
    rules_peers.iommu,
    rules_peers.acs,
    rules_nvlink.down,
    rules_nvlink.absent,
    rules_peers.collectives,
    rules_memory.resizable_bar,
    rules_memory.display,
    rules_memory.programs,
    rules_memory.wddm,
    rules_memory.wsl,
    rules_memory.ecc_takes_memory,
    rules_power.capped,
    rules_power.hot,
    rules_power.braked,
    rules_power.limited,
    rules_cards.mixed_architectures,
    rules_cards.mixed_radeons,
    rules_cards.mixed_vendors,
    rules_cards.mig,
    rules_cards.virtual,
    rules_cards.driver_models,
    rules_cards.integrated,
    rules_cards.compute_mode,
    rules_cards.persistence,
    rules_cards.external,
    rules_cards.laptop,
    rules_host.ram_small,
    rules_host.channels,
    rules_host.swap_off,
    rules_host.container_limits,
    rules_host.disk,
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
                devices=first.devices + finding.devices,
                evidence=f"{first.evidence}; {finding.evidence}",
            )
        same[key] = finding
    return list(same.values())

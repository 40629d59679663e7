"""Turns the readings of measuring children into facts of a `Rig`.

Pure: knows nothing of processes or of how anything was measured. What a child could not measure,
and why it ended early, becomes a line of `unknown`; an old line on the same matter is replaced.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from local_tp.core import Device, Link, LinkKind, Rig
from local_tp.facts import Collective, PairFacts, PcieReading, Verdict
from local_tp.hardware.measuring.cache import Measured
from local_tp.hardware.measuring.killable import Outcome
from local_tp.hardware.measuring.readings import BUSY, NOTE, Reading

SIXTEEN_BITS = ("bfloat16", "float16")


def with_device(rig: Rig, device: Device, measured: Measured) -> Rig:
    """The rig with one device's rates. The processor's go to `host` too, if it is the only one."""
    (outcome,) = measured.outcomes
    rates = _rates(outcome.readings)
    matmul = tuple((r.detail, r.value) for r in outcome.readings if r.what == "matmul")
    rig = _with_notes(rig, device.id, outcome)
    sixteen = [value for dtype, value in matmul if dtype in SIXTEEN_BITS]
    facts = replace(
        device.facts,
        matmul=matmul or device.facts.matmul,
        copy_to=rates.get(("copy_to", ""), device.facts.copy_to),
        copy_from=rates.get(("copy_from", ""), device.facts.copy_from),
        pcie_loaded=_loaded(rates) or device.facts.pcie_loaded,
    )
    known = replace(device, facts=facts, flops=max(sixteen, default=device.flops))
    if device.kind != "cpu":
        known = replace(known, bandwidth=rates.get(("bandwidth", ""), device.bandwidth))
        return _with(rig, known)
    one = rates.get(("bandwidth", "one"))
    facts = replace(facts, core_bandwidth=one or facts.core_bandwidth)
    # The probe's quick look, by one thread, gives way to a measurement.
    all_cores = rates.get(("bandwidth", "all"))
    known = replace(known, bandwidth=all_cores or device.bandwidth, facts=facts)
    host = replace(
        rig.host,
        memory_bandwidth=rates.get(("bandwidth", "all"), rig.host.memory_bandwidth),
        memory_bandwidth_one=one or rig.host.memory_bandwidth_one,
        matmul=matmul or rig.host.matmul,
    )
    return _with(replace(rig, host=host), known)


def with_pair(rig: Rig, a: str, b: str, measured: Measured) -> Rig:
    """The rig with a verdict on one pair. Only a good one makes the link more than "host"."""
    (outcome,) = measured.outcomes
    rates = _rates(outcome.readings)
    old = next((link for link in rig.links if {link.a, link.b} == {a, b}), Link(a, b, "host"))
    forth, back = rates.get(("forth", "")), rates.get(("back", ""))
    turned = old.a == b != a
    known = verdict(outcome)
    facts = replace(
        old.facts,
        forth=back if turned else forth,
        back=forth if turned else back,
        both=rates.get(("both", ""), old.facts.both),
        verdict=known,
    )
    link = replace(
        old,
        kind=_kind(old) if known == "good" else "host",
        bandwidth=min(forth, back) if forth and back else None,
        latency=rates.get(("latency", "")),
        verified=known == "good",
        measured=outcome.ending == "done",
        facts=facts,
    )
    others = tuple(other for other in rig.links if other is not old)
    links = tuple(link if other is old else other for other in rig.links)
    rig = replace(rig, links=links if len(others) < len(rig.links) else (*links, link))
    return _with_notes(rig, f"{link.a} to {link.b}", outcome)


def verdict(outcome: Outcome) -> Verdict:
    """What a pair's test says. Data that arrived wrong outweighs whatever came after it."""
    if any(r.what == "wrong" and not r.correct for r in outcome.readings):
        return "broken"
    if outcome.ending != "done":
        return outcome.ending
    peer = [r.value for r in outcome.readings if r.what == "peer"]
    checked = {(r.detail, r.correct) for r in outcome.readings if r.what == "wrong"}
    if not peer or checked != {("forth", True), ("back", True)}:
        return "failed"  # it ended well without having looked
    return "good" if peer[0] else "unsupported"


def with_collectives(
    rig: Rig, transports: Sequence[str], ranks: Sequence[str], measured: Measured
) -> Rig:
    """The rig with timed sums; the slowest rank counts, and all must be right."""
    added = []
    for transport in transports:
        of_ranks = [
            {r.nbytes: r for r in o.readings if r.detail == transport} for o in measured.outcomes
        ]
        for nbytes in sorted(set.intersection(*(set(found) for found in of_ranks))):
            found = [readings[nbytes] for readings in of_ranks]
            added.append(
                Collective(
                    transport=transport,
                    ranks=len(ranks),
                    nbytes=nbytes,
                    seconds=max(r.value for r in found),
                    correct=all(r.correct for r in found),
                    devices=tuple(ranks),
                )
            )
    older = tuple(
        c for c in rig.collectives if c.transport not in transports or c.devices != tuple(ranks)
    )
    rig = replace(rig, collectives=(*older, *added))
    failing = [o for o in measured.outcomes if o.ending == "failed"] or [
        o for o in measured.outcomes if o.ending == "hangs"
    ]
    name = f"{' and '.join(transports)} over {', '.join(ranks)}"
    return _with_notes(rig, name, failing[0] if failing else measured.outcomes[0])


def with_build(rig: Rig, measured: Measured) -> Rig:
    """The rig with what torch was built for."""
    (outcome,) = measured.outcomes
    if outcome.ending != "done":
        return _with_notes(rig, "torch", outcome)
    names = tuple(r.detail for r in outcome.readings if r.what == "architecture")
    cuda = next((r.detail for r in outcome.readings if r.what == "cuda"), rig.software.torch_cuda)
    rig = replace(rig, software=replace(rig.software, torch_architectures=names, torch_cuda=cuda))
    return with_unknown(rig, "torch", [])


def with_disk(rig: Rig, outcome: Outcome) -> Rig:
    """The rig with the read speed of the folder where models are."""
    rate = _rates(outcome.readings).get(("disk_read", ""), rig.host.disk_read)
    rig = replace(rig, host=replace(rig.host, disk_read=rate))
    return _with_notes(rig, "model folder", outcome)


def with_unknown(rig: Rig, subject: str, lines: Sequence[str]) -> Rig:
    """The rig with these lines on what was not measured of `subject`, and no older ones."""
    start = f"{subject}: not measured: "
    kept = tuple(line for line in rig.unknown if not line.startswith(start))
    return replace(rig, unknown=kept + tuple(start + line for line in lines))


def _with_notes(rig: Rig, subject: str, outcome: Outcome) -> Rig:
    lines = [r.detail for r in outcome.readings if r.what == NOTE]
    lines += [
        f"at rest: other programs had {r.value:.0%} of the processor, so that its figures are too "
        "low; let them rest, then local-tp doctor --measure --again"
        for r in outcome.readings
        if r.what == BUSY
    ]
    if outcome.ending == "failed":
        lines.append(f"the test failed: {outcome.reason}")
    elif outcome.ending == "hangs":
        lines.append(f"the test hung and was stopped: {outcome.reason}")
    return with_unknown(rig, subject, lines)


def _with(rig: Rig, device: Device) -> Rig:
    return replace(rig, devices=tuple(device if d.id == device.id else d for d in rig.devices))


def _loaded(rates: Mapping[tuple[str, str], float]) -> PcieReading | None:
    generation, width = (rates.get(("pcie", what)) for what in ("generation", "width"))
    return PcieReading(int(generation), int(width)) if generation and width else None


def _rates(readings: Sequence[Reading]) -> dict[tuple[str, str], float]:
    return {(r.what, r.detail): r.value for r in readings if r.value > 0}


def _kind(link: Link) -> LinkKind:
    """How a good pair is joined, also where an older measurement had called it "host"."""
    facts: PairFacts = link.facts
    joined = link.kind == "nvlink" or facts.path == "nvlink" or bool(facts.nvlinks)
    return "nvlink" if joined else "p2p"

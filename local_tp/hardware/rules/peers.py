"""Rules on cards that talk to one another: peer-to-peer, IOMMU, collectives.

Knows nothing of lanes. A driver's word that peer-to-peer works is no finding either way: only
a copy that was checked is. Peer-to-peer that is off names the most likely reason, one a pair.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator

from local_tp.core import Device, Link, Rig
from local_tp.facts import Finding, P2pStatus, Severity, Verdict
from local_tp.hardware.rules.advice import (
    REFUSED,
    Advice,
    discrete,
    duration,
    is_consumer,
    is_guest,
    listed,
    model_name,
    rate,
    under_wddm,
)
from local_tp.hardware.rules.link_costs import prompt_seconds, token_wait
from local_tp.hardware.rules.pair_rates import against_memory, answers_late, is_hindered
from local_tp.hardware.rules.pair_topology import is_refused_across

STAGED_LATENCY = 15e-6  # a message through host memory, against one between peers
PEER_LATENCY = 1.5e-6
SAID: dict[P2pStatus | None, str] = {
    "chipset": "chipset not supported (CNS)",
    "gpu": "GPU not supported (GNS)",
    "topology": "topology not supported (TNS)",
    "disabled": "disabled by a driver setting (DR)",
    "not-supported": "not supported (NS)",
}
BEHIND_SWITCH = frozenset({"PIX", "PXB"})
P2P_OFF = Advice(
    "p2p-off",
    "info",
    "{pairs} between {cards}: the driver says {said}; reason: {why}",
    "copies go through the PC's memory: a message takes {staged} instead of about {peer}, which "
    "adds up to {wait} to each token that a 64-layer model decodes with a tensor split; a layer "
    "split loses nothing",
    "{remedy}",
)
# Why peer-to-peer is off, the first that holds: how much it matters, the reason, what to do.
REASONS: dict[str, tuple[Severity, str, str]] = {
    "wsl": (
        "info",
        "virtualisation, WSL2 offers no peer-to-peer",
        "nothing to do here: local_tp goes through memory; Linux without Windows below it can "
        "offer more",
    ),
    "wddm": (
        "info",
        "the driver, Windows' display driver model (WDDM) offers no peer-to-peer",
        "nothing to do on Windows with these cards: local_tp goes through memory; Linux can offer "
        "more",
    ),
    "guest": (
        "info",
        "virtualisation, this system is a guest of a hypervisor",
        "let the hypervisor put the cards into one peer group (on KVM x-nv-gpudirect-clique), then "
        "run `local-tp doctor` again: it checks the copies before it uses them",
    ),
    "setting": (
        "warning",
        "a driver setting switched it off",
        "remove the option that disables peer-to-peer from the NVIDIA module's settings "
        "(/etc/modprobe.d) and restart",
    ),
    "radeon": (
        "info",
        "AMD's driver found the cards' memory not wholly visible, or the kernel without its part",
        "switch on 'Above 4G Decoding' and 'Resizable BAR' in the BIOS, start Linux with iommu=pt, "
        "and use a kernel built with peer-to-peer for AMD (CONFIG_HSA_AMD_P2P, as distributions "
        "and amdgpu-dkms have it)",
    ),
    "mixed": (
        "info",
        "card type, the two are different models",
        "nothing to repair: the driver joins only cards of one kind; keep a tensor split to like "
        "cards where there are several",
    ),
    "geforce": (
        "info",
        "the driver, which withholds peer-to-peer from GeForce cards",
        "nothing is broken: local_tp goes through memory; a bridge helps where the cards have "
        "NVLink, and some owners use a patched open driver at their own risk",
    ),
    "topology": (
        "info",
        "topology, the cards hang off different processors or root complexes",
        "put the cards that work together into slots of one processor, or leave it so",
    ),
    "iommu": (
        "warning",
        "IOMMU or ACS, which send peer traffic through the processor",
        "switch off IOMMU (VT-d, AMD-Vi) and ACS in the BIOS, or start Linux with iommu=pt, unless "
        "virtual machines need them",
    ),
    "chipset": (
        "info",
        "the chipset, or the driver on its behalf, does not pass peer traffic",
        "put both cards into slots of the processor, and look for a BIOS update; GeForce cards "
        "say the same, and there it is the driver's choice",
    ),
    "card": ("info", "card type, this model has no peer-to-peer", "nothing to repair"),
    "unknown": (
        "info",
        "not known",
        "on GeForce cards nothing is broken: their driver withholds it; for others run `local-tp "
        "doctor --full` on that machine, which tries each pair",
    ),
}

VERDICTS: dict[Verdict, Advice] = {
    "broken": Advice(
        "p2p-broken",
        "error",
        "{pairs} between {cards}: the driver reports a peer copy as done, but the data did not "
        "arrive",
        "programs that trust it produce gibberish; local_tp does not use it, and its copies go "
        "through memory, up to {wait} more for each token of a tensor split",
        "switch off IOMMU and ACS in the BIOS (or iommu=pt), remove a patched driver or a peer "
        "group of the hypervisor; in other programs set NCCL_P2P_DISABLE=1 until it is mended",
    ),
    "hangs": Advice(
        "p2p-hangs",
        "error",
        "{pairs} between {cards}: a peer copy did not end within its time limit",
        "programs that use it stand still without a message; local_tp does not use it, and its "
        "copies go through memory, up to {wait} more for each token of a tensor split",
        "switch off IOMMU and ACS in the BIOS (or iommu=pt) and update the driver; in other "
        "programs set NCCL_P2P_DISABLE=1 until it is mended",
    ),
    "failed": Advice(
        "p2p-failed",
        "warning",
        "{pairs} between {cards}: the trial of a peer copy failed with an error",
        "local_tp goes through memory, up to {wait} more for each token of a tensor split",
        "look for Xid lines in `dmesg`, update the driver, then run `local-tp doctor` again",
    ),
}
SLOWER = Advice(
    "p2p-slower-than-memory",
    "warning",
    "{pairs}: with peer-to-peer {slow}",
    "a program that uses peer-to-peer waits for it: {cost}",
    "IOMMU or ACS sends the peer traffic up through the processor: start Linux with iommu=pt, or "
    "switch off IOMMU (VT-d, AMD-Vi) and ACS in the BIOS, unless virtual machines need them; until "
    "then set NCCL_P2P_DISABLE=1 in programs that sum by NCCL",
)
SOCKETS = Advice(
    "cards-on-two-sockets",
    "info",
    "{far} of {all} pairs reach each other only across the processors' own link (SYS)",
    "copies across it carry about a tenth to a fifth less and answer later, on older boards half",
    "{remedy}",
)
ONE_SIDE = "keep a tensor split to cards of one side ({sides}), and give the sides stages of layers"
MOVE = (
    "put the cards into slots of one processor (the board's manual says which are whose), or give "
    "each a stage of layers, which crosses the link once a token"
)
IOMMU = Advice(
    "iommu-translates",
    "warning",
    "the IOMMU translates addresses (it is on, not passed through) and the driver offers "
    "peer-to-peer for {pairs}",
    "peer copies may arrive nowhere or at half speed; local_tp uses none that it has not checked",
    "switch off IOMMU (VT-d, AMD-Vi) in the BIOS or start Linux with iommu=pt, unless virtual "
    "machines need it",
)
ACS = Advice(
    "acs-redirects",
    "info",
    "access control (ACS) is on, and {pairs} of cards share a PCIe switch",
    "what could pass inside the switch goes up to the processor and back, at up to half the speed",
    "switch off ACS in the BIOS or with setpci on the bridges, unless virtual machines need it",
)
COLLECTIVE = Advice(
    "collective-wrong",
    "error",
    "an all-reduce of {nbytes:,} bytes over {ranks} ranks by {transport} returned wrong sums",
    "every model split by tensor over this transport would produce gibberish",
    "do not use this transport: local_tp falls back to shared memory; switch off IOMMU and ACS, "
    "remove a patched driver, then run `local-tp doctor` again",
)


NCCL_FAILED = Advice(
    "collective-failed",
    "warning",
    "{evidence}",
    "programs that sum over the cards by NCCL (vLLM, for example) end the same way; local_tp tries "
    "each transport before it uses one, and has others",
    "run it again with NCCL_DEBUG=INFO and read what comes before the failure; then update the "
    "driver to one as new as the CUDA that NCCL was built for, and try NCCL_P2P_DISABLE=1",
)


def off(rig: Rig) -> Iterator[Finding]:
    """Pairs without peer-to-peer, one finding for each reason."""
    groups: dict[str, list[Link]] = defaultdict(list)
    for link in _pairs(rig):
        if link.facts.verdict in (None, "unsupported") and _is_off(link):
            groups[_reason(link, rig)].append(link)
    for reason, links in groups.items():
        severity, why, remedy = REASONS[reason]
        latency = max((k.latency for k in links if k.latency), default=None)
        staged = duration(latency or STAGED_LATENCY)
        said = sorted({SAID.get(_status(link), "no peer access") for link in links})
        yield P2P_OFF.finding(
            _ends(links, rig),
            severity,
            why=why,
            remedy=remedy,
            pairs=_count(links),
            cards=listed(_ends(links, rig)),
            said=" and ".join(said),
            staged=f"{staged} (as measured)" if latency else f"about {staged}",
            peer=duration(PEER_LATENCY),
            wait=duration(token_wait(latency or STAGED_LATENCY)),
        )


def _reason(link: Link, rig: Rig) -> str:
    by_id = {device.id: device for device in rig.devices}
    a, b = by_id[link.a], by_id[link.b]
    status = _status(link)
    models = {model_name(a), model_name(b)}
    across = is_refused_across(link, rig.links)
    tests = {
        "wsl": rig.host.wsl is True,
        "wddm": under_wddm(a, rig) or under_wddm(b, rig),
        "guest": is_guest(rig),
        "setting": status == "disabled",
        "radeon": a.kind == b.kind == "rocm",
        "mixed": len(models) > 1,
        "geforce": is_consumer(a) and is_consumer(b) and not across,
        "topology": status == "topology" or across,
        "iommu": rig.host.iommu == "on" or rig.host.acs is True,
        "chipset": status == "chipset",
        "card": status == "gpu",
    }
    return next((reason for reason, holds in tests.items() if holds), "unknown")


def verdicts(rig: Rig) -> Iterator[Finding]:
    """Pairs whose checked copy went wrong."""
    for verdict, advice in VERDICTS.items():
        links = [link for link in _pairs(rig) if link.facts.verdict == verdict]
        if links:
            yield advice.finding(
                _ends(links, rig),
                pairs=_count(links),
                cards=listed(_ends(links, rig)),
                wait=duration(token_wait(STAGED_LATENCY)),
            )


def slower(rig: Rig) -> Iterator[Finding]:
    """Pairs whose peer copies were measured slower, or to answer later, than memory would."""
    links = [link for link in _pairs(rig) if is_hindered(link)]
    if not links:
        return
    rates = min(filter(None, map(against_memory, links)), default=None)
    late = max(filter(None, map(answers_late, links)), default=None)
    told, cost = [], []
    if rates:
        slow, fast = (duration(prompt_seconds(speed)) for speed in rates)
        told.append(f"copies carry {rate(rates[0])}, with it off {rate(rates[1])}")
        cost.append(
            f"a 32B model split by tensor spends {slow} on this link per 1,000 tokens of prompt, "
            f"{fast} through memory"
        )
    if late:
        told.append(f"a message takes {duration(late)}")
        cost.append(
            f"each decoded token waits up to {duration(token_wait(late))}, "
            f"{duration(token_wait(STAGED_LATENCY))} through memory"
        )
    yield SLOWER.finding(
        _ends(links, rig),
        pairs=", ".join(f"{link.a} with {link.b}" for link in links),
        slow=" and ".join(told),
        cost="; ".join(cost),
    )


def sockets(rig: Rig) -> Iterator[Finding]:
    """Cards across sockets: a matter of which ones to join, or of where they are plugged in.

    Where no pair is close nothing shows what SYS means there, and the cards' nodes must differ.
    """
    known = [link for link in _pairs(rig) if link.facts.path]
    far = [link for link in known if link.facts.path == "SYS"]
    near = [link for link in known if link.facts.path != "SYS"]
    if not far or is_guest(rig) or rig.host.sockets == 1:
        return
    sides = _sides(far, near, rig) if near else _by_node(_ends(far, rig))
    if len(sides) < 2:
        return
    words = " or ".join(f"[{', '.join(side)}]" for side in sides)
    remedy = ONE_SIDE.format(sides=words) if any(len(side) > 1 for side in sides) else MOVE
    yield SOCKETS.finding(_ends(far, rig), far=len(far), all=len(known), remedy=remedy)


def _by_node(cards: list[Device]) -> list[list[str]]:
    nodes: dict[int, list[str]] = defaultdict(list)
    for card in cards:
        if card.facts.numa is not None:
            nodes[card.facts.numa].append(card.id)
    return list(nodes.values())


def _sides(far: list[Link], near: list[Link], rig: Rig) -> list[list[str]]:
    """Groups of cards without a far pair inside; a card joins the first that it is near to."""
    apart = {frozenset((link.a, link.b)) for link in far}
    close = {frozenset((link.a, link.b)) for link in near}
    sides: list[list[str]] = []
    for card in (device.id for device in _ends(far + near, rig)):
        for side in sides:
            ways = {frozenset((card, other)) for other in side}
            if ways & close and not ways & apart:
                side.append(card)
                break
        else:
            sides.append([card])
    return sides


def iommu(rig: Rig) -> Iterator[Finding]:
    """Address translation under peer copies that nobody has checked."""
    offered = [
        link
        for link in _pairs(rig)
        if "ok" in (link.facts.read, link.facts.write)
        and not _is_off(link)
        and link.facts.verdict is None
    ]
    if rig.host.iommu == "on" and offered and not is_guest(rig):
        yield IOMMU.finding(_ends(offered, rig), pairs=_count(offered))


def acs(rig: Rig) -> Iterator[Finding]:
    """Access control that takes the short cut away from cards behind one switch."""
    close = [k for k in _pairs(rig) if k.facts.path in BEHIND_SWITCH]
    if rig.host.acs is True and close and not is_guest(rig):
        yield ACS.finding(_ends(close, rig), pairs=_count(close))


def collectives(rig: Rig) -> Iterator[Finding]:
    """An all-reduce whose sums were checked and wrong, once for each transport."""
    wrong = {c.transport: c for c in reversed(rig.collectives) if c.correct is False}
    for collective in wrong.values():
        yield COLLECTIVE.finding(
            collective.devices or discrete(rig),
            nbytes=collective.nbytes,
            ranks=collective.ranks,
            transport=collective.transport,
        )


def collective_failed(rig: Rig) -> Iterator[Finding]:
    """A test of NCCL that somebody ran, and that ended with an error."""
    for line in rig.unknown:
        if line.startswith("nccl-tests failed: "):
            yield NCCL_FAILED.finding(discrete(rig), evidence=line)
            return


def _pairs(rig: Rig) -> list[Link]:
    own = {card.id for card in discrete(rig)}
    return [link for link in rig.links if {link.a, link.b} <= own and link.a != link.b]


def _status(link: Link) -> P2pStatus | None:
    """What the driver says against a pair; its word on reading where both are refused."""
    return next((s for s in (link.facts.read, link.facts.write) if s in REFUSED), None)


def _is_off(link: Link) -> bool:
    return link.facts.verdict == "unsupported" or _status(link) is not None


def _ends(links: list[Link], rig: Rig) -> list[Device]:
    ends = {end for link in links for end in (link.a, link.b)}
    return [device for device in rig.devices if device.id in ends]


def _count(links: list[Link]) -> str:
    return f"{len(links)} pair{'' if len(links) == 1 else 's'}"

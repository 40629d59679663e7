"""Diagnosis of machines that nobody has: any values at all, and it still answers in whole words."""

from __future__ import annotations

from dataclasses import replace

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from local_tp.core import Device, Link, Rig
from local_tp.facts import CardFacts, PairFacts
from local_tp.hardware.diagnose import diagnose

PLACES = ("0000:01:00.0", "0000:02:00.0", "0000:41:00.0", "cpu")
NAMES = ("NVIDIA GeForce RTX 3090", "NVIDIA A100-SXM4-80GB", "AMD Radeon RX 7900 XTX", "", "card")

places = st.sampled_from(PLACES)
devices = st.builds(Device, id=places, name=st.sampled_from(NAMES), facts=st.from_type(CardFacts))
links = st.builds(Link, a=places, b=places, facts=st.from_type(PairFacts))
rigs = st.builds(
    Rig,
    devices=st.lists(devices, max_size=4).map(tuple),
    links=st.lists(links, max_size=4).map(tuple),
)


@given(rigs)
@settings(max_examples=40, deadline=None, suppress_health_check=list(HealthCheck))
def test_no_machine_breaks_a_rule(rig: Rig) -> None:
    found = diagnose(rig)
    for finding in found:
        assert finding.evidence
        assert finding.cost
        assert finding.remedy
    ranks = [("error", "warning", "info").index(finding.severity) for finding in found]
    assert ranks == sorted(ranks)
    assert diagnose(rig) == found


@given(st.from_type(Device), st.sampled_from(("NVIDIA GeForce RTX 3090", "card", "")))
@settings(max_examples=20, deadline=None, suppress_health_check=list(HealthCheck))
def test_a_card_of_which_nothing_more_is_known_is_well(device: Device, name: str) -> None:
    bare = replace(
        device,
        kind="cuda",
        name=name,
        total=24 * 1024**3,
        capability=(8, 6),
        bandwidth=None,
        pcie=None,
    )
    assert diagnose(Rig((replace(bare, facts=CardFacts(vendor="nvidia")),))) == ()

"""Which figure is taken for what lies between ranks: measured, linked, or rated."""

from __future__ import annotations

from dataclasses import replace

import pytest

from local_tp.core import Device, Link, Pcie
from local_tp.facts import CardFacts, Collective, PairFacts
from local_tp.hardware.rigs import DIRECT, LANE, STAGED
from local_tp.plan.channels import UNKNOWN_LANES, copy_rate, hand_over, sum_channel
from local_tp.rates import Channel, Efficiency, Rates, Wire

RATES = Rates(
    "test",
    {"cuda other": Efficiency(1, 1)},
    {},
    0.0,
    wires={
        "nccl host": Wire(3e-5, rank=1e-6, small=1e6, slow=1e9, crowded=True),
        "nccl direct": Wire(1e-5, rank=2e-6),
        "nccl nvlink": Wire(8e-6),
        "shared-memory host": Wire(4e-5, rank=1e-5, most=2e9),
    },
)
SLOT = LANE * 2**4 * 16  # PCI Express 4.0 x16


def cards(count: int, lanes: int = 16) -> list[Device]:
    pcie = Pcie(4, lanes, 4, lanes)
    return [Device(f"0000:0{i}:00.0", "cuda", "card", 1, 1, pcie=pcie) for i in range(1, count + 1)]


def joined(devices: list[Device], link: Link) -> list[Link]:
    return [replace(link, a=a.id, b=b.id) for i, a in enumerate(devices) for b in devices[i + 1 :]]


def test_one_rank_has_nothing_to_exchange() -> None:
    assert sum_channel(cards(1), [], [], "none", RATES) == Channel()


def test_without_a_link_all_goes_through_the_memory_of_the_pc() -> None:
    two = sum_channel(cards(2), [], [], "nccl", RATES)
    assert two == Channel(3e-5, STAGED * SLOT, 1e6, 1e9)
    four = sum_channel(cards(4), [], [], "nccl", RATES)
    assert four.latency == pytest.approx(3.2e-5)
    assert four.bandwidth == pytest.approx(STAGED * SLOT / 1.5 / 2)  # a ring, and a shared way
    assert four.slow == pytest.approx(1e9 / 1.5)


def test_the_narrowest_slot_counts() -> None:
    mixed = [*cards(1), replace(cards(2, lanes=4)[1])]
    assert sum_channel(mixed, [], [], "nccl", RATES).bandwidth == pytest.approx(STAGED * SLOT / 4)


def test_a_verified_link_is_used_directly_and_an_unverified_one_is_not() -> None:
    two = cards(2)
    good = joined(two, Link("", "", "p2p", verified=True))
    assert sum_channel(two, good, [], "nccl", RATES) == Channel(1e-5, DIRECT * SLOT)
    doubtful = joined(two, Link("", "", "p2p"))
    assert sum_channel(two, doubtful, [], "nccl", RATES).latency == 3e-5


def test_more_than_two_cards_go_directly_only_below_one_switch() -> None:
    four = cards(4)
    far = joined(four, Link("", "", "p2p", verified=True, facts=PairFacts(path="PHB")))
    near = joined(four, Link("", "", "p2p", verified=True, facts=PairFacts(path="PIX")))
    assert sum_channel(four, far, [], "nccl", RATES).latency == pytest.approx(3.2e-5)
    assert sum_channel(four, near, [], "nccl", RATES).latency == pytest.approx(1.4e-5)


def test_a_bridge_has_its_own_rate() -> None:
    two = cards(2)
    bridge = joined(two, Link("", "", "nvlink", 46e9, verified=True))
    assert sum_channel(two, bridge, [], "nccl", RATES) == Channel(8e-6, 46e9)
    assert hand_over(*two, bridge, "nccl", RATES) == Channel(8e-6, 46e9)


def test_a_measured_sum_wins() -> None:
    two = cards(2)
    names = tuple(d.id for d in reversed(two))
    timed = [
        Collective("nccl", 2, 1000, 2e-5, True, names),
        Collective("nccl", 2, 1_001_000, 1.02e-3, True, names),
        Collective("nccl", 2, 1000, 1.0, False, names),
        Collective("gloo", 2, 1000, 1.0, True, names),
    ]
    found = sum_channel(two, [], timed, "nccl", RATES)
    assert found.seconds(1000) == pytest.approx(2e-5)
    assert found.seconds(1_001_000) == pytest.approx(1.02e-3)
    assert sum_channel(cards(3), [], timed, "nccl", RATES).latency == pytest.approx(3.1e-5)


def test_one_timed_sum_is_a_latency() -> None:
    cpu = Device("cpu", "cpu", "processor", 1, 1)
    timed = [Collective("shared-memory", 2, 4096, 7e-5, True, ("cpu", "cpu"))]
    assert sum_channel([cpu, cpu], [], timed, "shared-memory", RATES) == Channel(7e-5)
    assert sum_channel([cpu] * 3, [], timed, "shared-memory", RATES).latency == pytest.approx(5e-5)


def test_a_measured_link_and_its_staged_rate_win_over_the_slot() -> None:
    two = cards(2)
    measured = joined(two, Link("", "", "host", 5e9, measured=True))
    assert sum_channel(two, measured, [], "nccl", RATES).bandwidth == 5e9
    staged = joined(two, Link("", "", "host", facts=PairFacts(staged=6e9)))
    assert sum_channel(two, staged, [], "nccl", RATES).bandwidth == 6e9


def test_copies_from_memory_take_the_measured_rate_or_the_slot() -> None:
    card = cards(1)[0]
    assert copy_rate(card) == pytest.approx(DIRECT * SLOT)
    assert copy_rate(replace(card, facts=CardFacts(copy_to=3e9))) == 3e9
    assert copy_rate(replace(card, pcie=None)) == pytest.approx(DIRECT * UNKNOWN_LANES)
    assert copy_rate(Device("cpu", "cpu", "processor", 1, 1)) == float("inf")


def test_messages_begin_slowly() -> None:
    channel = Channel(1e-5, 1e10, small=1e6, slow=1e9)
    assert channel.seconds(5e5) == pytest.approx(1e-5 + 5e-4)
    assert channel.seconds(2e6) == pytest.approx(1e-5 + 1e-3 + 1e-4)

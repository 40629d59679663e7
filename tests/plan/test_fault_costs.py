"""What a fault costs: two real plans of one model, and only where a person would notice."""

from __future__ import annotations

import re
from dataclasses import replace
from functools import partial

import pytest

from local_tp.checkpoint.known_models import known_model
from local_tp.core import Link, Pcie, Rig
from local_tp.facts import Finding, PairFacts, PcieReading
from local_tp.hardware.rates import load_rates
from local_tp.hardware.rigs import load_rig
from local_tp.plan.fault_costs import with_costs
from local_tp.plan.planner import Knowledge

KNOWLEDGE = Knowledge(load_rates())
MODELS = [partial(known_model, name, "Q4_K_M") for name in ("qwen3-32b", "llama-3.1-8b")]
IDS = ("0000:01:00.0", "0000:02:00.0")


def finding(name: str, *devices: str) -> Finding:
    return Finding(name, "warning", devices, "seen", "cost", "do")


def in_slot(rig: Rig, id: str, width: int) -> Rig:
    devices = tuple(
        replace(
            d,
            pcie=Pcie(4, width, 4, width),
            facts=replace(d.facts, pcie_card=PcieReading(4, 16)),
        )
        if d.id == id
        else d
        for d in rig.devices
    )
    return replace(rig, devices=devices)


def two_cards() -> Rig:
    rig = load_rig("rtx3090-x2")
    assert [d.id for d in rig.devices if d.kind == "cuda"] == list(IDS)
    pair = Link(*IDS, "host", facts=PairFacts(path="PHB"))
    wide = in_slot(in_slot(rig, IDS[0], 16), IDS[1], 16)
    return replace(wide, links=(pair,), collectives=())


def figures(cost: str) -> list[tuple[float, float]]:
    found = re.findall(r"([\d,]+) tokens/s of an? \w+ instead of ([\d,]+)", cost)
    return [(float(a.replace(",", "")), float(b.replace(",", ""))) for a, b in found]


def test_a_riser_costs_prompts_of_a_tensor_split() -> None:
    rig = in_slot(two_cards(), IDS[1], 1)
    (told,) = with_costs(rig, [finding("pcie-x1", IDS[1])], MODELS, KNOWLEDGE)
    assert told.cost.startswith("cost; by the plan, Qwen3 32B in tensor split: ")
    slow, fast = figures(told.cost)[-1]
    assert "of a prompt" in told.cost
    assert fast > 2 * slow


def test_peer_to_peer_costs_less_than_lanes() -> None:
    (told,) = with_costs(two_cards(), [finding("p2p-off", *IDS)], MODELS, KNOWLEDGE)
    slow, fast = figures(told.cost)[-1]
    assert 1.03 * slow <= fast < 2 * slow


@pytest.mark.parametrize("name", ["swap-off", "memory-in-use", "pcie-narrow"])
def test_what_makes_no_difference_is_not_told(name: str) -> None:
    """No link's fault, or a card that has all its lanes already."""
    found = [finding(name, IDS[0])]
    assert with_costs(two_cards(), found, MODELS, KNOWLEDGE) == tuple(found)


def test_one_card_has_no_partner_and_the_model_is_one_that_fits() -> None:
    found = [finding("pcie-x1", IDS[1])]
    rig = in_slot(two_cards(), IDS[1], 1)
    alone = replace(rig, devices=tuple(d for d in rig.devices if d.id != IDS[0]), links=())
    assert with_costs(alone, found, MODELS, KNOWLEDGE) == tuple(found)
    small = tuple(
        replace(d, total=8 << 30, free=8 << 30) if d.kind == "cuda" else d for d in rig.devices
    )
    (told,) = with_costs(replace(rig, devices=small), found, MODELS, KNOWLEDGE)
    assert "by the plan, Llama 3.1 8B in tensor split: " in told.cost
    none = tuple(
        replace(d, total=1 << 30, free=1 << 30) if d.kind == "cuda" else d for d in rig.devices
    )
    assert with_costs(replace(rig, devices=none), found, MODELS, KNOWLEDGE) == tuple(found)

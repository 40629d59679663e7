"""Plans on machines of a few bytes: who gets what, why, and what is refused with which remedy."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from small_specs import MIB, SMALL, cards, processors, small_spec

from local_tp.core import Device, Goal, ModelSpec, Placement, Plan, Rig, Span, Split
from local_tp.errors import DoesNotFit, PlanError
from local_tp.hardware.rates import load_rates
from local_tp.plan import planner
from local_tp.plan.planner import PAGE_SIZE, Knowledge, choose_transport
from local_tp.plan.search.objective import seconds

SPEC = small_spec(matrices="F16")
BIG = small_spec(replace(SMALL, hidden=4096, ffn=4096, vocab=4096, layers=2), "F16")
KNOWLEDGE = Knowledge(load_rates())


def make_plan(
    spec: ModelSpec,
    devices: Sequence[Device],
    goal: Goal,
    placements: tuple[Placement, ...] | None = None,
) -> Plan:
    return planner.make_plan(spec, devices, goal, KNOWLEDGE, (), placements)


def need(plan: Plan, device: str) -> int:
    return sum(p.memory.total for p in plan.placements if p.device == device)


def wait(plan: Plan) -> float:
    assert plan.prediction is not None
    return seconds(plan.prediction, "chat")


def decode(plan: Plan) -> float:
    assert plan.prediction is not None
    return plan.prediction.decode


def with_free(devices: list[Device], *free: int) -> list[Device]:
    return [replace(d, free=f, total=f) for d, f in zip(devices, free, strict=True)]


# ----------------------------------------------------------------------------- named splits


def test_single_holds_the_whole_model() -> None:
    plan = make_plan(SPEC, processors(1), Goal(split="single", context=256, streams=2))
    (p,) = plan.placements
    assert (p.layers, p.query_heads, p.kv_heads) == (Span(0, 6), Span(0, 6), Span(0, 2))
    assert (p.ffn, p.vocab) == (Span(0, 256), Span(0, 512))
    assert (plan.split, plan.stages, plan.transport) == ("single", 1, "none")
    assert (plan.context, plan.pages, plan.page_size) == (256, 2 * 256 // PAGE_SIZE, PAGE_SIZE)


def test_layer_split_gives_each_device_a_stage() -> None:
    plan = make_plan(SPEC, cards(1e12, 1e12, 1e12), Goal(split="layer"))
    assert [p.layers for p in plan.placements] == [Span(0, 2), Span(2, 4), Span(4, 6)]
    assert [p.vocab.size for p in plan.placements] == [512, 0, 512]
    assert plan.stages == 3
    assert plan.stage(1) == (plan.placements[1],)


def test_tensor_split_gives_each_device_a_part_of_every_layer() -> None:
    plan = make_plan(SPEC, cards(1e12, 1e12), Goal(split="tensor"))
    assert [p.layers for p in plan.placements] == [Span(0, 6)] * 2
    assert [p.query_heads for p in plan.placements] == [Span(0, 3), Span(3, 6)]
    assert [p.ffn for p in plan.placements] == [Span(0, 128), Span(128, 256)]
    assert [p.vocab for p in plan.placements] == [Span(0, 256), Span(256, 512)]


def test_hybrid_has_a_stage_of_several_ranks_and_one_more() -> None:
    plan = make_plan(SPEC, cards(1e12, 1e12, 1e12), Goal(split="hybrid"))
    assert [p.stage for p in plan.placements] in ([0, 0, 1], [0, 1, 1])
    assert plan.stages == 2
    assert sum(plan.stage(i)[0].layers.size for i in range(2)) == 6


def test_of_unequal_cards_the_faster_gets_the_larger_share() -> None:
    layer = make_plan(SPEC, cards(2e12, 1e12), Goal(split="layer"))
    assert [p.layers.size for p in layer.placements] == [5, 1]  # one user waits for every layer
    tensor = make_plan(BIG, cards(3e12, 1e12), Goal(split="tensor"))
    assert [p.ffn.size for p in tensor.placements] == [3072, 1024]
    assert [p.vocab.size for p in tensor.placements] == [3072, 1024]


# ------------------------------------------------------------------------------- room


@pytest.mark.parametrize("split", ["single", "layer", "tensor", "hybrid"])
def test_a_machine_with_exactly_the_room_is_enough_and_a_byte_less_is_not(split: Split) -> None:
    devices = cards(1e12) if split == "single" else cards(1e12, 1e12, 1e12)
    goal = Goal(split=split, context=512)
    plan = make_plan(SPEC, devices, goal)
    exact = [need(plan, d.id) for d in devices]
    assert make_plan(SPEC, with_free(devices, *exact), goal).placements == plan.placements
    for i in range(len(devices)):
        tight = [free - (at == i) for at, free in enumerate(exact)]
        with pytest.raises(DoesNotFit) as caught:
            make_plan(SPEC, with_free(devices, *tight), goal)
        assert caught.value.device == devices[i].id
        assert (caught.value.need, caught.value.have) == (exact[i], exact[i] - 1)


def remedied(error: DoesNotFit, goal: Goal) -> Goal:
    """`goal` as the remedy says."""
    match = re.search(r"set --context (\d+) instead of (\d+)", error.remedy)
    assert match is not None, error.remedy
    assert int(match[1]) < int(match[2])
    return replace(goal, context=int(match[1]))


@settings(deadline=None, max_examples=15)
@given(
    st.sampled_from(["layer", "tensor", "hybrid", None]),
    st.lists(st.integers(0, 95), min_size=3, max_size=3),
    st.integers(100, 3000),
    st.integers(1, 5),
)
def test_the_context_a_remedy_names_really_fits_on_every_device(
    split: Split | None, percent: list[int], context: int, streams: int
) -> None:
    devices = cards(1e12, 2e12, 1e12)
    goal = Goal(split=split, context=context, streams=streams)
    roomy = make_plan(SPEC, devices, goal)
    by_device = {p.device: p for p in roomy.placements}
    one_page = streams * PAGE_SIZE / (roomy.pages * PAGE_SIZE)
    free = [
        need(roomy, d.id) - int(by_device[d.id].memory.kv * share / 100 * (1 - one_page))
        for d, share in zip(devices, percent, strict=True)
    ]
    small = with_free(devices, *free)
    goal = replace(goal, split=roomy.split)
    try:
        make_plan(SPEC, small, goal)
    except DoesNotFit as error:
        make_plan(SPEC, small, remedied(error, goal))


def test_a_model_whose_weights_are_too_large_is_not_told_to_shorten_the_context() -> None:
    (card,) = cards(1e12)
    big = small_spec(replace(SMALL, ffn=65536), "F16")
    weights = make_plan(big, [card], Goal(split="single")).placements[0].memory.weights
    with pytest.raises(DoesNotFit, match="add a device with --devices") as caught:
        make_plan(big, with_free([card], weights // 2), Goal(split="single"))
    assert "--context" not in str(caught.value)
    assert f"weights alone take {weights // MIB:,} MiB" in str(caught.value)


def test_the_refusal_is_one_line_with_need_and_have() -> None:
    plan = make_plan(SPEC, processors(1), Goal(context=4096))
    have = need(plan, "cpu") - 20 * MIB
    with pytest.raises(DoesNotFit) as caught:
        make_plan(SPEC, processors(1, have), Goal(context=4096))
    text = str(caught.value)
    assert text.startswith(
        f"cpu needs {-(-need(plan, 'cpu') // MIB):,} MiB and has {have // MIB:,} MiB free: set "
    )
    assert "\n" not in text
    assert caught.value.exit_code == 2


def test_ranks_on_one_device_share_its_memory() -> None:
    goal = Goal(split="tensor", context=512)
    plan = make_plan(SPEC, processors(2), goal)
    both = need(plan, "cpu")
    assert both > 1.2 * (plan.placements[0].memory.weights + plan.placements[0].memory.kv)
    make_plan(SPEC, processors(2, both), goal)
    with pytest.raises(DoesNotFit) as caught:
        make_plan(SPEC, processors(2, both - 1), goal)
    assert caught.value.need == both


def test_a_reserve_is_kept_free_and_a_persons_own_replaces_it() -> None:
    (card,) = cards(1e12)
    goal = Goal(split="single", context=512)
    exact = need(make_plan(SPEC, [card], goal), card.id)
    careful = replace(card, free=exact + 1000, reserve=1000)
    make_plan(SPEC, [careful], goal)
    with pytest.raises(DoesNotFit):
        make_plan(SPEC, [careful], replace(goal, reserve={card.id: 1001}))
    make_plan(SPEC, [replace(careful, free=exact)], replace(goal, reserve={card.id: 0}))


# ---------------------------------------------------------------------------------- refusals


@pytest.mark.parametrize(
    ("devices", "goal", "words"),
    [
        ([], Goal(), "at least one device"),
        (processors(2), Goal(split="single"), "split single takes one device, 2 were named"),
        (processors(2), Goal(split="hybrid"), "split hybrid needs three devices, 2 named"),
        (processors(7), Goal(split="layer"), "7 stages need at least 7 layers, the model has 6"),
        (processors(1), Goal(context=8193), "8,193 is more than the model's 8,192: lower it"),
        (processors(1), Goal(context=0), "--context 0 is not a length"),
    ],
)
def test_what_cannot_be_is_refused_in_one_line(
    devices: list[Device], goal: Goal, words: str
) -> None:
    with pytest.raises(PlanError, match=re.escape(words)) as caught:
        make_plan(SPEC, devices, goal)
    assert "\n" not in str(caught.value)


def test_the_default_context_is_noted_where_the_model_has_more() -> None:
    plan = make_plan(SPEC, processors(1), Goal())
    assert plan.context == 4096
    assert "context 4,096 of the model's 8,192: raise it with --context" in plan.notes
    short = small_spec(replace(SMALL, context=1024))
    plan = make_plan(short, processors(1), Goal())
    assert (plan.context, plan.notes) == (1024, ())


def test_a_context_is_rounded_up_to_whole_pages_for_every_stream() -> None:
    plan = make_plan(SPEC, processors(1), Goal(context=PAGE_SIZE + 1, streams=3))
    assert (plan.context, plan.pages) == (PAGE_SIZE + 1, 2 * 3)


# -------------------------------------------------------------------------- the open choice


def test_one_device_is_not_split() -> None:
    assert make_plan(SPEC, cards(1e12), Goal()).split == "single"


def test_the_faster_split_is_chosen_and_both_predictions_are_noted() -> None:
    devices = processors(2)
    plans = {
        split: make_plan(SPEC, devices, Goal(split=split, context=64))
        for split in ("tensor", "layer")
    }
    plan = make_plan(SPEC, devices, Goal(context=64))
    best = min(plans, key=lambda split: wait(plans[split]))
    other = "layer" if best == "tensor" else "tensor"
    assert plan.split == best
    assert decode(plan) == decode(plans[best])
    assert (
        f"{best} split: predicted {decode(plans[best]):.0f} tokens/s in decode, "
        f"{other} split {decode(plans[other]):.0f}"
    ) in plan.notes


def test_devices_of_different_kinds_are_split_by_layer_and_told_why() -> None:
    plan = make_plan(SPEC, [*cards(1e12), *processors(1)], Goal())
    assert plan.split == "layer"
    assert any("different kinds" in note for note in plan.notes)


def test_more_devices_than_layers_leave_only_the_tensor_split() -> None:
    assert make_plan(SPEC, processors(7), Goal()).split == "tensor"


def test_a_split_without_room_is_passed_over_for_one_that_fits() -> None:
    devices = cards(1e12, 1e12, kind="rocm")
    goal = Goal(context=768)
    plans = {
        split: make_plan(SPEC, devices, replace(goal, split=split)) for split in ("tensor", "layer")
    }
    rooms = [need(plans["tensor"], d.id) for d in devices]
    assert any(need(plans["layer"], d.id) > room for d, room in zip(devices, rooms, strict=True))
    plan = make_plan(SPEC, with_free(devices, *rooms), goal)
    assert plan.split == "tensor"
    assert "tensor split: layer split has no room" in plan.notes


def test_where_no_split_fits_the_refusal_has_a_remedy_that_works() -> None:
    devices = cards(1e12, 1e12)
    goal = Goal(context=2048)
    exact = [need(make_plan(SPEC, devices, replace(goal, split="tensor")), d.id) for d in devices]
    small = with_free(devices, *(e - 500_000 for e in exact))
    with pytest.raises(DoesNotFit) as caught:
        make_plan(SPEC, small, goal)
    assert make_plan(SPEC, small, remedied(caught.value, goal)).split == "tensor"


# -------------------------------------------------------------------------------- transport


def test_transports() -> None:
    two = cards(1e12, 1e12)
    assert choose_transport(two[:1]) == "none"
    assert choose_transport(processors(2)) == "shared-memory"
    assert choose_transport(two) == "nccl"
    assert choose_transport([two[0], two[0]]) == "gloo"
    assert choose_transport([two[0], *processors(1)]) == "gloo"
    assert choose_transport(cards(1e12, 1e12, kind="xpu")) == "gloo"


# ----------------------------------------------------------------------- a person's placement


def test_a_persons_placement_is_planned_as_given() -> None:
    devices = processors(2)
    front, back = make_plan(SPEC, devices, Goal(split="layer")).placements
    mine = (replace(front, layers=Span(0, 1)), replace(back, layers=Span(1, 6)))
    plan = make_plan(SPEC, devices, Goal(), mine)
    assert [p.layers for p in plan.placements] == [Span(0, 1), Span(1, 6)]
    assert plan.split == "layer"
    assert plan.placements[1].memory.kv == 5 * plan.placements[0].memory.kv


@pytest.mark.parametrize("split", ["single", "layer", "tensor", "hybrid"])
def test_a_persons_split_gets_its_name(split: Split) -> None:
    devices = processors(1 if split == "single" else 3)
    goal = Goal(context=64)
    plan = make_plan(SPEC, devices, replace(goal, split=split))
    assert make_plan(SPEC, devices, goal, plan.placements).split == split


# ------------------------------------------------------------------------- the longest context

LONGEST = Goal(objective="context", streams=1, kv_format="bfloat16")


def tight_cards(count: int) -> list[Device]:
    """Cards with room for the weights and some thousand tokens."""
    roomy = make_plan(SPEC, cards(*[1e12] * count), replace(LONGEST, context=64, split=None))
    most = max(p.memory.total for p in roomy.placements)
    return with_free(cards(*[1e12] * count), *[most + MIB] * count)


def has_room(plan: Plan, devices: Sequence[Device]) -> bool:
    return all(need(plan, device.id) <= device.free for device in devices)


@pytest.mark.parametrize("shares", [(1.0, 1.0), (3.0, 1.0)])
def test_the_longest_context_by_shares_fills_a_card_and_a_page_more_does_not(
    shares: tuple[float, ...],
) -> None:
    devices = tight_cards(2)
    goal = replace(LONGEST, shares=shares, split="layer")
    plan = make_plan(SPEC, devices, goal)
    assert 64 < plan.context < SPEC.dimensions.context
    assert has_room(plan, devices)
    assert f"context {plan.context:,}: what the memory holds when it is full" in plan.notes
    with pytest.raises(DoesNotFit):
        make_plan(SPEC, devices, replace(goal, objective="chat", context=plan.context + PAGE_SIZE))


def test_the_longest_context_of_given_placements() -> None:
    devices = tight_cards(2)
    made = make_plan(SPEC, devices, replace(LONGEST, split="tensor", context=64))
    plan = make_plan(SPEC, devices, LONGEST, made.placements)
    assert [p.ffn for p in plan.placements] == [p.ffn for p in made.placements]
    assert 64 < plan.context < SPEC.dimensions.context
    assert has_room(plan, devices)
    more = replace(LONGEST, objective="chat", context=plan.context + PAGE_SIZE)
    with pytest.raises(DoesNotFit):
        make_plan(SPEC, devices, more, made.placements)
    asked = make_plan(SPEC, devices, replace(LONGEST, context=96), made.placements)
    assert asked.context == 96
    assert "context 96: as long as was asked for" in asked.notes


def test_the_longest_context_of_a_hybrid_split_on_a_machine() -> None:
    devices = tight_cards(3)
    rig = Rig(tuple(devices))
    goal = replace(LONGEST, split="hybrid")
    plan = planner.best_plan(SPEC, rig, goal, KNOWLEDGE)
    assert plan.split == "hybrid"
    assert has_room(plan, devices)
    longer = replace(goal, objective="chat", context=plan.context + PAGE_SIZE, offload="none")
    with pytest.raises(DoesNotFit):
        planner.best_plan(SPEC, rig, longer, KNOWLEDGE)


def test_a_hybrid_split_of_two_cards_is_refused_by_number() -> None:
    rig = Rig((*cards(1e12, 1e12), *processors(1)))
    with pytest.raises(PlanError, match="split hybrid needs 3 cards, 2 here"):
        planner.best_plan(SPEC, rig, Goal(split="hybrid"), KNOWLEDGE)

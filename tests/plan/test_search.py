"""What the search does on machines that people have, and what it says about it."""

from __future__ import annotations

import re
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from small_specs import SMALL, cards, processors, small_spec

from local_tp.checkpoint.known_models import known_model
from local_tp.core import Device, DeviceKind, Goal, ModelSpec, Objective, Plan, Rig, Span
from local_tp.errors import DoesNotFit
from local_tp.facts import Collective
from local_tp.hardware.rates import load_rates
from local_tp.plan.check import check_placements
from local_tp.plan.costs import PARTS, Share, placement_of, tables_of
from local_tp.plan.costs_lines import NUMBERS, added
from local_tp.plan.layout import weight_bytes
from local_tp.plan.planner import PAGE_SIZE, Knowledge, best_plan
from local_tp.plan.search.mixes import Mixes
from local_tp.plan.work import work_of

GIB = 1 << 30
KNOWLEDGE = Knowledge(load_rates())
LLAMA = known_model("Llama 3.1 8B", "Q4_K_M")
STORED = Goal(dtype="stored")


def card(
    at: int, name: str, size: float, bandwidth: float, flops: float, display: int = 0
) -> Device:
    """A card of so many GiB, GB/s and tera-operations; `display` GiB of it are in use."""
    total = int(size * GIB)
    return Device(
        f"0000:0{at}:00.0",
        "cuda",
        name,
        total,
        int(total * 0.98) - display * GIB,
        reserve=GIB // 2,
        bandwidth=bandwidth * 1e9,
        flops=flops * 1e12,
        capability=(8, 6),
    )


def rtx3090(at: int) -> Device:
    return card(at, "RTX 3090", 24, 936, 71)


def rtx3060(at: int) -> Device:
    return card(at, "RTX 3060", 12, 360, 25.5)


def rig(*devices: Device, ram: int = 64) -> Rig:
    cpu = Device("cpu", "cpu", "processor", ram * GIB, ram * GIB, bandwidth=50e9, flops=1e12)
    return Rig((*devices, cpu), ram=ram * GIB, available_ram=ram * GIB, cores=8)


def need(plan: Plan, device: str) -> int:
    return sum(p.memory.total for p in plan.placements if p.device == device)


def fits(plan: Plan, machine: Rig) -> bool:
    return all(need(plan, d.id) <= d.free - d.reserve for d in machine.devices)


# ------------------------------------------------------------------------- tables and truth

WHOLE = small_spec(replace(SMALL, ffn=1024, vocab=1024, query_heads=8, kv_heads=4), "Q4_0")
EXPERTS = known_model("GLM 4.5 Air", "Q4_K_M")
SMALL_EXPERTS = known_model("Qwen3 Next 80B-A3B", "Q4_K_M")


TABLED: dict[str, tuple[ModelSpec, Goal, DeviceKind]] = {
    "packed on the processor": (WHOLE, Goal(), "cpu"),
    "as stored": (LLAMA, STORED, "cuda"),
    "experts": (EXPERTS, STORED, "cuda"),
    "small experts": (SMALL_EXPERTS, STORED, "cuda"),
}


@pytest.mark.parametrize("name", TABLED)
@settings(deadline=None, max_examples=15)
@given(at=st.tuples(*[st.floats(0, 1)] * 6))
def test_tables_say_what_layout_and_work_say(name: str, at: tuple[float, ...]) -> None:
    spec, goal, kind = TABLED[name]
    d, tables = spec.dimensions, tables_of(spec, goal)
    kv = round(at[0] * d.kv_heads)
    share = Share(
        query=kv * d.query_heads // d.kv_heads,
        kv=kv,
        ffn=round(at[1] * (d.ffn // tables.grain)) * tables.grain,
        experts=round(at[2] * d.experts),
        vocab=round(at[3] * (d.vocab // 64)) * 64,
    )
    start = round(at[4] * (d.layers - 1))
    layers = Span(start, start + 1 + round(at[5] * (d.layers - start - 1)))
    placement = placement_of(layers, share)
    counted = tables.edge_bytes(kind, share, start == 0, layers.stop == d.layers) + sum(
        tables.layer_bytes(kind, tables.of_layer[layer], share) for layer in range(*layers)
    )
    assert counted == weight_bytes(spec, placement, goal.dtype, kind)
    expected = work_of(spec, placement, goal, kind)
    for part, truth in zip(tables.work(kind, layers, share), expected, strict=True):
        for key in ("layers", "launches", "weights", "pool", "chosen", "operations", "kv"):
            assert getattr(part, key) == pytest.approx(getattr(truth, key), rel=1e-9), key


@pytest.mark.parametrize("name", TABLED)
@settings(deadline=None, max_examples=15)
@given(at=st.tuples(*[st.floats(0, 1)] * 5))
def test_many_layers_at_once_are_the_sum_of_each(name: str, at: tuple[float, ...]) -> None:
    spec, goal, kind = TABLED[name]
    d, tables = spec.dimensions, tables_of(spec, goal)
    kv = round(at[0] * d.kv_heads)
    columns = round(at[1] * (d.ffn // tables.grain)) * tables.grain
    share = Share(kv * d.query_heads // d.kv_heads, kv, columns, round(at[2] * d.experts))
    start = round(at[3] * (d.layers - 1))
    mix = tables.counts(Span(start, start + 1 + round(at[4] * (d.layers - start - 1))))
    mixes, layers = Mixes(tables), [(n, c) for c, n in enumerate(mix) if n]
    assert mixes.nbytes(kind, mix, share, 4096) == sum(
        n
        * (
            tables.layer_bytes(kind, c, share)
            + tables.layer_slack(kind, c, share)
            + tables.remembered(kind, c, share, 4096)
        )
        for n, c in layers
    )
    for part in PARTS:
        found = mixes.part(part, kind, mix, share)
        truth = added(part, [(n, tables.layer_part(part, kind, c, share)) for n, c in layers])
        for key in NUMBERS:
            assert getattr(found, key) == pytest.approx(getattr(truth, key), rel=1e-9), key


# --------------------------------------------------------------------------- what people have


def test_layers_of_unequal_size_are_split_by_bytes_and_not_by_count() -> None:
    thick = {
        f"layers.{layer}.{name}": "F32"
        for layer in range(2)
        for name in ("q", "k", "v", "o", "gate", "up", "down")
    }
    spec = small_spec(replace(SMALL, hidden=1024, ffn=4096), "F16", thick)
    goal = Goal(dtype="stored", context=256, streams=1, split="layer", offload="none")
    two = cards(1e12, 1e12, kind="cuda")
    roomy = best_plan(
        spec, Rig(tuple(two)), replace(goal, devices=tuple(d.id for d in two)), KNOWLEDGE
    )
    largest = max(need(roomy, d.id) for d in two)
    tight = tuple(replace(d, free=largest) for d in two)
    plan = best_plan(spec, Rig(tight), goal, KNOWLEDGE)
    first, second = (p.memory.weights for p in plan.placements)
    assert [p.layers.size for p in plan.placements] != [3, 3]
    assert max(first, second) < 1.35 * min(first, second)


@pytest.mark.parametrize("count", [3, 5, 6, 7])
def test_three_five_six_and_seven_cards_share_every_layer(count: int) -> None:
    machine = rig(*(rtx3090(at) for at in range(1, count + 1)))
    named = tuple(d.id for d in machine.devices[:-1])
    plan = best_plan(LLAMA, machine, replace(STORED, split="tensor", devices=named), KNOWLEDGE)
    assert len(plan.placements) == count
    assert sum(p.query_heads.size for p in plan.placements) == 32
    check_placements(LLAMA, plan.placements, machine.devices[:-1])


def test_more_cards_than_kv_heads_share_a_head() -> None:
    spec = known_model("Qwen2.5 7B", "Q4_K_M")  # 4 KV heads
    machine = rig(*(rtx3090(at) for at in range(1, 9)))
    named = tuple(d.id for d in machine.devices[:-1])
    plan = best_plan(spec, machine, replace(STORED, split="tensor", devices=named), KNOWLEDGE)
    assert sum(p.kv_heads.size for p in plan.placements) > spec.dimensions.kv_heads
    check_placements(spec, plan.placements, machine.devices[:-1])


def test_a_small_card_in_the_first_slot_is_not_filled_past_its_room() -> None:
    machine = rig(card(1, "RTX 3070", 8, 448, 40), rtx3090(2))
    spec = known_model("Qwen2.5 32B", "Q4_K_M")
    plan = best_plan(spec, machine, STORED, KNOWLEDGE)
    assert {p.device for p in plan.placements} == {d.id for d in machine.devices[:2]}
    assert fits(plan, machine)


def test_a_second_card_that_slows_is_left_out_and_it_is_said_by_how_much() -> None:
    slow = replace(card(2, "GTX 1650", 4, 128, 3), pcie=None)
    plan = best_plan(LLAMA, rig(rtx3090(1), slow), STORED, KNOWLEDGE)
    assert (plan.split, plan.placements[0].device) == ("single", "0000:01:00.0")
    said = [a for a in plan.alternatives if slow.id in a.devices]
    assert any("makes it slower" in a.reason for a in said)
    assert plan.prediction is not None
    for other in said:
        assert other.prediction is not None
        assert other.prediction.decode < plan.prediction.decode


def test_the_smaller_bandwidth_gets_the_smaller_share() -> None:
    machine = rig(rtx3060(1), card(2, "RTX 5060 Ti", 16, 448, 47))
    plan = best_plan(LLAMA, machine, replace(STORED, split="tensor"), KNOWLEDGE)
    shares = {p.device: p.ffn.size for p in plan.placements}
    assert shares["0000:01:00.0"] / 14336 == pytest.approx(360 / 808, abs=0.03)


def test_a_display_makes_the_plan_smaller_there() -> None:
    spec = known_model("Qwen2.5 32B", "Q4_K_M")
    machine = rig(replace(rtx3090(1), free=10 * GIB), rtx3090(2))
    plan = best_plan(spec, machine, STORED, KNOWLEDGE)
    assert fits(plan, machine)


# ------------------------------------------------------------------------------ where it is tight


def test_layers_go_to_the_processor_only_where_the_cards_have_no_room_and_it_is_said() -> None:
    roomy = best_plan(LLAMA, rig(rtx3090(1)), STORED, KNOWLEDGE)
    assert {p.device for p in roomy.placements} == {"0000:01:00.0"}
    tight = rig(card(1, "RTX 3050", 4, 224, 18))
    goal = replace(STORED, context=4096, streams=1)
    plan = best_plan(LLAMA, tight, goal, KNOWLEDGE)
    assert fits(plan, tight)
    assert any("the cards have no room" in note for note in plan.notes)
    with pytest.raises(DoesNotFit) as caught:
        best_plan(LLAMA, tight, replace(goal, offload="none"), KNOWLEDGE)
    assert "--offload auto instead of none" in caught.value.settings
    assert caught.value.terms[0][0] == "weights"


def test_streamed_layers_are_as_few_as_can_be() -> None:
    tight = rig(card(1, "RTX 3050", 4, 224, 18))
    goal = replace(STORED, context=1024, streams=1, offload="stream")
    plan = best_plan(LLAMA, tight, goal, KNOWLEDGE)
    (placement,) = plan.placements
    assert 0 < placement.streamed.size < 32
    assert placement.streamed.stop == 32
    assert fits(plan, tight)


def test_experts_are_divided_between_cards_and_processor() -> None:
    spec = known_model("Qwen3 30B-A3B", "Q4_K_M")
    machine = rig(rtx3060(1))
    plan = best_plan(spec, machine, replace(STORED, offload="cpu", streams=1), KNOWLEDGE)
    assert fits(plan, machine)
    assert {p.device for p in plan.placements} == {"0000:01:00.0", "cpu"}
    assert any("experts of a layer lie with the processor" in note for note in plan.notes)


def test_a_refusal_lists_settings_that_work() -> None:
    machine = rig(rtx3060(1))
    goal = replace(STORED, context=65536, streams=2, offload="none")
    with pytest.raises(DoesNotFit) as caught:
        best_plan(LLAMA, machine, goal, KNOWLEDGE)
    settings_ = caught.value.settings
    context = next(s for s in settings_ if s.startswith("--context"))
    match = re.fullmatch(r"--context (\d+) instead of 65536", context)
    assert match is not None
    assert fits(best_plan(LLAMA, machine, replace(goal, context=int(match[1])), KNOWLEDGE), machine)
    further = next(s for s in settings_ if s.startswith("a further card"))
    assert re.fullmatch(r"a further card with \d+ GiB free", further)


# -------------------------------------------------------------------------------- objectives


def test_the_longest_context_fills_and_a_little_more_does_not() -> None:
    machine = rig(rtx3060(1))
    goal = replace(STORED, objective="context", streams=1)
    plan = best_plan(LLAMA, machine, goal, KNOWLEDGE)
    assert plan.context > 8192
    assert fits(plan, machine)
    more = plan.context + plan.context // 64 // PAGE_SIZE * PAGE_SIZE
    with pytest.raises(DoesNotFit):
        best_plan(
            LLAMA, machine, replace(STORED, context=more, streams=1, offload="none"), KNOWLEDGE
        )


def test_several_users_get_copies_and_one_user_gets_all_cards() -> None:
    spec = small_spec(replace(SMALL, hidden=2048, ffn=8192, layers=6), "F16")
    machine = rig(*(rtx3090(at) for at in range(1, 5)))
    many = best_plan(spec, machine, Goal(objective="serve", streams=16, context=256), KNOWLEDGE)
    assert many.replicas == 4
    assert many.pages == 4 * 256 // PAGE_SIZE
    used = [p.device for p in many.placements] + [id for copy in many.copies for id in copy]
    assert sorted(used) == [d.id for d in machine.devices[:-1]]
    assert many.prediction is not None
    one = best_plan(spec, machine, Goal(context=256, streams=16), KNOWLEDGE)
    assert one.replicas == 1


def test_quality_takes_the_finest_format_that_keeps_the_floor() -> None:
    spec = small_spec(replace(SMALL, hidden=1024, ffn=4096), "F16")
    machine = Rig(tuple(processors(1)), cores=1)
    easy = best_plan(spec, machine, Goal(objective="quality", floor=1.0), KNOWLEDGE)
    assert easy.goal.dtype == "auto"
    hard = best_plan(spec, machine, Goal(objective="quality", floor=1e6), KNOWLEDGE)
    assert hard.goal.dtype == "int8"
    assert any("no format keeps the floor" in note for note in hard.notes)


# ------------------------------------------------------------------------------- what is said


def test_what_a_persons_choice_costs_is_said_with_both_numbers() -> None:
    machine = rig(rtx3090(1), rtx3060(2))
    best = best_plan(LLAMA, machine, STORED, KNOWLEDGE)
    asked = best_plan(LLAMA, machine, replace(STORED, devices=("0000:02:00.0",)), KNOWLEDGE)
    assert best.prediction is not None
    assert asked.prediction is not None
    (note,) = [n for n in asked.notes if n.startswith("as asked")]
    assert f"predicted {asked.prediction.decode:.1f} tokens/s" in note
    assert "--devices 0000:02:00.0" in note


def test_a_machine_without_cards_gets_two_workers_and_is_told() -> None:
    machine = Rig(tuple(processors(1)), cores=8)
    plan = best_plan(WHOLE, machine, Goal(context=256), KNOWLEDGE)
    assert [p.device for p in plan.placements] == ["cpu", "cpu"]
    assert any(note.startswith("2 workers on the processor") for note in plan.notes)


def test_a_doubt_begins_with_the_key_to_measure_it() -> None:
    plan = best_plan(LLAMA, rig(rtx3090(1), rtx3090(2)), STORED, KNOWLEDGE)
    (doubt,) = plan.doubts
    assert doubt.partition(": ")[0] == "collective nccl 0000:01:00.0 0000:02:00.0"
    assert "3 times slower" in doubt
    assert doubt.endswith("0000:01:00.0 alone is faster")


def test_a_card_that_gains_less_than_predictions_are_off_by_stays_out() -> None:
    """Four cards would be a hundredth faster than one, which holds the model."""
    four = rig(*(rtx3090(slot) for slot in (1, 2, 3, 4)))
    plan = best_plan(known_model("qwen3-30b-a3b", "Q4_K_M"), four, STORED, KNOWLEDGE)
    assert [p.device for p in plan.placements] == ["0000:01:00.0"]
    mine = plan.prediction
    assert mine is not None
    faster = [a for a in plan.alternatives if a.prediction and a.prediction.decode > mine.decode]
    assert faster
    assert all("less than predictions are off by" in a.reason for a in faster)


def test_what_was_measured_is_not_doubted() -> None:
    machine = rig(rtx3090(1), rtx3090(2))
    ids = ("0000:01:00.0", "0000:02:00.0")
    doubted = best_plan(LLAMA, machine, STORED, KNOWLEDGE)
    timed = tuple(
        Collective("nccl", 2, nbytes, 2e-5 + nbytes / 5e9, True, ids) for nbytes in (4096, 1 << 22)
    )
    sure = best_plan(LLAMA, replace(machine, collectives=timed), STORED, KNOWLEDGE)
    assert any(d.startswith("collective") for d in doubted.doubts)
    assert not any(d.startswith("collective nccl 0000:01:00.0 0000:02:00.0:") for d in sure.doubts)


# --------------------------------------------------------------------------------- whole plans


@settings(deadline=None, max_examples=20)
@given(
    st.lists(
        st.tuples(st.sampled_from([4, 6, 8, 12, 16, 24]), st.integers(150, 1800)),
        min_size=1,
        max_size=4,
    ),
    st.sampled_from(["Llama 3.1 8B", "Qwen3 30B-A3B", "Qwen2.5 0.5B"]),
    st.sampled_from(["chat", "serve", "context"]),
    st.sampled_from([1, 4]),
)
def test_every_unit_has_one_owner_and_no_device_more_than_its_room(
    sizes: list[tuple[int, int]], name: str, objective: Objective, streams: int
) -> None:
    spec = known_model(name, "Q4_K_M")
    machine = rig(*(card(i, f"card {i}", s, b, b / 15) for i, (s, b) in enumerate(sizes)))
    goal = replace(STORED, objective=objective, streams=streams)
    plan = best_plan(spec, machine, goal, KNOWLEDGE)
    by_id = {device.id: device for device in machine.devices}
    check_placements(spec, plan.placements, [by_id[p.device] for p in plan.placements], plan.copies)
    assert fits(plan, machine)

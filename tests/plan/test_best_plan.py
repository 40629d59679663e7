"""What the best plan takes and says where a model has more than text needs, or packed weights."""

from __future__ import annotations

from dataclasses import replace

from small_specs import cards, processors, small_spec

from local_tp.core import Goal, Rig
from local_tp.hardware.rates import load_rates
from local_tp.plan import planner
from local_tp.plan.planner import Knowledge

KNOWLEDGE = Knowledge(load_rates())
SPEC = small_spec(matrices="F16")


def test_what_a_model_has_and_text_does_not_need_is_among_the_notes() -> None:
    spec = replace(SPEC, left_out=("its vision part is not loaded",))
    rig = Rig(devices=tuple(processors(1)))
    plan = planner.best_plan(spec, rig, Goal(split="single", context=256), KNOWLEDGE)
    assert "its vision part is not loaded" in plan.notes


def test_cards_with_room_hold_packed_weights_in_16_bits_and_others_as_stored() -> None:
    """They have no kernels for packed ones yet: with room, unpacking once is the faster way."""
    goal, path = Goal(context=64, streams=1), replace(small_spec(matrices="Q4_0"), path="m.gguf")
    wide = planner.best_plan(path, Rig(tuple(cards(1e12))), goal, KNOWLEDGE)
    assert (wide.goal.dtype, wide.context) == ("bfloat16", 64)
    assert any(note.startswith("weights in 16 bits, since there is room") for note in wide.notes)
    (p,) = wide.placements
    packed = planner.make_plan(path, cards(1e12), goal, KNOWLEDGE)
    between = (packed.placements[0].memory.total + p.memory.total) // 2
    tight = planner.best_plan(path, Rig(tuple(cards(1e12, free=between))), goal, KNOWLEDGE)
    assert (tight.goal.dtype, tight.context) == ("auto", 64)
    chosen = planner.best_plan(
        path, Rig(tuple(cards(1e12))), replace(goal, dtype="float32"), KNOWLEDGE
    )
    assert chosen.goal.dtype == "float32"

"""What would end a run is found beforehand, each in one line with what to do."""

from __future__ import annotations

from dataclasses import replace

import pytest
from explained import CARD, GIB, LAYER, MIB, PROCESSOR, RIG, SMALLER, TENSOR, A, B, placement, plan
from small_specs import small_spec

from local_tp.core import Device, Goal, ModelSpec, Plan, Rig, Span
from local_tp.errors import CheckpointError, DeviceError, DoesNotFit, InputError, PlanError
from local_tp.facts import CardFacts, SoftwareFacts
from local_tp.plan.memory import host_bytes_of_plan
from local_tp.plan.preflight import (
    NCCL_SHARED,
    cannot_read,
    files_changed,
    format_notes,
    model_files,
    obstacles,
    replaced,
    stored_alone,
    used_devices,
)

SPEC = small_spec()
SIZES = {"model.gguf": 1 << 30}


def found(
    rig: Rig = RIG, made: Plan = TENSOR, spec: ModelSpec = SPEC, own: bool = True
) -> list[InputError]:
    errors = list(obstacles(spec, rig, made, SIZES, own))
    assert all(len(str(error).splitlines()) == 1 for error in errors)
    return errors


def with_device(device: Device) -> Rig:
    return replace(RIG, devices=tuple(device if d.id == device.id else d for d in RIG.devices))


def software(**changes: object) -> Rig:
    return replace(RIG, software=replace(RIG.software, **changes))  # type: ignore[arg-type]


def test_nothing_stands_in_the_way_of_a_good_plan() -> None:
    assert found() == []
    assert found(made=LAYER) == []


def test_a_shape_is_no_model() -> None:
    (error,) = cannot_read(replace(SPEC, path=""))
    assert isinstance(error, CheckpointError)
    assert "known here by its shape alone: download a GGUF file" in str(error)


def test_a_family_without_a_decoder() -> None:
    (error,) = cannot_read(replace(SPEC, family="mamba2"))
    assert "of the family mamba2, which this version plans and cannot run yet" in str(error)
    for family in ("deepseek_v2", "kimi_k2", "deepseek2"):
        assert list(cannot_read(replace(SPEC, family=family))) == []


def test_files_that_are_gone_or_cut_short() -> None:
    (gone,) = files_changed(SPEC, {"model.gguf": None})
    assert str(gone) == "model.gguf is not there any more: name the model's new place"
    needed = max(info.nbytes for info in SPEC.tensors.values())
    (cut,) = files_changed(SPEC, {"model.gguf": needed - 1})
    assert f"has {needed - 1:,} bytes and its header speaks of {needed:,}" in str(cut)
    assert list(files_changed(SPEC, {"model.gguf": needed})) == []
    assert model_files(SPEC) == ("model.gguf",)


def test_devices_that_no_worker_can_open() -> None:
    lost = with_device(replace(CARD, facts=CardFacts(lost=True)))
    (error,) = found(lost)
    assert isinstance(error, DeviceError)
    assert str(error).startswith(f"{A} (NVIDIA GeForce RTX 3090) cannot be used: it is lost")


def test_cards_of_two_makers() -> None:
    mixed = with_device(replace(SMALLER, kind="rocm", name="RX 7600"))
    messages = [str(error) for error in found(mixed)]
    assert any("workers run on NVIDIA cards" in message for message in messages)
    assert any("--devices cuda:0" in message for message in messages)


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"torch": None}, "torch is not installed: run ./start.sh"),
        ({"torch": "2.13.0+cpu", "torch_architectures": ()}, "built for the processor only"),
        ({"torch_architectures": ("sm_90", "sm_120")}, "not for sm_86: install a torch"),
        ({"driver": "530.1"}, "needs 580 or newer: update the driver"),
    ],
)
def test_software_that_does_not_serve_a_card(changes: dict[str, object], words: str) -> None:
    (error,) = found(software(**changes))
    assert isinstance(error, DeviceError)
    assert words in str(error)


def test_software_only_counts_for_cards_that_are_used() -> None:
    rig = software(torch="2.13.0+cpu", torch_architectures=())
    assert found(rig, plan(placement(0, "cpu"), transport="none")) == []
    assert found(replace(RIG, software=SoftwareFacts()), own=False) == []


OLD = replace(CARD, name="Tesla P40", capability=(6, 1))


def test_a_card_without_bfloat16() -> None:
    rig = with_device(OLD)
    rig = replace(rig, software=replace(rig.software, torch_architectures=("sm_61", "sm_86")))
    errors = found(rig)
    assert [type(error) for error in errors] == [PlanError]
    assert f"{A} (Tesla P40, compute capability 6.1) has no bfloat16" in str(errors[0])
    assert "give --kv-format float16" in str(errors[0])
    half = replace(TENSOR, goal=replace(TENSOR.goal, kv_format="float16"))
    assert found(rig, half) == []
    asked = replace(half, goal=replace(half.goal, dtype="bfloat16"))
    (error,) = found(rig, asked)
    assert "give --format float16" in str(error)


def test_what_was_left_open_is_replaced_and_said() -> None:
    goal, notes = replaced(Goal(), [CARD, OLD])
    assert (goal.dtype, goal.kv_format) == ("float16", "float16")
    assert notes == (f"float16 instead of bfloat16, which {A} (Tesla P40) has no units for",)
    for kept in (Goal(dtype="float32"), Goal(dtype="bfloat16")):
        assert replaced(kept, [OLD]) == (kept, ())
    unknown = replace(CARD, capability=None)
    assert replaced(Goal(), [CARD, unknown, PROCESSOR]) == (Goal(), ())


def test_the_pc_s_memory_while_loading() -> None:
    need = host_bytes_of_plan(TENSOR.placements, loading=True)
    assert found(with_device(replace(PROCESSOR, free=need))) == []
    (error,) = found(with_device(replace(PROCESSOR, free=need - 3 * MIB)))
    assert isinstance(error, DoesNotFit)
    assert (error.device, error.need) == ("cpu while loading", need)
    assert "close programs that use 3 MiB" in str(error)
    limited = replace(RIG, host=replace(RIG.host, memory_limit=need - 1))
    assert isinstance(found(limited)[0], DoesNotFit)


def test_ranks_on_the_processor_count_in_the_pc_s_memory() -> None:
    made = plan(placement(0, "cpu"), placement(1, A, 1), split="layer", transport="gloo")
    kept = made.placements[0].memory.total
    need = host_bytes_of_plan(made.placements, loading=True) + kept
    assert found(with_device(replace(PROCESSOR, free=need)), made) == []
    (error,) = found(with_device(replace(PROCESSOR, free=need - 1)), made)
    assert isinstance(error, DoesNotFit)
    assert error.need == need


def test_shared_memory_of_a_container() -> None:
    small = replace(RIG, host=replace(RIG.host, shared_memory=2 * NCCL_SHARED - 1))
    (error,) = found(small)
    assert str(error).startswith("/dev/shm needs 64 MiB and has 63 MiB free: start the container")
    assert found(small, replace(TENSOR, transport="gloo")) == []
    assert found(replace(RIG, host=replace(RIG.host, shared_memory=GIB))) == []


def test_stored_formats_are_for_planning() -> None:
    assert list(stored_alone(TENSOR)) == []
    (error,) = stored_alone(replace(TENSOR, goal=replace(TENSOR.goal, dtype="stored")))
    assert "--format stored is for planning" in str(error)


def test_the_plainest_reason_comes_first() -> None:
    errors = list(obstacles(SPEC, software(torch=None), TENSOR, {"model.gguf": None}))
    assert [type(error) for error in errors] == [CheckpointError, DeviceError]


def test_devices_are_named_once_in_rank_order() -> None:
    made = plan(placement(0, B), placement(1, B), copies=((A, A),))
    assert [device.id for device in used_devices(RIG, made)] == [B, A]


def test_a_cut_that_misses_the_grain_is_said() -> None:
    whole = placement(
        0, "cpu", query_heads=Span(0, 6), kv_heads=Span(0, 2), layers=Span(0, 6),
        ffn=Span(0, 256), vocab=Span(0, 512),
    )  # fmt: skip
    goal = Goal()
    good = plan(whole, goal=goal)
    assert list(format_notes(SPEC, RIG, good)) == []
    halves = [replace(whole, rank=0, ffn=Span(0, 40)), replace(whole, rank=1, ffn=Span(40, 256))]
    notes = list(format_notes(SPEC, RIG, plan(*halves, goal=goal)))
    assert (
        "6 matrices take more room than in the file: columns 0-40 cut through Q4_0's blocks of 32"
        in notes
    )
    halves = [replace(whole, rank=0, ffn=Span(0, 4)), replace(whole, rank=1, ffn=Span(4, 256))]
    notes = list(format_notes(SPEC, RIG, plan(*halves, goal=goal)))
    assert "6 matrices take 16 bits: columns 0-4 cut through Q4_0's blocks of 32" in notes
    assert list(format_notes(SPEC, RIG, plan(*halves, goal=Goal(dtype="float32")))) == []

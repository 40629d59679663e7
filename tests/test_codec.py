"""JSON and back is the same value; anything else is one line that names the place."""

from __future__ import annotations

import dataclasses
import json
import types
import typing
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from local_tp.codec import decode, encode
from local_tp.core import (
    EMPTY,
    Device,
    Goal,
    ModelSpec,
    Placement,
    Plan,
    Rig,
    Span,
    TensorInfo,
)
from local_tp.errors import InputError
from local_tp.prediction import Memory, Prediction
from local_tp.tensors import Packing

PLACEMENT = Placement(
    0, "cpu", 0, Span(0, 2), Span(0, 9), Span(0, 3), EMPTY, Span(0, 7), memory=Memory(kv=5)
)
PLAN = Plan(
    "model",
    Goal(("cpu",), reserve={"cpu": 1}),
    (PLACEMENT, PLACEMENT),
    "none",
    2048,
    16,
    128,
    prediction=Prediction(500.0, 50.0, 1.0, 90.0, "memory bandwidth on cpu"),
)


def values(kind: Any, *inside: Any) -> st.SearchStrategy[Any]:
    """Every value of a type hint, with every field of a dataclass filled in; floats are finite.

    A type is not within itself, as tensors are that have parts.
    """
    origin, arguments = typing.get_origin(kind), typing.get_args(kind)
    if dataclasses.is_dataclass(kind) or hasattr(kind, "_fields"):
        if kind in inside:
            return st.nothing()
        hints = typing.get_type_hints(kind)
        fields = {name: values(hint, *inside, kind) for name, hint in hints.items()}
        return st.builds(kind, **fields)
    if origin in (types.UnionType, typing.Union):
        return st.one_of(*(values(argument, *inside) for argument in arguments))
    if origin is tuple and arguments[-1] is Ellipsis:
        items = values(arguments[0], *inside)
        return st.lists(items, max_size=0 if items.is_empty else 3).map(tuple)
    if origin is tuple:
        return st.tuples(*(values(argument, *inside) for argument in arguments))
    if origin is dict:
        items = values(arguments[1], *inside)
        most = 0 if items.is_empty else 3
        return st.dictionaries(st.text(max_size=5), items, max_size=most)
    if kind is float:
        return st.floats(allow_nan=False, allow_infinity=False)
    return st.from_type(kind)


@pytest.mark.parametrize("cls", [Rig, Plan, ModelSpec, Goal])
def test_through_json_and_back(cls: type[object]) -> None:
    @settings(max_examples=25, deadline=None, database=None)
    @given(values(cls))
    def same(value: object) -> None:
        again = decode(cls, json.loads(json.dumps(encode(value), allow_nan=False)))
        assert again == value
        assert repr(again) == repr(value)  # equality alone would let [0, 1] pass for Span(0, 1)

    same()


def test_a_tensor_with_parts_and_parts_of_a_stack() -> None:
    part = TensorInfo((4,), "I32", 16, "a", 8)
    packing = Packing("gptq", (1, 32), ordered=True)
    whole = TensorInfo((8, 64), "INT4-G32-F16", 256, "a", 0, parts={"g_idx": part}, packing=packing)
    stack = TensorInfo((8, 64), "INT4-G32-F16", 256, "a", 0, stack=(whole,))
    assert decode(TensorInfo, json.loads(json.dumps(encode(stack)))) == stack
    assert (stack.ordered, part.ordered) == (True, False)


def test_the_written_form() -> None:
    assert encode(PLACEMENT) == {
        "rank": 0,
        "device": "cpu",
        "stage": 0,
        "layers": [0, 2],
        "query_heads": [0, 9],
        "kv_heads": [0, 3],
        "ffn": [0, 0],
        "vocab": [0, 7],
        "experts": [0, 0],
        "streamed": [0, 0],
        "memory": {
            "weights": 0,
            "kv": 5,
            "state": 0,
            "activations": 0,
            "logits": 0,
            "exchange": 0,
            "context": 0,
            "slack": 0,
            "host": 0,
            "replicated": 0,
        },
    }


def test_absent_keys_take_defaults_each_its_own() -> None:
    first, second = decode(Goal, {}), decode(Goal, {})
    assert first == Goal()
    assert first.reserve is not second.reserve


def changed(path: str, value: object) -> Any:
    """The plan's JSON with one value replaced; a value of `...` removes it."""
    data = encode(PLAN)
    target = data
    *way, last = [int(part) if part.isdigit() else part for part in path.split(".")]
    for part in way:
        target = target[part]
    if value is ...:
        del target[last]
    else:
        target[last] = value
    return data


@pytest.mark.parametrize(
    ("path", "value", "message"),
    [
        ("placements.1.layers", 5, "placements[1].layers: expected [start, stop]"),
        ("placements.1.layers", [1], "placements[1].layers: expected [start, stop]"),
        ("placements.1.layers", [1, "2"], "placements[1].layers[1]: expected a whole number"),
        ("placements", {}, "placements: expected a list"),
        ("placements.0", [], "placements[0]: expected an object"),
        ("placements.0.rank", True, "placements[0].rank: expected a whole number"),
        ("placements.0.rank", 1.0, "placements[0].rank: expected a whole number"),
        ("placements.0.rank", ..., "placements[0].rank: missing: expected a whole number"),
        ("model", None, "model: expected a text"),
        ("prediction.decode", "fast", "prediction.decode: expected a number"),
        ("prediction.decode", False, "prediction.decode: expected a number"),
        ("prediction.decode", 10**400, "prediction.decode: expected a number"),
        ("split", "none", 'split: expected "single" or "layer" or "tensor" or "hybrid"'),
        ("goal.reserve", [1], "goal.reserve: expected an object"),
        ("goal.reserve", {3: 1}, "goal.reserve: expected an object"),
        ("goal.reserve", {"a\nb": "1"}, "goal.reserve['a\\nb']: expected a whole number"),
        ("goal.contxt", 1, "goal: unknown key 'contxt': did you mean context?"),
        ("goal.zzz", 1, "goal: unknown key 'zzz': Goal has devices, split, context, streams,"),
        ("zzz", 1, "Plan: unknown key 'zzz': Plan has model, goal, placements, transport,"),
    ],
)
def test_what_is_wrong_is_named_with_its_place(path: str, value: object, message: str) -> None:
    with pytest.raises(InputError) as caught:
        decode(Plan, changed(path, value))
    text = str(caught.value)
    assert text == message or (message.endswith(",") and text.startswith(message))
    assert "\n" not in text


@pytest.mark.parametrize("data", [None, 3, "plan", [], True])
def test_a_whole_that_is_no_object(data: object) -> None:
    with pytest.raises(InputError, match=r"^Plan: expected an object$"):
        decode(Plan, data)


def test_whole_numbers_serve_as_numbers_and_become_them() -> None:
    device = decode(Device, encode(Device("cpu", "cpu", "c", 1, 1)) | {"bandwidth": 2})
    assert isinstance(device.bandwidth, float)
    assert device.bandwidth == 2.0


def test_a_pair_of_another_length() -> None:
    with pytest.raises(InputError, match=r"^capability: expected a list of 2$"):
        decode(Device, encode(Device("cpu", "cpu", "c", 1, 1)) | {"capability": [8]})


class Named(NamedTuple):
    name: str
    span: Span = EMPTY


@dataclass(frozen=True, slots=True)
class Odd:
    either: int | str | None
    number: Literal[1, 2] | Named


def test_unions_of_several_types() -> None:
    for value in (Odd(3, 2), Odd("x", Named("n", Span(1, 2))), Odd(None, 1)):
        assert decode(Odd, encode(value)) == value
    with pytest.raises(InputError, match=r"^either: expected a whole number or a text or null$"):
        decode(Odd, {"either": 1.5, "number": 1})
    with pytest.raises(InputError, match=r"^number: expected"):
        decode(Odd, {"either": 1, "number": True})


@pytest.mark.parametrize("value", [b"bytes", {1: 2}, {1, 2}, Rig])
def test_what_json_cannot_say_is_a_mistake_of_ours(value: object) -> None:
    with pytest.raises(TypeError, match="JSON cannot say"):
        encode(value)


def test_a_field_type_without_a_json_form_is_a_mistake_of_ours() -> None:
    with pytest.raises(TypeError, match="no JSON form is known"):
        decode(bytes, "x")

"""Messages through a real pipe: whole, in order, or not at all."""

from __future__ import annotations

import io
import os
import threading
from collections.abc import Iterator
from typing import BinaryIO

import pytest

from local_tp.core import (
    Device,
    Dimensions,
    Goal,
    ModelSpec,
    Placement,
    Plan,
    Row,
    RowResult,
    Sampling,
    Span,
    Step,
    TensorInfo,
    TokenLogprob,
)
from local_tp.runtime import wire
from local_tp.traits import Rope, Traits

SPEC = ModelSpec(
    "tiny",
    "/models/tiny.gguf",
    "llama",
    Dimensions(1, 8, 2, 1, 4, 16, 32, 64),
    Traits(ropes=(Rope(5e5),)),
    {"embed": TensorInfo((32, 8), "F32", 1024, "/models/tiny.gguf", 4096)},
)
PLACE = Placement(0, "cpu", 0, Span(0, 1), Span(0, 2), Span(0, 1), Span(0, 16), Span(0, 32))
PLAN = Plan("tiny", Goal(reserve={"cpu": 1}), (PLACE,), "none", 64, 16, 4, notes=("ä",))
ROW = Row(3, (7, 8), 0, (1, 0), Sampling(seed=1, logit_bias=((2, -1.5),)), targets=(8,), score=2)
MESSAGES: list[wire.Command | wire.Answer] = [
    wire.Load(SPEC, PLAN, 0, (Device("cpu", "cpu", "CPU", 2, 1),), 2, None, "/tmp/m", 1.5),
    wire.Run(Step(1, (ROW, ROW))),
    wire.Measure(),
    wire.Stop(),
    wire.Loaded(10, 20),
    wire.Taken(wire.Held(1, 2, 3, 4, 5, 6, 7)),
    wire.Ready(wire.Measured(1, 2, 3.5)),
    wire.Done(1, (RowResult(3, 9, TokenLogprob(9, -0.5, ((9, -0.5),)), (), b"\0\n\xff"),)),
    wire.Fault("bad", "Traceback …\n  two lines"),
]


@pytest.fixture
def pipe() -> Iterator[tuple[BinaryIO, BinaryIO]]:
    reading, writing = os.pipe()
    with open(reading, "rb") as reader, open(writing, "wb") as writer:
        yield reader, writer


def test_every_message_arrives_as_it_was_sent(pipe: tuple[BinaryIO, BinaryIO]) -> None:
    reader, writer = pipe
    for message in MESSAGES:
        wire.write(writer, message)
    writer.close()
    assert [wire.read(reader) for _ in MESSAGES] == MESSAGES
    assert wire.read(reader) is None


def test_a_message_arrives_without_another_behind_it(pipe: tuple[BinaryIO, BinaryIO]) -> None:
    reader, writer = pipe
    for message in MESSAGES:
        wire.write(writer, message)
        assert wire.read(reader) == message


def test_a_message_larger_than_the_pipe(pipe: tuple[BinaryIO, BinaryIO]) -> None:
    reader, writer = pipe
    large = wire.Done(1, (RowResult(1, logits=bytes(range(256)) * 8192),))
    thread = threading.Thread(target=wire.write, args=(writer, large))
    thread.start()
    assert wire.read(reader) == large
    thread.join(5)


@pytest.mark.parametrize("message", MESSAGES[1:3], ids=["long", "short"])
def test_a_stream_that_ends_anywhere_within_a_message_has_ended(
    message: wire.Command | wire.Answer,
) -> None:
    whole = io.BytesIO()
    wire.write(whole, message)
    framed = whole.getvalue()
    assert wire.read(io.BytesIO(framed)) == message
    for length in range(len(framed)):
        assert wire.read(io.BytesIO(framed[:length])) is None


def test_writing_to_nobody_raises(pipe: tuple[BinaryIO, BinaryIO]) -> None:
    reader, writer = pipe
    reader.close()
    with pytest.raises(BrokenPipeError):
        wire.write(writer, wire.Stop())
    with pytest.raises(BrokenPipeError):
        writer.close()  # what could not be sent is still in its buffer

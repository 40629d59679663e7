"""From a published measurement to a question for the time model, or the reason there is none.

A case has everything that `plan.predict` takes, as the source states it. Knows nothing of
constants. What a row leaves open is filled with the usual (a card's own slot, an engine's chunk);
what decides a figure and is not stated (card, model, quantization) leaves the row out.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from calibration.naming import Engine, names
from calibration.rigs import RigUnknown, cards, links_between, processor
from local_tp.checkpoint.known_models import known_model
from local_tp.core import EMPTY, Device, Goal, Link, ModelSpec, Placement, Span, Split
from local_tp.errors import CheckpointError, InputError
from local_tp.plan.place import place

KV_SHARE = {"f16": 1.0, "q8_0": 0.53, "q4_0": 0.28, "Q8": 0.53, "fp8_e5m2": 0.5}  # of 16 bits
LIKELY = re.compile(r"unstated in excerpt \((\d)x (.+) likely\)")
SPECULATIVE = "speculative decoding, acceptance not stated"
PEAK_STREAMS = 64  # where a source says only that it is the peak of many
UNSTATED_DEPTH = 256  # tokens behind a token where no length is stated


class LeftOut(Exception):
    """Why a row is not predicted."""


@dataclass(frozen=True, slots=True)
class Question:
    """One placement of a model on devices, `copies` of it side by side."""

    spec: ModelSpec
    placements: tuple[Placement, ...]
    devices: tuple[Device, ...]
    links: tuple[Link, ...]
    goal: Goal
    copies: int = 1
    kv_share: float = 1.0  # of the bytes that 16-bit keys and values take


@dataclass(frozen=True, slots=True)
class Case:
    """A row that can be predicted.

    `decode` and `prefill` are what was measured, None where the row has none; `unsure` says why
    the row must not count in errors, though it can be compared with its pair.
    """

    id: str
    source: str
    engine: str
    family: str  # of engines that share what is fitted
    split: str
    quant: str
    chunk: int
    reading: Question  # for a prompt
    writing: Question  # for an answer
    decode: float | None
    rows: int
    context: int
    prefill: float | None
    prompt: int
    behind: int
    unsure: str = ""


def case_of(row: Mapping[str, Any]) -> Case:
    """Raises `LeftOut` with the reason."""
    if not row.get("usable", True):
        raise LeftOut("marked as not usable")
    if reason := names().left_out.get(row["id"]):
        raise LeftOut(reason)
    row = {**row, **names().stated.get(row["id"], {})}
    engine = names().engine_of(row["engine"])
    spec = _spec(row)
    unsure, gpus = _gpus(row)
    if row.get("spec_decode"):
        unsure = unsure or SPECULATIVE
    if row.get("concurrency") is None:
        unsure = unsure or "number of users not stated"
    try:
        devices = cards(gpus, row, engine)
    except RigUnknown as error:
        raise LeftOut(str(error)) from error
    reading, writing = _questions(row, spec, devices)
    users = row.get("concurrency") or PEAK_STREAMS
    chunk, depth = row.get("ubatch") or engine.chunk, row.get("context") or 0
    prompt = row.get("prefill_len") or chunk
    return Case(
        id=row["id"],
        source=row["source"].split(" ")[0],
        engine=_engine_name(row, engine),
        family=engine.family or engine.rates,
        split=row["split"],
        quant=row["quant"],
        chunk=min(chunk, prompt),
        reading=reading,
        writing=writing,
        decode=_together(row),
        rows=users,
        context=depth + (row.get("decode_len") or UNSTATED_DEPTH) // 2,
        prefill=None if row["id"] in names().prefill_left_out else row.get("prefill_tps"),
        prompt=prompt,
        behind=depth,
        unsure=unsure,
    )


def _engine_name(row: Mapping[str, Any], engine: Engine) -> str:
    """Splitting every matrix by rows, with a gather after each, is a way of its own, as is doing
    without NCCL among several cards."""
    if row.get("nccl") is False and row["split"] == "tensor":
        return f"{engine.family or engine.rates} butterfly"
    return f"{engine.family or engine.rates} row" if row["split"] == "row" else engine.rates


def _together(row: Mapping[str, Any]) -> float | None:
    """Tokens a second of all users; some rows have those of one."""
    tokens: float | None = row.get("decode_tps")
    if tokens and "per-stream" in row.get("note", ""):
        return float(tokens) * float(row["concurrency"])
    return None if tokens is None else float(tokens)


def _spec(row: Mapping[str, Any]) -> ModelSpec:
    quant = names().quant.get(row["quant"], row["quant"])
    if "unstated" in row["model"] or "unstated" in quant or quant == "not stated":
        raise LeftOut("model or quantization not stated")
    if "Flash-Next" in row["model"]:
        row = dict(row, model="Qwen3.8 Flash Next")
    try:
        return known_model(row["model"], quant)
    except CheckpointError as error:
        raise LeftOut(f"quantization {quant} has no known size") from error


def _gpus(row: Mapping[str, Any]) -> tuple[str, list[str]]:
    """Why a row is unsure, and its cards."""
    gpus = list(row["gpus"])
    if gpus and (match := LIKELY.fullmatch(gpus[0])):
        return "cards only likely", [match[2]] * int(match[1])
    return "", gpus


def _questions(
    row: Mapping[str, Any], spec: ModelSpec, devices: tuple[Device, ...]
) -> tuple[Question, Question]:
    """The questions for reading a prompt and for writing an answer."""
    split, links = row["split"], links_between(devices, row)
    goal = Goal(dtype="stored", kv_format="float16", shares=_shares(row, devices, split))
    share = KV_SHARE.get(row.get("kv") or "f16", 1.0)
    if split == "cpu_offload":
        return _offloaded(row, spec, devices, links, goal, share)
    copies = 1
    if split == "dp":
        copies = int(row["dp"].split("x")[0])
        devices = devices[: len(devices) // copies]
        goal = replace(goal, shares=goal.shares[: len(devices)])
    named: Split = {"row": "tensor", "dp": "tensor"}.get(split, split)
    if len(devices) == 1:
        named = "single"
    placements = place(spec, devices, named, goal)
    question = Question(spec, placements, devices, links, goal, copies, share)
    return question, question


def _shares(row: Mapping[str, Any], devices: tuple[Device, ...], split: str) -> tuple[float, ...]:
    """The ratio that a row states, else by memory in a layer split and equal in a tensor split."""
    for key in ("tensor_split", "gpu_split"):
        if stated := row.get(key):
            return tuple(float(part) for part in stated.split(","))
    if split in ("layer", "single"):
        return tuple(float(device.total) for device in devices)
    return (1.0,) * len(devices)


def _offloaded(
    row: Mapping[str, Any],
    spec: ModelSpec,
    devices: tuple[Device, ...],
    links: tuple[Link, ...],
    goal: Goal,
    share: float,
) -> tuple[Question, Question]:
    """Layers, or experts, that the processor works on; prompts are read on the card, through it."""
    try:
        host = processor(row)
    except RigUnknown as error:
        raise LeftOut(str(error)) from error
    if not devices:
        alone = (host,)
        placements = place(spec, alone, "single", replace(goal, shares=(1.0,)))
        question = Question(spec, placements, alone, (), goal, 1, share)
        return question, question
    layers = spec.dimensions.layers
    if ngl := row.get("n_gpu_layers"):
        on_host = max(0, layers - int(ngl))
        whole = place(spec, devices[:1], "single", replace(goal, shares=(1.0,)))[0]
        first = replace(whole, device=host.id, layers=Span(0, on_host), vocab=EMPTY)
        last = replace(whole, rank=1, stage=1, layers=Span(on_host, layers))
        pair = (host, devices[0])
        streaming = replace(whole, streamed=Span(0, on_host))
        return (
            Question(spec, (streaming,), devices[:1], links, goal, 1, share),
            Question(spec, (first, last), pair, links, goal, 1, share),
        )
    if not (buffers := row.get("buffers_mib")):
        raise LeftOut("what lies with the processor is not stated")
    return _experts_with_host(spec, devices, host, links, goal, share, buffers)


def _experts_with_host(
    spec: ModelSpec,
    devices: tuple[Device, ...],
    host: Device,
    links: tuple[Link, ...],
    goal: Goal,
    share: float,
    buffers: Mapping[str, float],
) -> tuple[Question, Question]:
    """Experts in the parts that the row's buffers show; everything else on the first card."""
    d = spec.dimensions
    whole = place(spec, devices[:1], "single", replace(goal, shares=(1.0,)))[0]
    expert_bytes = sum(t.nbytes for n, t in spec.tensors.items() if ".experts_" in n)
    held = round(d.experts * min(1.0, buffers["CPU"] * 2**20 / expert_bytes))
    first = replace(whole, experts=Span(held, d.experts))
    nothing = replace(
        whole, rank=1, device=host.id, query_heads=EMPTY, kv_heads=EMPTY, ffn=EMPTY, vocab=EMPTY
    )
    second = replace(nothing, experts=Span(0, held))
    question = Question(spec, (first, second), (devices[0], host), links, goal, 1, share)
    return question, question


def cases_of(rows: list[dict[str, Any]]) -> tuple[list[Case], list[tuple[str, str]]]:
    """The rows that can be predicted, and those left out with the reason."""
    cases, left = [], []
    for row in rows:
        try:
            cases.append(case_of(row))
        except LeftOut as reason:
            left.append((row["id"], str(reason)))
        except InputError as error:
            left.append((row["id"], f"no placement: {error}"))
    return cases, left

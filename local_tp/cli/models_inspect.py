"""What a model is, in words: from headers here, or from a few ranges of a file on the hub.

Knows nothing of files. Memory is that of weights as they are stored and of keys and values, for one
conversation on one device, by the planner's own arithmetic; what running adds to it `local-tp plan`
says.
"""

from __future__ import annotations

import argparse
import os
from pathlib import Path

from local_tp.checkpoint import known_models
from local_tp.checkpoint.hub.choice import Choice, choose
from local_tp.checkpoint.hub.client import hub
from local_tp.checkpoint.hub.found import size_text
from local_tp.checkpoint.hub.inspection import Inspection, inspect, inspect_known
from local_tp.checkpoint.hub.listing import repository
from local_tp.checkpoint.hub.names import Reference, parse_reference
from local_tp.checkpoint.hub.remote import skeleton
from local_tp.checkpoint.local_models import STARTER_NAME, installed, named
from local_tp.checkpoint.starter import starter_path
from local_tp.cli.facts import to_json
from local_tp.cli.session import say
from local_tp.cli.terminal import Look, items, look, table, wrapped
from local_tp.core import Goal, KvFormat, ModelSpec, Placement, Span
from local_tp.errors import CheckpointError
from local_tp.plan.memory import kv_bytes, state_bytes

CONTEXTS = (4_096, 16_384, 32_768, 131_072)
KV: tuple[KvFormat, ...] = ("float16", "float32")
MIB = 1 << 20


def run_inspect(parsed: argparse.Namespace) -> int:
    found = _inspected(parsed.name)
    print(to_json(_json(found)) if parsed.json else "\n".join(_lines(found, look())))
    return 0


def _inspected(name: str) -> Inspection:
    """One that is here, one known by its shape, or one on the hub, in this order."""
    if name == STARTER_NAME:
        if not starter_path().is_file():
            raise CheckpointError(
                "the starter model is not here: fetch it with `local-tp models pull starter`"
            )
        return inspect(starter_path(), starter_path().stem)
    model = named(name, installed())
    if model is not None:
        if model.problem is not None:
            raise CheckpointError(f"{model.name} in {model.source}: {model.problem}")
        return inspect(model.path, model.name)
    path = Path(os.path.expanduser(name))
    if os.path.exists(path):
        return inspect(path, name)
    reference = parse_reference(name)
    if reference is not None:
        return _remote(reference)
    if known_models.find(name) is not None:
        return inspect_known(known_models.known_model(name, known_models.DEFAULT))
    raise CheckpointError(
        f"there is no model {name!r}: see `local-tp models`, or give a path or OWNER/NAME[:QUANT] "
        "of the hub"
    )


def _remote(reference: Reference) -> Inspection:
    with hub() as connection:
        found = repository(connection, reference)
        choice = choose(found)
        for line in _others(choice, reference):
            say(line)
        name = f"{reference.repository}:{choice.label}" if choice.label else reference.repository
        with skeleton(connection, found, choice) as path:
            return inspect(path, name, found.licence)


def _others(choice: Choice, reference: Reference) -> list[str]:
    if not choice.others or reference.quant is not None:
        return []
    labels = ", ".join(f"{v.label} {size_text(v.nbytes)}" for v in choice.others)
    return [f"looking at {choice.label} of {len(choice.others)} quantizations: {labels}"]


# ----------------------------------------------------------------------------------- memory


def memory(spec: ModelSpec, nbytes: int) -> list[dict[str, int]]:
    """Bytes of weights, and of keys and values in each format, at several contexts."""
    d = spec.dimensions
    whole = Placement(
        rank=0,
        device="",
        stage=0,
        layers=Span(0, d.layers),
        query_heads=Span(0, d.query_heads),
        kv_heads=Span(0, d.kv_heads),
        ffn=Span(0, d.ffn),
        vocab=Span(0, d.vocab),
    )
    state = state_bytes(spec, whole, 1)
    contexts = sorted({*(c for c in CONTEXTS if c < d.context), d.context})
    return [
        {"context": context, "weights": nbytes}
        | {kv: state + kv_bytes(spec, whole, Goal(streams=1, kv_format=kv), context) for kv in KV}
        for context in contexts
    ]


# ---------------------------------------------------------------------------------- in words


def _json(found: Inspection) -> dict[str, object]:
    d = found.spec.dimensions if found.spec else None
    return {
        "name": found.name,
        "family": found.family,
        "supported": found.refusal is None,
        "refusal": found.refusal,
        "parameters": found.parameters,
        "active_parameters": found.active,
        "dimensions": {field: getattr(d, field) for field in d.__slots__} if d else None,
        "context": d.context if d else None,
        "bytes": found.nbytes,
        "formats": found.formats,
        "files": [{"path": name, "bytes": nbytes} for name, nbytes in found.files],
        "licence": found.licence,
        "chat_template": found.chat_template,
        "memory": memory(found.spec, found.nbytes) if found.spec else [],
        "notes": list(found.notes),
    }


def _lines(found: Inspection, look: Look) -> list[str]:
    rows = [("family", found.family), ("parameters", _parameters(found))]
    if found.spec:
        rows += [("dimensions", _dimensions(found.spec)), ("context", _context(found.spec))]
    rows.append(("weights", f"{size_text(found.nbytes)}: {_mix(found)}"))
    if found.files:
        rows += [
            ("files", _files(found)),
            ("licence", found.licence or "not stated"),
            ("chat template", "yes" if found.chat_template else "no: it completes text"),
        ]
    rows += [
        ("runs here", f"no: {found.refusal}" if found.refusal else "yes"),
    ]
    lines = [look.paint(look.plain(found.name), "strong")]
    for label, text in rows:
        lines += wrapped(text, look, f"  {label:<15}", " " * 17)
    if found.spec:
        lines += ["", "Memory for one conversation on one device, MiB"]
        header = ["context", "weights", "keys and values, f16", "f32"]
        each = memory(found.spec, found.nbytes)
        cells = [
            [f"{row['context']:,}", *(_mib(row[term]) for term in ("weights", *KV))] for row in each
        ]
        lines += table([header, *cells], look, left=0)
    return [*lines, *([""] if found.notes else []), *items(found.notes, look)]


def _parameters(found: Inspection) -> str:
    if found.parameters is None:
        return "not known"
    total = _count(found.parameters)
    if found.active is not None and found.active < found.parameters:
        return f"{total}, of which a token meets {_count(found.active)}"
    return total


def _count(number: int) -> str:
    for size, word in ((10**12, "trillion"), (10**9, "billion"), (10**6, "million")):
        if number >= size:
            return f"{number / size:,.3g} {word}"
    return f"{number:,}"


def _dimensions(spec: ModelSpec) -> str:
    d = spec.dimensions
    text = (
        f"{d.layers} layers, hidden {d.hidden:,}, {d.query_heads} query and {d.kv_heads} KV heads "
        f"of {d.head_dim}, ffn {d.ffn:,}, vocabulary {d.vocab:,}"
    )
    if d.experts:
        text += f", {d.experts} experts of {d.expert_ffn:,} of which {d.active_experts} are active"
    return text


def _context(spec: ModelSpec) -> str:
    d = spec.dimensions
    sliding = sum(spec.kind(layer).mixer == "sliding" for layer in range(d.layers))
    window = f"; {sliding} layers see {d.window:,}" if sliding and d.window else ""
    return f"{d.context:,} tokens{window}"


def _files(found: Inspection) -> str:
    first, nbytes = found.files[0]
    if len(found.files) == 1:
        return f"{first}, {size_text(nbytes)}"
    total = size_text(sum(size for _, size in found.files))
    return f"{len(found.files)} files from {first} on, {total}"


def _mix(found: Inspection) -> str:
    total = max(1, found.nbytes)
    ordered = sorted(found.formats.items(), key=lambda item: -item[1])
    return ", ".join(f"{name} {_share(100 * nbytes / total)}" for name, nbytes in ordered)


def _share(percent: float) -> str:
    return "under 0.1%" if percent < 0.05 else f"{percent:.3g}%"


def _mib(nbytes: int) -> str:
    return f"{-(-nbytes // MIB):,}"

"""The bench command: speed of one request through the engine, or memory with every cache full.

Both stand beside what the plan said; what memory was measured is kept for the next plan.
"""

from __future__ import annotations

import argparse
import statistics
from collections.abc import Mapping, Sequence
from typing import Any

from local_tp import codec
from local_tp.cli import options, session
from local_tp.cli.facts import to_json
from local_tp.core import Plan, Sampling
from local_tp.engine.engine import Engine
from local_tp.engine.fill import memory_table
from local_tp.engine.generation import Timings
from local_tp.errors import InputError

FIRST_TOKEN = 1000  # an arbitrary stretch of ordinary tokens


def add_commands(commands: Any) -> None:
    parser = commands.add_parser("bench", help="measure tokens a second")
    options.add_model(parser)
    group = parser.add_argument_group("measurement")
    group.add_argument("--prompt-tokens", type=int, default=512, metavar="N", help="default: 512")
    group.add_argument("--tokens", type=int, default=128, metavar="N", help="default: 128")
    group.add_argument(
        "--runs", type=int, default=5, metavar="N", help="counted runs, after one more"
    )
    group.add_argument(
        "--fill",
        action="store_true",
        help="measure memory instead: fill the longest context of every stream, compare what each "
        "worker takes with the plan, and keep the ratio for later plans",
    )
    options.add_json(parser)
    parser.set_defaults(run=run_bench)


def run_bench(parsed: argparse.Namespace) -> int:
    return _run_fill(parsed) if parsed.fill else _run_speed(parsed)


def _run_fill(parsed: argparse.Namespace) -> int:
    planned = session.plan(parsed)
    ranks = session.filled(planned)
    report = {
        "model": planned.plan.model,
        "context": planned.plan.context,
        "streams": planned.plan.goal.streams,
        "ranks": [codec.encode(rank) for rank in ranks],
    }
    print(to_json(report) if parsed.json else memory_table(ranks))
    return 0


def _run_speed(parsed: argparse.Namespace) -> int:
    if min(parsed.prompt_tokens, parsed.runs) < 1 or parsed.tokens < 2:
        raise InputError("give at least 1 --prompt-tokens, 1 --runs and 2 --tokens")
    need = parsed.prompt_tokens + parsed.tokens
    if parsed.context is None:
        parsed.context = need + 1
    if parsed.context < need:
        raise InputError(f"--context {parsed.context} cuts the run short: give {need} or more")
    parsed.streams = 1
    planned = session.plan(parsed)
    with session.running(planned) as (engine, load_seconds):
        prompt = bench_prompt(parsed.prompt_tokens, engine.spec.dimensions.vocab)
        run_once(engine, prompt, parsed.tokens)
        runs = [run_once(engine, prompt, parsed.tokens) for _ in range(parsed.runs)]
        report = {
            "model": engine.model,
            "prompt_tokens": parsed.prompt_tokens,
            "tokens": parsed.tokens,
            "threads": planned.threads,
            "load_seconds": load_seconds,
            **medians(
                {
                    "prefill_tps": [timings.prefill_tps for timings in runs],
                    "decode_tps": [timings.decode_tps for timings in runs],
                }
            ),
            "predicted": _predicted(engine.plan),
            "plan": codec.encode(engine.plan),
        }
    print(to_json(report) if parsed.json else _text(report))
    return 0


def bench_prompt(length: int, vocab: int) -> list[int]:
    """`length` different ordinary tokens."""
    return [(FIRST_TOKEN + i) % vocab for i in range(length)]


def run_once(engine: Engine, prompt: Sequence[int], tokens: int) -> Timings:
    """One greedy request of exactly `tokens` tokens."""
    generation = engine.submit(prompt, Sampling(), max_tokens=tokens, ignore_eos=True)
    return generation.result().timings


def medians(measured: Mapping[str, Sequence[float | None]]) -> dict[str, Any]:
    """The median of each named series, and under `spread` its least and most.

    Every measurement must have been made.
    """
    report: dict[str, Any] = {}
    spread: dict[str, list[float]] = {}
    for name, values in measured.items():
        known = [value for value in values if value is not None]
        assert len(known) == len(values)
        report[name] = statistics.median(known)
        spread[name] = [min(known), max(known)]
    return report | {"spread": spread}


def _predicted(plan: Plan) -> dict[str, float]:
    """What the plan promises, under the names of what is measured."""
    if plan.prediction is None:
        return {}
    return {"prefill_tps": plan.prediction.prefill, "decode_tps": plan.prediction.decode}


def _text(report: dict[str, Any]) -> str:
    threads = f"{report['threads']} thread{'s' if report['threads'] > 1 else ''}"
    lines = [f"{report['model']}, {report['plan']['split']} split, {threads} a worker"]
    for name, tokens in (("prefill", report["prompt_tokens"]), ("decode", report["tokens"])):
        rate = f"{name}_tps"
        least, most = report["spread"][rate]
        promised = report["predicted"].get(rate)
        lines.append(
            f"{name:<8} {report[rate]:8.1f} tokens/s ({least:.1f} to {most:.1f}) "
            f"over {tokens} tokens{'' if promised is None else f'; predicted {promised:.0f}'}"
        )
    return "\n".join(lines)

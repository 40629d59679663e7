"""The same GGUF, ours and llama.cpp's, side by side: interleaved rounds, equal threads, medians.

    .venv/bin/python -m pip install -e .[bench]      (builds llama.cpp from source)
    .venv/bin/python scripts/bench.py [--model M] [--devices cpu,cpu --split tensor] [--json]

One round runs each engine once, so that a machine whose speed drifts slows both alike: quote the
ratios, which are taken round by round, before the absolute figures.
"""

from __future__ import annotations

import argparse
import importlib.util
import os
import sys
import time
from collections.abc import Sequence
from typing import Any, Protocol

from local_tp.cli import options, session
from local_tp.cli.facts import to_json
from local_tp.cli.measure import bench_prompt, medians, run_once
from local_tp.engine.engine import Engine
from local_tp.errors import InputError, LocalTpError


class Contender(Protocol):
    """Something that can be timed."""

    def run(self, prompt: Sequence[int], tokens: int) -> tuple[float, float]:
        """(prefill, decode) in tokens a second of one greedy request."""


class Ours:
    def __init__(self, engine: Engine) -> None:
        self._engine = engine

    def run(self, prompt: Sequence[int], tokens: int) -> tuple[float, float]:
        timings = run_once(self._engine, prompt, tokens)
        assert timings.prefill_tps is not None
        assert timings.decode_tps is not None
        return timings.prefill_tps, timings.decode_tps


class LlamaCpp:
    """llama.cpp through its Python binding, with its own defaults but for threads and batch."""

    def __init__(self, path: str, threads: int, context: int, batch: int) -> None:
        import llama_cpp

        self._model = llama_cpp.Llama(
            path,
            n_ctx=context,
            n_threads=threads,
            n_threads_batch=threads,
            n_batch=batch,
            n_ubatch=batch,
            verbose=False,
        )

    def run(self, prompt: Sequence[int], tokens: int) -> tuple[float, float]:
        self._model.reset()
        started = time.perf_counter()
        self._model.eval(list(prompt))
        token = self._model.sample(temp=0.0)
        first = time.perf_counter()
        for _ in range(tokens - 1):
            self._model.eval([token])
            token = self._model.sample(temp=0.0)
        return len(prompt) / (first - started), (tokens - 1) / (time.perf_counter() - first)


def main() -> int:
    parser = argparse.ArgumentParser(description="Measure local_tp beside llama.cpp.")
    options.add_model(parser)
    parser.add_argument("--prompt-tokens", type=int, default=512)
    parser.add_argument("--tokens", type=int, default=128)
    parser.add_argument("--rounds", type=int, default=5, help="counted rounds, after one more")
    options.add_json(parser)
    parsed = parser.parse_args()
    try:
        if importlib.util.find_spec("llama_cpp") is None:
            raise InputError(
                "llama.cpp is not installed: run .venv/bin/python -m pip install -e .[bench]"
            )
        report = compare(parsed)
    except LocalTpError as error:
        print(f"bench: {error}", file=sys.stderr)
        return error.exit_code
    print(to_json(report) if parsed.json else text(report))
    return 0


def compare(parsed: argparse.Namespace) -> dict[str, Any]:
    """Run all rounds and report medians with their spread."""
    parsed.streams = 1
    parsed.context = parsed.context or parsed.prompt_tokens + parsed.tokens + 1
    planned = session.plan(parsed)
    cpu_ranks = sum(device.kind == "cpu" for device in planned.devices)
    threads = planned.threads * max(cpu_ranks, 1)
    path = planned.checkpoint.spec.path
    with session.running(planned) as (engine, _):
        prompt = bench_prompt(parsed.prompt_tokens, engine.spec.dimensions.vocab)
        contenders: dict[str, Contender] = {
            "ours": Ours(engine),
            "llama_cpp": LlamaCpp(path, threads, parsed.context, planned.plan.goal.chunk),
        }
        rounds: dict[str, list[tuple[float, float]]] = {name: [] for name in contenders}
        for number in range(parsed.rounds + 1):
            for name, contender in contenders.items():
                found = contender.run(prompt, parsed.tokens)
                if number:
                    rounds[name].append(found)
    pairs = list(zip(rounds["ours"], rounds["llama_cpp"], strict=True))
    report: dict[str, Any] = {
        name: medians(
            {
                "prefill_tps": [prefill for prefill, _ in found],
                "decode_tps": [decode for _, decode in found],
            }
        )
        for name, found in rounds.items()
    }
    report["ratio"] = medians(
        {
            "prefill": [ours[0] / theirs[0] for ours, theirs in pairs],
            "decode": [ours[1] / theirs[1] for ours, theirs in pairs],
        }
    )
    report["setting"] = {
        "model": engine.model,
        "split": planned.plan.split,
        "workers": len(planned.plan.placements),
        "threads": threads,
        "cores": os.cpu_count(),
        "prompt_tokens": parsed.prompt_tokens,
        "tokens": parsed.tokens,
        "rounds": parsed.rounds,
    }
    return report


def text(report: dict[str, Any]) -> str:
    """The report as a table."""
    setting = report["setting"]
    lines = [
        f"{setting['model']}: {setting['split']} split, {setting['workers']} worker(s), "
        f"{setting['threads']} threads each side, {setting['rounds']} rounds",
        f"{'':<10} {'ours':>24} {'llama.cpp':>24} {'ratio':>20}",
    ]
    for name in ("prefill", "decode"):
        cells = [_cell(report[side], f"{name}_tps", 1) for side in ("ours", "llama_cpp")]
        cells.append(_cell(report["ratio"], name, 2))
        lines.append(f"{name:<10} {cells[0]:>24} {cells[1]:>24} {cells[2]:>20}")
    return "\n".join(lines)


def _cell(figures: dict[str, Any], name: str, digits: int) -> str:
    least, most = figures["spread"][name]
    return f"{figures[name]:.{digits}f} ({least:.{digits}f}-{most:.{digits}f})"


if __name__ == "__main__":
    sys.exit(main())

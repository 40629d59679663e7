"""Predicted and measured speed of processor workers, in every split: a check of the time model.

    local-tp doctor --measure        (once, so that predictions stand on what the processor can do)
    python scripts/speed_check.py [--model M] [--large] [--runs 5]

Without `--model` the starter model is used; `--large` adds a random one of a thousand million
numbers in Q4_0, 0.7 GB in a temporary folder. Ask for it on a quiet machine: other programs make
every split slower than predicted, and splits in which workers wait for each other the most.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from random_model import write_gguf

from local_tp.cli import options, session
from local_tp.cli.measure import bench_prompt, medians, run_once
from local_tp.core import Dimensions
from local_tp.errors import LocalTpError

LARGE = Dimensions(16, 2048, 32, 8, 64, 8192, 32000, 4096)
SPLITS = (
    ("cpu", "single"),
    ("cpu,cpu", "tensor"),
    ("cpu,cpu", "layer"),
    ("cpu,cpu,cpu", "hybrid"),
)
PROMPT, ANSWER = 512, 64


def main() -> int:
    parser = argparse.ArgumentParser(description="Predicted beside measured speed, every split.")
    parser.add_argument("--model", help="default: the starter model")
    parser.add_argument("--large", action="store_true", help="a random model of 1B too")
    parser.add_argument("--runs", type=int, default=5)
    parsed = parser.parse_args()
    try:
        check(parsed.model, parsed.runs)
        if parsed.large:
            with _large() as path:
                check(str(path), parsed.runs)
    except LocalTpError as error:
        print(f"speed_check: {error}", file=sys.stderr)
        return error.exit_code
    return 0


def check(model: str | None, runs: int) -> None:
    """Print a line for each split of a model: measured, predicted, and their ratio."""
    for devices, split in SPLITS:
        parser = argparse.ArgumentParser()
        options.add_model(parser)
        named = [] if model is None else ["--model", model]
        parsed = parser.parse_args(
            [*named, "--devices", devices, "--split", split, "--context", str(PROMPT + ANSWER + 1)]
        )
        parsed.streams = 1
        planned = session.plan(parsed)
        with session.running(planned) as (engine, _):
            prompt = bench_prompt(PROMPT, engine.spec.dimensions.vocab)
            timings = [run_once(engine, prompt, ANSWER) for _ in range(runs + 1)][1:]
            found = medians(
                {
                    "prefill": [t.prefill_tps for t in timings],
                    "decode": [t.decode_tps for t in timings],
                }
            )
            predicted = engine.plan.prediction
            assert predicted is not None
            for name, promised in (("prefill", predicted.prefill), ("decode", predicted.decode)):
                least, most = found["spread"][name]
                print(
                    f"{engine.model[:24]:24} {split:7} {name:8} measured {found[name]:7.1f} "
                    f"({least:.1f} to {most:.1f}), predicted {promised:7.1f}, "
                    f"predicted / measured {promised / found[name]:.2f}",
                    flush=True,
                )


@contextmanager
def _large() -> Iterator[Path]:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "random-1B.gguf"
        write_gguf(path, LARGE, "Q4_0")
        yield path


if __name__ == "__main__":
    sys.exit(main())

"""Predicted and measured speed of processor workers, in every split: a check of the time model.

    python scripts/speed_check.py [--model M] [--large] [--prompt 512] [--runs 5] [--only SPLIT]

Without `--model` the starter model is used; `--large` takes a random one of a thousand million
numbers in Q4_0 instead, 0.7 GB in a temporary folder. The processor is measured before and after
each split, and predictions stand on the mean of the two: on a shared machine what it can do changes
within minutes. Other programs still make every split slower than predicted, and splits in which
workers wait for each other the most.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import replace
from pathlib import Path

from random_model import write_gguf

from local_tp.cli import options, session
from local_tp.cli.measure import bench_prompt, medians, run_once
from local_tp.core import Device, Dimensions, Rig
from local_tp.errors import LocalTpError
from local_tp.hardware.measuring.measure import measure
from local_tp.hardware.measuring.scope import Scope
from local_tp.hardware.rates import load_rates
from local_tp.plan.predict import stages_of
from local_tp.plan.time import predict
from local_tp.prediction import Prediction

LARGE = Dimensions(16, 2048, 32, 8, 64, 8192, 32000, 4096)
SPLITS = (
    ("cpu", "single"),
    ("cpu,cpu", "tensor"),
    ("cpu,cpu", "layer"),
    ("cpu,cpu,cpu", "hybrid"),
)
ANSWER = 64


def main() -> int:
    parser = argparse.ArgumentParser(description="Predicted beside measured speed, every split.")
    parser.add_argument("--model", help="default: the starter model")
    parser.add_argument("--large", action="store_true", help="a random model of 1B instead")
    parser.add_argument("--prompt", type=int, default=512, metavar="TOKENS")
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--only", choices=[split for _, split in SPLITS], help="one split alone")
    parsed = parser.parse_args()
    try:
        with _large() if parsed.large else nullcontext(parsed.model) as model:
            for devices, split in SPLITS:
                if parsed.only in (None, split):
                    check(model, devices, split, parsed.prompt, parsed.runs)
    except LocalTpError as error:
        print(f"speed_check: {error}", file=sys.stderr)
        return error.exit_code
    return 0


def check(model: str | None, devices: str, split: str, length: int, runs: int) -> None:
    """Print a line each for prefill and decode of a split: measured, predicted, and their ratio."""
    parser = argparse.ArgumentParser()
    options.add_model(parser)
    named = [] if model is None else ["--model", model]
    parsed = parser.parse_args(
        [*named, "--devices", devices, "--split", split, "--context", str(length + ANSWER + 1)]
    )
    parsed.streams = 1
    planned = session.plan(parsed)
    before = _measured(planned.decided.rig)
    with session.running(planned) as (engine, _):
        prompt = bench_prompt(length, engine.spec.dimensions.vocab)
        timings = [run_once(engine, prompt, ANSWER) for _ in range(runs + 1)][1:]
    processor = _mean(before, _measured(planned.decided.rig))
    promised = _predicted(planned, processor, length)
    found = medians(
        {
            "prefill": [t.prefill_tps for t in timings],
            "decode": [t.decode_tps for t in timings],
        }
    )
    print(
        f"{engine.model[:24]} {split} of {length} tokens, "
        f"memory {(processor.bandwidth or 0) / 1e9:.1f} GB/s by all cores, "
        f"{(processor.facts.core_bandwidth or 0) / 1e9:.1f} by one; "
        + ", ".join(f"{name} {rate / 1e9:.0f} GOPS" for name, rate in processor.facts.matmul)
    )
    for name, rate in (("prefill", promised.prefill), ("decode", promised.decode)):
        least, most = found["spread"][name]
        print(
            f"  {name:8} measured {found[name]:7.1f} ({least:.1f} to {most:.1f}), "
            f"predicted {rate:7.1f}, predicted / measured {rate / found[name]:.2f}",
            flush=True,
        )


def _measured(rig: Rig) -> Device:
    """The processor as it is now."""
    processor = next(device for device in rig.devices if device.kind == "cpu")
    scope = Scope((processor,), (), ())
    rig = measure(rig, report=lambda line: None, cache=None, scope=scope)
    return next(device for device in rig.devices if device.kind == "cpu")


def _mean(before: Device, after: Device) -> Device:
    """One device with the mean of what two measurements found."""
    rates, later = dict(before.facts.matmul), dict(after.facts.matmul)
    facts = replace(
        before.facts,
        matmul=tuple((name, (rate + later[name]) / 2) for name, rate in rates.items()),
        core_bandwidth=_half(before.facts.core_bandwidth, after.facts.core_bandwidth),
    )
    return replace(before, bandwidth=_half(before.bandwidth, after.bandwidth), facts=facts)


def _half(a: float | None, b: float | None) -> float | None:
    return (a + b) / 2 if a and b else a or b


def _predicted(planned: session.Planned, processor: Device, length: int) -> Prediction:
    """What the plan promises on a processor, for a prompt and the middle of its answer."""
    spec, plan, rig = planned.checkpoint.spec, planned.plan, planned.decided.rig
    rates = load_rates()
    stages = stages_of(
        spec,
        plan.placements,
        [processor] * len(plan.placements),
        rig.links,
        rig.collectives,
        plan.transport,
        rates,
        plan.goal,
    )
    chunk = min(plan.goal.chunk, length)
    context = length + ANSWER // 2
    return predict(stages, spec.dimensions.hidden, rates, context, chunk, 1, length)


@contextmanager
def _large() -> Iterator[str]:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "random-1B.gguf"
        write_gguf(path, LARGE, "Q4_0")
        yield str(path)


if __name__ == "__main__":
    sys.exit(main())

"""Predicted and measured memory of CPU ranks: random models, every split, the context filled.

    local-tp doctor --measure        (once, so that the plan knows in which type products are)
    python scripts/memory_check.py [--small] [--only TEXT] [--json]

Writes the models into a temporary folder, which takes up to 4 GB there, and runs them one after
another, with at most 8 GB in memory. `--only` runs the cases whose line contains the text.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path

from random_model import write_folder, write_gguf

from local_tp.checkpoint.read import read
from local_tp.core import Dimensions, Dtype, Goal, KvFormat, Split, Transport
from local_tp.engine.fill import RankMemory, fill
from local_tp.hardware.devices import resolve_devices
from local_tp.hardware.measuring.cache import default_folder
from local_tp.hardware.measuring.measure import with_kept
from local_tp.hardware.probe import probe
from local_tp.hardware.rates import load_rates
from local_tp.plan.planner import Knowledge, make_plan
from local_tp.runtime.crew import start_crew

MIB = 1 << 20
SHAPES = {  # layers, hidden, query heads, KV heads, head size, ffn, vocabulary, context
    "wide": Dimensions(12, 3072, 24, 8, 128, 8192, 64000, 32768),
    "heavy": Dimensions(12, 4096, 32, 8, 128, 14336, 32000, 32768),
    "middle": Dimensions(12, 2048, 16, 8, 128, 8192, 64000, 32768),
    "short": Dimensions(4, 2048, 32, 8, 64, 8192, 32000, 32768),
}


@dataclass(frozen=True, slots=True)
class Case:
    """A model and how it is run."""

    shape: str
    form: str
    split: Split
    ranks: int
    context: int
    streams: int
    kv: KvFormat = "float32"
    chunk: int = 512
    dtype: Dtype = "auto"
    transport: Transport | None = None
    folder: bool = False

    @property
    def name(self) -> str:
        words = [self.shape, self.form, f"{self.split} {self.ranks}"]
        words += [f"{self.context} x {self.streams}", f"chunk {self.chunk}", f"KV {self.kv}"]
        words += [f"as {self.dtype}"] if self.dtype != "auto" else []
        words += [self.transport] if self.transport else []
        return ", ".join([*words, "safetensors"] if self.folder else words)


SMALL = (
    Case("short", "Q4_0", "single", 1, 1024, 2),
    Case("short", "Q4_0", "tensor", 2, 1024, 1, "float16"),
    Case("short", "BF16", "tensor", 3, 1000, 2, folder=True),
    Case("short", "BF16", "layer", 2, 1024, 4, "bfloat16", folder=True),
    Case("short", "Q8_0", "hybrid", 3, 640, 2),
    Case("short", "Q4_0", "tensor", 2, 1024, 1, transport="gloo"),
)
LARGE = (
    Case("wide", "BF16", "single", 1, 1536, 2, "bfloat16", folder=True),
    Case("wide", "BF16", "layer", 2, 1024, 2, folder=True),
    Case("wide", "BF16", "tensor", 2, 1024, 2, folder=True),
    Case("wide", "BF16", "tensor", 3, 1024, 1, "float16", folder=True),
    Case("wide", "BF16", "hybrid", 3, 768, 2, "bfloat16", folder=True),
    Case("heavy", "Q4_1", "single", 1, 1024, 1),
    Case("heavy", "Q4_1", "tensor", 2, 768, 1),
    Case("heavy", "Q4_1", "layer", 2, 768, 1, "bfloat16"),
    Case("middle", "Q8_0", "single", 1, 1024, 2, "float16"),
    Case("middle", "Q8_0", "tensor", 3, 1024, 2),
    Case("middle", "Q8_0", "single", 1, 512, 1, dtype="float32"),
    Case("short", "Q4_0", "single", 1, 16384, 1),
    Case("short", "Q4_0", "single", 1, 6144, 4, "bfloat16", chunk=256),
    Case("short", "BF16", "tensor", 2, 8192, 2, folder=True),
    Case("short", "Q4_0", "layer", 2, 2048, 8, chunk=128),
)


def run(case: Case, model: Path) -> tuple[RankMemory, ...]:
    """Load, fill, measure."""
    checkpoint = read(model)
    rig = with_kept(probe(), default_folder(), lambda line: None)
    devices = resolve_devices(["cpu"] * case.ranks, rig)
    goal = Goal(
        split=case.split,
        context=case.context,
        streams=case.streams,
        chunk=case.chunk,
        kv_format=case.kv,
        dtype=case.dtype,
    )
    knowledge = Knowledge(load_rates(), transport=case.transport)
    plan = make_plan(checkpoint.spec, devices, goal, knowledge)
    threads = max(1, rig.cores // case.ranks)
    crew = start_crew(checkpoint.spec, plan, devices, threads, lambda done, total: None)
    try:
        return fill(crew, replace(plan), checkpoint.spec.dimensions.vocab)
    finally:
        crew.close()


def write(case: Case, folder: Path) -> Path:
    """The model of a case, written once."""
    path = folder / f"{case.shape}-{case.form}{'' if case.folder else '.gguf'}"
    if not path.exists():
        writer = write_folder if case.folder else write_gguf
        writer(path, SHAPES[case.shape], case.form)
    return path


def good(rank: RankMemory) -> bool:
    """Within 3 % or 32 MiB, and not under by more than 1 %."""
    over = rank.predicted - rank.peak
    return abs(over) <= max(0.03 * rank.peak, 32 * MIB) and over >= -0.01 * rank.peak


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--small", action="store_true", help="only models below 1 GB")
    parser.add_argument("--only", default="", metavar="TEXT", help="cases whose line contains it")
    parser.add_argument("--json", action="store_true", help="a line of JSON for each rank")
    parsed = parser.parse_args(arguments)
    cases = [
        case for case in (SMALL if parsed.small else SMALL + LARGE) if parsed.only in case.name
    ]
    bad = 0
    with tempfile.TemporaryDirectory(prefix="local_tp-memory-") as folder:
        for case in cases:
            model = write(case, Path(folder))
            started = time.perf_counter()
            ranks = run(case, model)
            seconds = time.perf_counter() - started
            if not parsed.json:
                print(f"{case.name} ({seconds:.0f} s)")
            for rank in ranks:
                bad += not good(rank)
                if parsed.json:
                    print(json.dumps(asdict(case) | asdict(rank)), flush=True)
                else:
                    print(line(rank), flush=True)
    return 1 if bad else 0


def line(rank: RankMemory) -> str:
    over = rank.predicted - rank.peak
    return (
        f"  rank {rank.rank}: loaded {rank.loaded / MIB:,.0f} "
        f"(predicted {rank.predicted_loaded / MIB:,.0f}), peak {rank.peak / MIB:,.0f} "
        f"(predicted {rank.predicted / MIB:,.0f}, {over / MIB:+.0f} MiB, {over / rank.peak:+.1%})"
        f"{'' if good(rank) else '  <-- off'}"
    )


if __name__ == "__main__":
    sys.exit(main())

"""How long the planner searches: eight unequal cards and a hundred layers of experts.

Prints milliseconds of processor time, which other programs disturb less than time on the clock,
and what was chosen. Usage: bench_search.py [repeats]
"""

from __future__ import annotations

import sys
import time
from dataclasses import replace

from local_tp.checkpoint.known_models import find
from local_tp.checkpoint.mixes import mix
from local_tp.checkpoint.shapes import spec_of
from local_tp.core import Device, Goal, ModelSpec, Rig
from local_tp.hardware.rates import load_rates
from local_tp.plan.planner import Knowledge, best_plan

GIB = 1 << 30
CARDS = (  # name, GiB, GB/s, tera-operations a second
    ("RTX 5090", 32, 1790, 209),
    ("RTX 4090", 24, 1010, 165),
    ("RTX 3090", 24, 936, 71),
    ("RTX A6000", 48, 768, 154),
    ("RTX PRO 6000", 96, 1790, 503),
    ("RTX 4060 Ti", 16, 288, 44),
    ("Tesla P40", 24, 347, 12),
    ("RTX 3060", 12, 360, 25),
)


def machine() -> Rig:
    """Eight cards of which no two are alike, and the processor."""
    cards = tuple(
        Device(
            f"0000:0{at}:00.0",
            "cuda",
            name,
            size * GIB,
            int(size * GIB * 0.97),
            reserve=GIB // 2,
            bandwidth=bandwidth * 1e9,
            flops=flops * 1e12,
            capability=(8, 6),
        )
        for at, (name, size, bandwidth, flops) in enumerate(CARDS, start=1)
    )
    processor = Device("cpu", "cpu", "processor", 256 * GIB, 240 * GIB, bandwidth=60e9, flops=1e12)
    return Rig((*cards, processor), ram=256 * GIB, available_ram=240 * GIB, cores=16)


def model() -> ModelSpec:
    """A hundred layers with 160 experts each."""
    row = find("GLM 4.5")
    assert row is not None
    return spec_of(replace(row.shape, layers=100), "a hundred layers", row.family, mix("Q3_K_M"))


def main() -> None:
    rig, spec, knowledge = machine(), model(), Knowledge(load_rates())
    for _ in range(int(sys.argv[1]) if len(sys.argv) > 1 else 5):
        started = time.process_time()
        plan = best_plan(spec, rig, Goal(dtype="stored"), knowledge)
        seconds = time.process_time() - started
        used = ", ".join(f"{p.device} {p.layers.size}" for p in plan.placements)
        print(f"{seconds * 1e3:.0f} ms: {plan.split} on {used}")


if __name__ == "__main__":
    main()

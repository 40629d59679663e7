"""One rank in a process of its own, which exchanges known data every way and saves what it got.

Started as a script by `run_ranks`: rank, number of ranks, folder.
"""

from __future__ import annotations

import mmap
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TypedDict

import torch
import torch.distributed as distributed
from torch import Tensor

from local_tp.model.collectives import Group, Link, TorchGroup, TorchLink, join
from local_tp.model.region import Region
from local_tp.model.shared_memory import SharedGroup, SharedLink

CAPACITY = 256  # elements of a lane: small, so that the larger of these exchanges take several
SIZES = [(1, 1), (1, 5), (16, 16), (1, 257), (10, 103)]
TURNS = 200
WIDTHS = {2: (30, 12), 3: (5, 0, 40)}
GATHER_ROWS = [1, 3, 50]
HIDDEN = 64
LINK_ROWS = [1, 4, 5, 30]
SECONDS = 60.0


class Received(TypedDict):
    """What one rank has after every exchange; `torch_` and `staged_` came over gloo."""

    sums: list[Tensor]
    turns: Tensor
    gathered: list[Tensor | None]
    passed: list[Tensor]
    torch_sums: list[Tensor]
    torch_gathered: list[Tensor | None]
    torch_passed: list[Tensor]
    staged_sums: list[Tensor]
    staged_gathered: list[Tensor | None]
    staged_passed: list[Tensor]


def part(rank: int, *shape: int) -> Tensor:
    """The data that `rank` brings: known to everybody."""
    return torch.randn(shape, generator=torch.Generator().manual_seed(1000 * rank + sum(shape)))


def turn_part(rank: int, turn: int) -> Tensor:
    """Data that is new each turn; its sums are exact in float32."""
    return torch.arange(97.0) * (turn + 1) + 1000.0 * rank * turn


def regions(ranks: int) -> tuple[Region, Region]:
    group = Region(0, ranks, ranks, CAPACITY)
    return group, Region(group.stop, ranks, 1, CAPACITY)


def run_ranks(ranks: int, folder: Path) -> list[Received]:
    """What each of `ranks` processes received."""
    (folder / "memory").write_bytes(bytes(regions(ranks)[1].stop))
    with _processes(ranks, folder) as processes:
        for process in processes:
            _, problems = process.communicate(timeout=SECONDS)
            assert process.returncode == 0, problems
    return [torch.load(folder / f"{rank}.pt") for rank in range(ranks)]


@contextmanager
def _processes(ranks: int, folder: Path) -> Iterator[list[subprocess.Popen[str]]]:
    started = [
        subprocess.Popen(
            [sys.executable, __file__, str(rank), str(ranks), str(folder)],
            stderr=subprocess.PIPE,
            text=True,
            cwd=Path(__file__).parents[2],
        )
        for rank in range(ranks)
    ]
    try:
        yield started
    finally:
        for process in started:
            process.kill()
            process.wait()


def _summed(group: Group, rank: int) -> list[Tensor]:
    return [group.all_reduce(part(rank, *shape)) for shape in SIZES]


def _gathered(group: Group, rank: int, ranks: int) -> list[Tensor | None]:
    widths = WIDTHS[ranks]
    shares = [part(rank, rows, widths[rank]) for rows in GATHER_ROWS]
    return [group.gather_columns(share, sum(widths)) for share in shares]


def _passed(link: Link, rank: int) -> list[Tensor]:
    """Rank 0 sends and overwrites at once what it sent; the others receive."""
    got = []
    for rows in LINK_ROWS:
        if rank == 0:
            x = part(9, rows, HIDDEN)
            link.send(x)
            x.fill_(-1.0)
        else:
            got.append(link.receive(rows))
    return got


def _turns(group: Group, rank: int) -> Tensor:
    got = []
    for turn in range(TURNS):
        if turn % 17 == rank:
            time.sleep(1e-3)  # now one rank is late, now another
        got.append(group.all_reduce(turn_part(rank, turn)))
    return torch.stack(got)


def main(rank: int, ranks: int, folder: Path) -> None:
    torch.set_num_threads(1)
    with (folder / "memory").open("r+b") as file:
        memory = memoryview(mmap.mmap(file.fileno(), 0))
    region, line = regions(ranks)
    widths = WIDTHS[ranks]
    spins = 4000 if ranks == 2 else 1  # as a worker chooses on two processors
    shared = SharedGroup(memory, region, rank, widths, spins, SECONDS)
    link = SharedLink(memory, line, rank, HIDDEN, spins, SECONDS)
    join("gloo", str(folder / "meeting"), rank, ranks, SECONDS)
    everybody = distributed.new_group(list(range(ranks)))
    torch_group = TorchGroup(everybody, rank, widths, staged=False)
    torch_link = TorchLink(everybody, 0, HIDDEN, torch.device("cpu"), staged=False)
    # A crew of cards and processor ranks: those with a card go through the host's memory.
    staged_group = TorchGroup(everybody, rank, widths, staged=rank % 2 == 0)
    staged_link = TorchLink(everybody, 0, HIDDEN, torch.device("cpu"), staged=rank % 2 == 0)
    received: Received = {
        "sums": _summed(shared, rank),
        "turns": _turns(shared, rank),
        "gathered": _gathered(shared, rank, ranks),
        "passed": _passed(link, rank),
        "torch_sums": _summed(torch_group, rank),
        "torch_gathered": _gathered(torch_group, rank, ranks),
        "torch_passed": _passed(torch_link, rank),
        "staged_sums": _summed(staged_group, rank),
        "staged_gathered": _gathered(staged_group, rank, ranks),
        "staged_passed": _passed(staged_link, rank),
    }
    torch.save(received, folder / f"{rank}.pt")
    distributed.destroy_process_group()


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]), Path(sys.argv[3]))

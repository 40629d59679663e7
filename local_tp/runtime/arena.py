"""The shared memory of a plan's CPU ranks: one file, cut into regions.

Parent and workers compute the same cut from the plan. The file lies in memory where the system
offers that (/dev/shm) and is removed from the file system as soon as every worker has mapped it, so
nothing is left behind by a crash. Knows nothing of torch.
"""

from __future__ import annotations

import os
import shutil
import tempfile
from dataclasses import dataclass
from pathlib import Path

from local_tp.core import ModelSpec, Plan
from local_tp.model.region import Region


@dataclass(frozen=True, slots=True)
class Arena:
    """A region a stage for its group, and one a boundary for its link."""

    groups: tuple[Region, ...]
    links: tuple[Region, ...]

    @property
    def nbytes(self) -> int:
        return max(region.stop for region in self.groups + self.links)


def cut_arena(spec: ModelSpec, plan: Plan) -> Arena:
    """Regions that hold a chunk of the residual stream, and a row of logits, at once."""
    d = spec.dimensions
    chunk = plan.goal.chunk * d.hidden
    groups: list[Region] = []
    links: list[Region] = []
    offset = 0
    for stage in range(plan.stages):
        members = len(plan.stage(stage))
        widest = max(p.vocab.size for p in plan.stage(stage))
        groups.append(Region(offset, members, members, max(chunk, widest)))
        offset = groups[-1].stop
        if stage + 1 < plan.stages:
            links.append(Region(offset, 1 + len(plan.stage(stage + 1)), 1, chunk))
            offset = links[-1].stop
    return Arena(tuple(groups), tuple(links))


def create_file(nbytes: int, leftovers: list[Path]) -> Path:
    """An empty (all zero) file of `nbytes`, named by the system and noted in `leftovers`."""
    memory = Path("/dev/shm")
    folder = memory if memory.is_dir() and _free(memory) > 2 * nbytes else None
    handle, name = tempfile.mkstemp(prefix="local_tp-", dir=folder)
    leftovers.append(Path(name))
    with os.fdopen(handle, "wb") as file:
        file.truncate(nbytes)
    return Path(name)


def _free(folder: Path) -> int:
    return shutil.disk_usage(folder).free

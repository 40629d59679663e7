"""The shared memory of a plan's CPU ranks: one piece, cut into regions.

Parent and workers compute the same cut from the plan. Knows nothing of torch.
"""

from __future__ import annotations

import contextlib
import os
import sys
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


class SharedMemory:
    """Zeroed memory of `nbytes` that other processes can map by `path`.

    On Linux it has no name in any folder, so nothing is left behind however this process ends.
    Elsewhere it is a temporary file.
    """

    def __init__(self, nbytes: int) -> None:
        if sys.platform == "linux":
            self._handle = os.memfd_create("local_tp")
            self.path = f"/proc/{os.getpid()}/fd/{self._handle}"
        else:
            self._handle, self.path = tempfile.mkstemp(prefix="local_tp-")
        os.truncate(self._handle, nbytes)

    def remove(self) -> None:
        """Let go of it, once everybody has mapped it. May be called again.

        Windows keeps a mapped file until it is unmapped: there the second call succeeds.
        """
        if self._handle >= 0:
            os.close(self._handle)
            self._handle = -1
        if sys.platform != "linux":
            with contextlib.suppress(PermissionError):
                Path(self.path).unlink(missing_ok=True)

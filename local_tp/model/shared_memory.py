"""Groups and links of CPU ranks on one machine, through memory that they share.

Each rank writes its part and then its turn number; the others wait for the number. Two slots
suffice: nobody is more than one exchange ahead, since everybody waits for everybody. Waiting spins
briefly, then yields, then sleeps, and ends by a deadline. Sums are taken in rank order, so all
ranks hold the same bits. Relies on stores becoming visible in program order, which x86-64
guarantees; the planner chooses gloo elsewhere.
"""

from __future__ import annotations

import time
from collections.abc import Sequence

import torch
from torch import Tensor

from local_tp.errors import CollectiveTimeout
from local_tp.model.region import FLAG_BYTES, SLOTS, Region


class Flags:
    """Turn numbers of the members, and how long to wait for them."""

    def __init__(
        self, memory: memoryview, region: Region, index: int, spins: int, timeout: float
    ) -> None:
        self._flags = memory[region.offset : region.flags_stop].cast("q")
        self._step = FLAG_BYTES // 8
        self._index, self._spins, self._timeout = index, spins, timeout

    def announce(self, turn: int) -> None:
        self._flags[self._index * self._step] = turn

    def wait(self, member: int, turn: int) -> None:
        """Until `member` has announced `turn`.

        Raises `CollectiveTimeout` after the group's time limit.
        """
        flags, at = self._flags, member * self._step
        for _ in range(self._spins):
            if flags[at] >= turn:
                return
        deadline = time.monotonic() + self._timeout
        pause = 0.0
        while flags[at] < turn:
            time.sleep(pause)
            pause = min(pause + 2e-6, 2e-4)
            if time.monotonic() > deadline:
                raise CollectiveTimeout(
                    f"a worker waited {self._timeout:.0f} s for rank {member} of its stage: "
                    "another program may hold the processor; close it or use fewer ranks"
                )


class SharedGroup:
    """A stage of CPU ranks."""

    def __init__(
        self,
        memory: memoryview,
        region: Region,
        index: int,
        widths: Sequence[int],
        spins: int,
        timeout: float,
    ) -> None:
        self.size, self.index = region.members, index
        self._widths = tuple(widths)
        self._capacity = region.capacity
        self._slots = _slots(memory, region)
        self._flags = Flags(memory, region, index, spins, timeout)
        self._others = [member for member in range(self.size) if member != index]
        self._turn = 0

    def all_reduce(self, x: Tensor) -> Tensor:
        flat = x.view(-1)
        for start in range(0, len(flat), self._capacity):
            part = flat[start : start + self._capacity]
            lanes = self._exchange(part)
            torch.add(lanes[0], lanes[1], out=part)
            for lane in lanes[2:]:
                part.add_(lane)
        return x

    def gather_columns(self, share: Tensor, total: int) -> Tensor | None:
        assert sum(self._widths) == total
        rows_at_once = max(1, self._capacity // max(self._widths))
        rows = share.shape[0]
        out = share.new_empty((rows, total)) if self.index == 0 else None
        for start in range(0, rows, rows_at_once):
            part = share[start : start + rows_at_once]
            lanes = self._exchange(part.reshape(-1), max(self._widths) * len(part))
            if out is not None:
                pieces = [
                    lane[: len(part) * width].view(len(part), width)
                    for lane, width in zip(lanes, self._widths, strict=True)
                ]
                torch.cat(pieces, 1, out=out[start : start + len(part)])
        return out

    def _exchange(self, part: Tensor, length: int | None = None) -> Tensor:
        """Everybody's part, (members, length): this rank's own is `part`."""
        self._turn += 1
        slot = self._slots[self._turn % SLOTS]
        slot[self.index, : len(part)].copy_(part)
        self._flags.announce(self._turn)
        for member in self._others:
            self._flags.wait(member, self._turn)
        return slot[:, : len(part) if length is None else length]


class SharedLink:
    """From the leader of one stage (member 0) to the ranks of the next (members 1, 2, …)."""

    def __init__(
        self,
        memory: memoryview,
        region: Region,
        index: int,
        hidden: int,
        spins: int,
        timeout: float,
    ) -> None:
        self._hidden = hidden
        self._rows = region.capacity // hidden
        self._slots = [lanes[0] for lanes in _slots(memory, region)]
        self._flags = Flags(memory, region, index, spins, timeout)
        self._receivers = range(1, region.members)
        self._turn = 0

    def send(self, x: Tensor) -> None:
        for start in range(0, len(x), self._rows):
            part = x[start : start + self._rows].reshape(-1)
            self._turn += 1
            for receiver in self._receivers:
                self._flags.wait(receiver, self._turn - SLOTS)
            self._slots[self._turn % SLOTS][: len(part)].copy_(part)
            self._flags.announce(self._turn)

    def receive(self, rows: int) -> Tensor:
        x = torch.empty((rows, self._hidden))
        for start in range(0, rows, self._rows):
            part = x[start : start + self._rows].view(-1)
            self._turn += 1
            self._flags.wait(0, self._turn)
            part.copy_(self._slots[self._turn % SLOTS][: len(part)])
            self._flags.announce(self._turn)
        return x


def _slots(memory: memoryview, region: Region) -> list[Tensor]:
    """Each slot as (lanes, capacity) float32 over the shared memory."""
    return [
        torch.frombuffer(
            memory, dtype=torch.float32, offset=region.slot(slot), count=region.lane_elements
        ).view(region.lanes, region.capacity)
        for slot in range(SLOTS)
    ]

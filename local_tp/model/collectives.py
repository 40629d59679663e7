"""How the ranks of a plan exchange activations: a group inside a stage, a link between stages.

The seam: `Group` and `Link` are all that the decoder and the worker know. Here are the trivial
group of one rank and torch.distributed's (gloo through host memory, NCCL between cards); CPU ranks
of one machine use `shared_memory` instead. Sums are taken in rank order, so every rank of a stage
holds the same bits.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from typing import Protocol

import torch
import torch.distributed as distributed
from torch import Tensor


class Group(Protocol):
    """The ranks of one stage; index 0 leads."""

    size: int
    index: int

    def all_reduce(self, x: Tensor) -> Tensor:
        """The sum over ranks of float32 `x`; `x` may be overwritten."""

    def gather_columns(self, share: Tensor, total: int) -> Tensor | None:
        """Shares (rows, n_i) side by side, (rows, total), on the leader; `None` elsewhere."""


class Link(Protocol):
    """From the leader of a stage to every rank of the next."""

    def send(self, x: Tensor) -> None:
        """Pass (rows, hidden) float32 on; returns when `x` may be reused."""

    def receive(self, rows: int) -> Tensor:
        """The (rows, hidden) that the leader sent."""


class Solo:
    """A stage of one rank."""

    size, index = 1, 0

    def all_reduce(self, x: Tensor) -> Tensor:
        return x

    def gather_columns(self, share: Tensor, total: int) -> Tensor | None:
        assert share.shape[1] == total
        return share


class TorchGroup:
    """A stage over torch.distributed, where every rank may hold a different share."""

    def __init__(
        self, group: distributed.ProcessGroup, index: int, widths: Sequence[int], staged: bool
    ) -> None:
        self.group, self.index, self.size = group, index, len(widths)
        self.widths, self.staged = widths, staged

    def all_reduce(self, x: Tensor) -> Tensor:
        host = x.cpu() if self.staged else x
        distributed.all_reduce(host, group=self.group)
        return host.to(x.device)

    def gather_columns(self, share: Tensor, total: int) -> Tensor | None:
        """Padded to the widest share, since gloo and NCCL gather equal sizes only."""
        assert sum(self.widths) == total
        widest = max(self.widths)
        padded = share.new_zeros((share.shape[0], widest))
        padded[:, : share.shape[1]] = share
        sent = padded.cpu() if self.staged else padded
        parts = [torch.empty_like(sent) for _ in self.widths]
        distributed.all_gather(parts, sent, group=self.group)
        if self.index:
            return None
        columns = [part[:, :width] for part, width in zip(parts, self.widths, strict=True)]
        return torch.cat(columns, 1).to(share.device)


class TorchLink:
    """A stage boundary over torch.distributed: the leader broadcasts to the next stage."""

    def __init__(
        self,
        group: distributed.ProcessGroup,
        leader: int,
        hidden: int,
        device: torch.device,
        staged: bool,
    ) -> None:
        self.group, self.leader, self.hidden = group, leader, hidden
        self.device, self.staged = device, staged

    def send(self, x: Tensor) -> None:
        distributed.broadcast(x.cpu() if self.staged else x, self.leader, group=self.group)

    def receive(self, rows: int) -> Tensor:
        where = torch.device("cpu") if self.staged else self.device
        x = torch.empty((rows, self.hidden), device=where)
        distributed.broadcast(x, self.leader, group=self.group)
        return x.to(self.device)


def join(backend: str, meeting_file: str, rank: int, ranks: int, timeout: float) -> None:
    """Enter torch.distributed with the other workers, who meet at a file, not at a port."""
    distributed.init_process_group(
        backend,
        init_method=f"file://{meeting_file}",
        rank=rank,
        world_size=ranks,
        timeout=timedelta(seconds=timeout),
    )

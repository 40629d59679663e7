"""One rank's model: built from a `Load`, then run step by step.

Joins loader, decoder and collectives on the device that its placement names. Every rank receives
the same steps in the same order; only the leader of the last stage returns results.
"""

from __future__ import annotations

import mmap
import time
from collections.abc import Iterator
from pathlib import Path

import torch
from torch import Tensor

from local_tp.core import Row, RowResult, Step, TokenLogprob
from local_tp.load.loader import Loading, Progress
from local_tp.model import assemble
from local_tp.model.batch import make_batch, wanted_rows
from local_tp.model.decoder import Decoder
from local_tp.model.operations import TorchOperations
from local_tp.model.processor import learn_processor
from local_tp.model.sampler import logprob_of, sample
from local_tp.plan.activations import UNPACK_FROM_TOKENS
from local_tp.plan.layout import parameters
from local_tp.runtime.wire import Held, Load, Measured
from local_tp.runtime.worker_memory import Meter, give_back
from local_tp.runtime.worker_transport import Transport, connect


class Rank:
    """A placement come alive."""

    measured: Measured

    def __init__(self, load: Load) -> None:
        torch.set_num_threads(load.threads)
        torch.set_grad_enabled(False)
        self.spec, self.plan = load.spec, load.plan
        self.placement = load.plan.placements[load.rank]
        self.kind = load.devices[load.rank].kind
        self.device = torch.device("cpu" if self.kind == "cpu" else "cuda:0")
        self._load = load
        self._processor = learn_processor(load.plan.goal.product)
        alone = sum(p.device == self.placement.device for p in load.plan.placements) == 1
        self._meter = Meter(load.devices[load.rank], alone)

    def load(self) -> Iterator[Progress]:
        """Fill the weights, yielding progress; afterwards the rank can run."""
        started, before = time.perf_counter(), self.held().now
        layout = parameters(self.spec, self.placement, self.plan.goal.dtype, self.kind)
        mine = self.placement
        loading = Loading(
            self.spec, layout, self.device, self._processor, mine.streamed, mine.layers.start
        )
        yield from loading
        seconds, resident = time.perf_counter() - started, self.held().now - before
        self._transport = self._connect()
        operations = TorchOperations()
        held = assemble.Held(loading.linears, loading.vectors, loading.stream)
        group = self._transport.group
        assembly = assemble.Assembly(
            self.spec, self.plan, self.placement, held, operations, self.device, group
        )
        self._decoder = Decoder(self.spec, self.placement, assembly.weights(), operations, group)
        self._places = assembly.places()
        give_back()
        self.measured = Measured(loading.nbytes, resident, seconds, self.held())

    def held(self) -> Held:
        """What this rank holds now, and held at most."""
        return self._meter.read()

    def run(self, step: Step) -> tuple[RowResult, ...] | None:
        """One step; results on the last stage's leader, `None` on every other rank."""
        if self.kind == "cpu" and sum(len(row.tokens) for row in step.rows) >= UNPACK_FROM_TOKENS:
            give_back()  # else holes between blocks add up from chunk to chunk
        batch = make_batch(step, self._places)
        transport, decoder = self._transport, self._decoder
        if transport.incoming is None:
            x = decoder.embed(batch)
        else:
            x = transport.incoming.receive(len(batch.tokens))
        x = decoder.layers(x, batch)
        if transport.outgoing is not None:
            if transport.group.index == 0:
                transport.outgoing.send(x)
            return None
        if self.placement.stage + 1 < self.plan.stages:
            return None
        wanted = wanted_rows(step)
        logits = decoder.logits(x, batch) if wanted else None
        if transport.group.index:
            return None
        return results_of(step, logits)

    def _connect(self) -> Transport:
        memory = None
        if self._load.memory is not None:
            with Path(self._load.memory).open("r+b") as file:
                memory = memoryview(mmap.mmap(file.fileno(), 0))
        return connect(self._load, memory, self.device)


def results_of(step: Step, logits: Tensor | None) -> tuple[RowResult, ...]:
    """Sample, score and report each row of `step` from the logits of its wanted rows."""
    results = []
    at = 0
    for row in step.rows:
        count = (
            len(row.tokens)
            if row.score is not None
            else int(row.sampling is not None or row.logits)
        )
        mine = logits[at : at + count] if logits is not None else None
        at += count
        results.append(_result(row, mine))
    return tuple(results)


def _result(row: Row, logits: Tensor | None) -> RowResult:
    if logits is None or not len(logits):
        return RowResult(row.request)
    last = logits[-1]
    scores: tuple[TokenLogprob, ...] = ()
    if row.score is not None:
        scores = tuple(
            logprob_of(line, target, row.score)
            for line, target in zip(logits, row.targets, strict=False)
        )
    token = logprob = None
    if row.sampling is not None:
        position = row.position + len(row.tokens)
        token = sample(last, row.sampling, row.history, row.prompt_length, position)
        if row.sampling.logprobs is not None:
            logprob = logprob_of(last, token, row.sampling.logprobs)
    raw = last.cpu().numpy().astype("<f4").tobytes() if row.logits else None
    return RowResult(row.request, token, logprob, scores, raw)

"""What the time model says of a case: tokens a second of answers and of prompts.

The work is counted once a case; constants may then change as often as a fit wants.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from calibration.cases import Case, Question
from local_tp.core import DeviceKind
from local_tp.plan.predict import stages_of
from local_tp.plan.time import Load, Stage, prompt_seconds, step_seconds
from local_tp.rates import Rates


@dataclass(frozen=True, slots=True)
class Counted:
    """A case with its stages, whose channels are those of the engine's constants."""

    case: Case
    hidden: int
    reading: tuple[Stage, ...]
    writing: tuple[Stage, ...]

    def decode(self, rates: Rates) -> float:
        """Tokens a second of all users together."""
        case = self.case
        copies = case.writing.copies
        rows = max(1, case.rows // copies)
        load = Load(rows=rows, context=case.context, sampled=rows)
        return copies * rows / step_seconds(self.writing, self.hidden, rates, load)

    def prefill(self, rates: Rates) -> float:
        """Tokens a second of one prompt."""
        case = self.case
        seconds = prompt_seconds(
            self.reading, self.hidden, rates, case.prompt, case.chunk, case.behind
        )
        return case.prompt / seconds

    def held(self, reading: bool = False) -> tuple[DeviceKind, str]:
        """Kind of device and form of most of the weights, for an answer or for a prompt."""
        stages = self.reading if reading else self.writing
        pairs = [(rank.speed.kind, p) for s in stages for rank in s.ranks for p in rank.work]
        kind, part = max(pairs, key=lambda pair: pair[1].weights + pair[1].pool)
        return kind, part.held


def counted(case: Case, rates: Rates) -> Counted:
    """The case's work, with channels as the engine's constants make them."""
    hidden = case.writing.spec.dimensions.hidden
    writing = _stages(case.writing, rates)
    reading = writing if case.reading is case.writing else _stages(case.reading, rates)
    return Counted(case, hidden, reading, writing)


def _stages(question: Question, rates: Rates) -> tuple[Stage, ...]:
    stages = stages_of(
        question.spec,
        question.placements,
        question.devices,
        question.links,
        (),
        "none" if len(question.devices) == 1 else "nccl",
        rates,
        question.goal,
    )
    if question.kv_share == 1.0:
        return stages
    return tuple(_with_kv(stage, question.kv_share) for stage in stages)


def _with_kv(stage: Stage, share: float) -> Stage:
    """The stage with keys and values in fewer bits than sixteen."""
    ranks = []
    for rank in stage.ranks:
        work = tuple(
            replace(
                part, kv=share * part.kv, sliding=share * part.sliding, windows=share * part.windows
            )
            for part in rank.work
        )
        ranks.append(replace(rank, work=work))
    return replace(stage, ranks=tuple(ranks))

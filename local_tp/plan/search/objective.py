"""What a plan is judged by: seconds that a person waits, fewer is better.

`chat` and `context`: one user's question of one chunk and an answer of `ANSWER` tokens. `serve`:
a token of everybody's answers together. `quality` chooses the format and then waits as `chat`.
"""

from __future__ import annotations

from local_tp.core import Goal, Objective
from local_tp.plan.time import Load
from local_tp.prediction import Prediction

ANSWER = 256  # tokens
FLOOR = 10.0  # tokens a second that `quality` keeps unless told: about twice as fast as one reads


def seconds(prediction: Prediction, objective: Objective) -> float:
    """The figure by which plans are compared."""
    if objective == "serve":
        return 1.0 / prediction.aggregate
    return prediction.first_token + ANSWER / prediction.decode


def weighted_loads(goal: Goal, context: int, streams: int) -> tuple[tuple[float, Load], ...]:
    """The steps whose seconds, so many times, make up that figure: as `plan.time.predict` runs."""
    if goal.objective == "serve":
        return ((1.0 / streams, Load(rows=streams, context=context, sampled=streams)),)
    tokens = min(goal.chunk, context)
    chunk = Load(tokens=tokens, context=tokens // 2)
    return ((float(ANSWER), Load(context=context)), (1.0, chunk))

"""From one row of logits to a token, by the rules of a `Sampling`.

Stateless: history and position come with the row, and a seeded request draws from its own stream at
its own position, so that its tokens do not depend on what else is in the batch.
"""

from __future__ import annotations

from collections import Counter

import torch
from torch import Tensor

from local_tp.core import Sampling, TokenLogprob

LEAST = -1e30  # a logit whose probability is zero
BEST = 512  # candidates that nearly always hold the top-p mass
_SEED_STEP = 0x9E3779B97F4A7C15  # an odd constant that spreads positions over 64 bits
_GREEDY_BELOW = 1e-6  # a temperature so low only takes the best, and lower ones overflow float32


def sample(
    logits: Tensor,
    sampling: Sampling,
    history: tuple[int, ...],
    prompt_length: int,
    position: int,
) -> int:
    """Choose from (vocab,) float32 logits; `position` is the place of the chosen token.

    Total: whatever the logits and the settings, some token comes back. Infinite and undefined
    logits, as absurd penalties make them, count as the largest and the least number there is.
    """
    if sampling.logit_bias or sampling.needs_history:
        logits = adjusted(logits, sampling, history, prompt_length)
    logits = logits.nan_to_num(nan=LEAST, posinf=-LEAST, neginf=LEAST)
    if sampling.temperature < _GREEDY_BELOW:
        return int(logits.argmax())
    # Measured from the best, so that no temperature makes a number too large.
    scaled = (logits - logits.max()) / sampling.temperature
    values, tokens = _filtered(scaled, sampling)
    weights = values.softmax(-1)
    generator = None
    if sampling.seed is not None:
        generator = torch.Generator(device=logits.device)
        generator.manual_seed((sampling.seed + position * _SEED_STEP) % 2**63)
    chosen = torch.multinomial(weights, 1, generator=generator)
    return int(tokens[chosen])


def adjusted(
    logits: Tensor, sampling: Sampling, history: tuple[int, ...], prompt_length: int
) -> Tensor:
    """Logits with bias and penalties, a copy.

    Repetition divides positive and multiplies negative logits of every token seen, prompt included
    (Keskar et al. 2019); presence and frequency subtract for tokens of the output alone (OpenAI).
    """
    logits = logits.clone()
    for token, bias in sampling.logit_bias:
        logits[token] += bias
    if sampling.repetition_penalty != 1.0 and history:
        seen = torch.tensor(sorted(set(history)), device=logits.device)
        old = logits[seen]
        penalty = sampling.repetition_penalty
        logits[seen] = torch.where(old > 0, old / penalty, old * penalty)
    output = history[prompt_length:]
    if output and (sampling.presence_penalty or sampling.frequency_penalty):
        for token, count in Counter(output).items():
            logits[token] -= sampling.presence_penalty + sampling.frequency_penalty * count
    return logits


def logprob_of(logits: Tensor, token: int, alternatives: int) -> TokenLogprob:
    """The natural-log probability of `token` and of the best `alternatives`, from raw logits."""
    logprobs = logits.log_softmax(-1)
    top = logprobs.topk(min(alternatives, len(logprobs)))
    pairs = zip(top.indices.tolist(), top.values.tolist(), strict=True)
    return TokenLogprob(token, float(logprobs[token]), tuple(pairs))


def _filtered(logits: Tensor, sampling: Sampling) -> tuple[Tensor, Tensor]:
    """The candidates that top-k, top-p and min-p leave: (logits, tokens), best first if any is on.

    Top-p counts probability among what top-k left.
    """
    if 0 < sampling.top_k < len(logits):
        values, tokens = logits.topk(sampling.top_k)
        total = values.logsumexp(-1)
    elif sampling.top_p < 1.0 or sampling.min_p > 0.0:
        total = logits.logsumexp(-1)
        values, tokens = _best(logits, total, sampling)
    else:
        return logits, torch.arange(len(logits), device=logits.device)
    probability = (values - total).exp()
    keep = probability >= sampling.min_p * probability[0]
    if sampling.top_p < 1.0:
        keep &= probability.cumsum(-1) - probability < sampling.top_p
    keep[0] = True
    return values[keep], tokens[keep]


def _best(logits: Tensor, total: Tensor, sampling: Sampling) -> tuple[Tensor, Tensor]:
    """Sorted logits, only as far down as top-p or min-p can reach: sorting them all is slow."""
    values, tokens = logits.topk(min(BEST, len(logits)))
    probability = (values - total).exp()
    by_mass = bool(probability.sum() >= sampling.top_p)
    by_rank = bool(probability[-1] < sampling.min_p * probability[0])
    return (values, tokens) if by_mass or by_rank else logits.sort(descending=True)

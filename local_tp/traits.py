"""What distinguishes one family's maths from another's: frozen values, a part of `ModelSpec`.

Knows nothing of files or tensors. `checkpoint` reads them, `model` follows them.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

# Tensors by which files state how frequencies are scaled: of all texts, of long ones, of short.
ROPE_FACTORS = ("rope_factors", "rope_factors_long", "rope_factors_short")

Activation = Literal["silu", "gelu", "clamped"]  # of the gate; gelu is the tanh form


@dataclass(frozen=True, slots=True)
class RopeScaling:
    """Rotary frequency scaling as the checkpoint states it.

    `factor` divides frequencies: all of them (linear), those of long wavelengths (llama3, yarn), or
    as far as a text is longer than `original_context` (dynamic). longrope has a factor for each
    frequency instead, one list for texts up to `original_context` and one for longer ones.
    `attention` multiplies cosine and sine.
    """

    kind: Literal["linear", "llama3", "yarn", "dynamic", "longrope"]
    factor: float
    low_freq_factor: float = 1.0
    high_freq_factor: float = 4.0
    original_context: int = 8192
    beta_fast: float = 32.0
    beta_slow: float = 1.0
    truncate: bool = True  # yarn: its bounds are whole places among the frequencies
    short: tuple[float, ...] = ()
    long: tuple[float, ...] = ()
    attention: float = 1.0


@dataclass(frozen=True, slots=True)
class Rope:
    """A rotary embedding of the first `size` elements of a head; 0 stands for all of them.

    Pairs lie half of that apart.
    """

    theta: float = 10000.0
    size: int = 0
    scaling: RopeScaling | None = None


@dataclass(frozen=True, slots=True)
class Growth:
    """Queries far into a text count for more: 1 + `rate` x log(1 + whole `every`s before it)."""

    rate: float
    every: int


@dataclass(frozen=True, slots=True)
class Router:
    """How routed experts are chosen and weighed.

    `score` is over all experts; the best are chosen by it, plus a correction where the model has
    one. With `groups`, only experts of the best `chosen_groups` count, a group being as good as its
    best expert, or as its best two together (`pairs`). `normalize` makes the weights of the chosen
    add up to one; `scale` multiplies them.
    """

    score: Literal["softmax", "sigmoid"] = "softmax"
    normalize: bool = True
    scale: float = 1.0
    groups: int = 1
    chosen_groups: int = 1
    pairs: bool = False


@dataclass(frozen=True, slots=True)
class Traits:
    """What distinguishes one family's maths from another's, as data for the one decoder.

    Scales multiply; `attention_scale` 0 stands for one over the root of the head's size. Caps bend
    scores and logits by cap x tanh(value / cap); 0 leaves them. `parallel` layers feed attention
    and feed-forward with the same norm. `query_gate`: each query head comes with a gate for its
    output. Of gated delta nets, `values_tiled`: value head v uses key head v modulo their number,
    not the one of its group; `fade_logarithm`: how fast heads fade is stored as the logarithm of
    that, where other files have it negative and ready for use. What a layer has besides is seen
    from its tensors: biases, norms of q and k, norms after a branch, sinks.
    """

    norm_eps: float = 1e-5
    norm: Literal["rms", "layer"] = "rms"
    ropes: tuple[Rope, ...] = (Rope(),)
    attention_scale: float = 0.0
    attention_cap: float = 0.0
    logit_cap: float = 0.0
    embed_scale: float = 1.0
    residual_scale: float = 1.0
    logit_scale: float = 1.0
    query_growth: Growth | None = None
    activation: Activation = "silu"
    parallel: bool = False
    query_gate: bool = False
    values_tiled: bool = False
    fade_logarithm: bool = False
    router: Router = field(default_factory=Router)
    qkv_bias: bool = False
    tied_head: bool = False

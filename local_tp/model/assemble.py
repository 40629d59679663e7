"""From loaded parameters by name to the layers of a decoder, with the caches they write to.

Here alone a layer's kind decides what it is made of. Knows nothing of files or processes.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

import torch
from torch import Tensor

from local_tp.core import ModelSpec, Placement, Plan, Span
from local_tp.model.attention import Attention, AttentionWeights
from local_tp.model.batch import Places
from local_tp.model.collectives import Group
from local_tp.model.decoder import Branch, Layer, Run, Weights
from local_tp.model.delta_net import DeltaNet, DeltaState, DeltaWeights
from local_tp.model.expert_matrices import by_expert, matrices_of
from local_tp.model.experts import Experts, RoutedExperts, Routing
from local_tp.model.feed_forward import FeedForward
from local_tp.model.head_norms import Bystander, HeadNorms, WideNorms
from local_tp.model.latent import LatentAttention, LatentWeights
from local_tp.model.linear import DTYPES, Dense, Linear
from local_tp.model.operations import Scoring, TorchOperations
from local_tp.model.rope import growth_table, rope_tables, stored_factors
from local_tp.model.streaming import LayerStream
from local_tp.plan.cache import layer_places, ring_places
from local_tp.plan.delta_heads import delta_heads, kernel_of, key_of_values
from local_tp.plan.layer_cut import has_wide_norms, head_size, kv_elements


@dataclass(frozen=True, slots=True)
class Held:
    """What a rank has loaded, by the names of `plan.layout`."""

    linears: Mapping[str, Linear]
    vectors: Mapping[str, Tensor]
    stream: LayerStream


@dataclass(frozen=True, slots=True)
class Assembly:
    """One rank of a plan, to be made of `held`. `tokens` are the places of all streams together."""

    spec: ModelSpec
    plan: Plan
    placement: Placement
    held: Held
    operations: TorchOperations
    device: torch.device
    group: Group

    @property
    def tokens(self) -> int:
        return self.plan.pages * self.plan.page_size

    def weights(self) -> Weights:
        """Every layer of the rank; its caches are allocated."""
        held = self.held
        embed = held.linears.get("embed")
        return Weights(
            [self._layer(index) for index in range(*self.placement.layers)],
            embed,
            held.vectors.get("norm"),
            held.linears.get("head", embed if self.spec.traits.tied_head else None),
            held.stream,
        )

    def places(self) -> Places:
        """How the caches lie, and the rotary tables."""
        spec, context = self.spec, self.plan.context
        rotations = tuple(
            rope_tables(
                rope,
                spec.dimensions.head_dim,
                context,
                stored_factors(rope, context, self.held.vectors),
                self.device,
            )
            for rope in spec.traits.ropes
        )
        growth = spec.traits.query_growth
        slides = any(spec.kind(i).mixer == "sliding" for i in range(*self.placement.layers))
        return Places(
            self.plan.page_size,
            rotations,
            window=spec.dimensions.window if slides else 0,
            ring=ring_places(spec, self.plan.goal, self.tokens) if slides else 0,
            growth=growth_table(growth, self.plan.context, self.device) if growth else None,
        )

    def _layer(self, index: int) -> Layer:
        at, vectors = f"layers.{index}.", self.held.vectors
        return Layer(
            Branch(
                self._mixer(index),
                vectors.get(at + "attn_norm"),
                vectors.get(at + "o_bias"),
                vectors.get(at + "post_attn_norm"),
            ),
            Branch(
                self._feed(index),
                vectors.get(at + "ffn_norm"),
                vectors.get(at + "down_bias"),
                vectors.get(at + "post_ffn_norm"),
            ),
        )

    def _mixer(self, index: int) -> Run | None:
        at, linears, vectors = f"layers.{index}.", self.held.linears, self.held.vectors
        if at + "mix_in" in linears:
            return self._delta_net(index)
        if at + "k_up" in linears:
            return self._latent(index)
        if at + "qkv" not in linears:
            waited = self.group.size > 1 and has_wide_norms(self.spec, index)
            return Bystander(self.group) if waited else None
        spec, traits, kind = self.spec, self.spec.traits, self.spec.kind(index)
        size = head_size(spec, index)
        return Attention(
            AttentionWeights(
                linears[at + "qkv"],
                linears[at + "o"],
                vectors.get(at + "qkv_bias"),
                self._norms(index),
            ),
            self._cache(index, size),
            self.placement.query_heads.size,
            Scoring(
                traits.attention_scale or 1.0 / math.sqrt(size),
                traits.attention_cap,
                vectors.get(at + "sinks"),
            ),
            self.operations,
            kind.rope,
            kind.mixer == "sliding",
            traits.query_gate,
        )

    def _norms(self, index: int) -> HeadNorms | WideNorms | None:
        at, vectors, eps = f"layers.{index}.", self.held.vectors, self.spec.traits.norm_eps
        if at + "k_norm" not in vectors:
            return None
        query, key = vectors[at + "q_norm"], vectors[at + "k_norm"]
        if not has_wide_norms(self.spec, index):
            return HeadNorms(query, key, self.operations, eps)
        d, tensors = self.spec.dimensions, self.spec.tensors
        group, mine = d.query_heads // d.kv_heads, self.placement
        kept = mine.kv_heads
        first = -(-mine.query_heads.start // group)  # the KV head whose group begins here
        return WideNorms(
            query,
            key,
            eps,
            (tensors[at + "q"].shape[0], tensors[at + "k"].shape[0]),
            Span(first - kept.start, kept.size),
            self.group,
        )

    def _latent(self, index: int) -> LatentAttention:
        at, linears, vectors = f"layers.{index}.", self.held.linears, self.held.vectors
        d, traits = self.spec.dimensions, self.spec.traits
        return LatentAttention(
            LatentWeights(
                linears[at + "q"],
                linears[at + "kv_down"],
                vectors[at + "kv_down_norm"],
                self._by_head(at + "k_up"),
                self._by_head(at + "v_up"),
                linears[at + "o"],
                linears.get(at + "q_down"),
                vectors.get(at + "q_down_norm"),
            ),
            self._cache(index, d.kv_row),
            traits.attention_scale or 1.0 / math.sqrt(d.head_dim),
            self.operations,
            self.spec.kind(index).rope,
        )

    def _by_head(self, name: str) -> Tensor:
        """A matrix in plain numbers, (heads, rows of each, columns)."""
        matrix = self.held.linears[name]
        assert isinstance(matrix, Dense)
        heads = self.placement.query_heads.size
        return matrix.weight.view(heads, -1, matrix.weight.shape[1])

    def _delta_net(self, index: int) -> DeltaNet:
        at, linears, vectors = f"layers.{index}.", self.held.linears, self.held.vectors
        spec, device = self.spec, self.device
        decay = vectors[at + "mix_decay"]
        heads = delta_heads(spec, self.placement, index)
        streams, before = max(1, self.plan.goal.streams), kernel_of(spec, index) - 1
        matrices = streams, heads.values.size, heads.size, heads.size
        return DeltaNet(
            DeltaWeights(
                linears[at + "mix_in"],
                linears[at + "mix_gates"],
                linears[at + "mix_conv"],
                -decay.exp() if spec.traits.fade_logarithm else decay,
                vectors[at + "mix_step"],
                vectors[at + "mix_norm"],
                linears[at + "mix_o"],
            ),
            DeltaState(
                torch.empty((streams, before, heads.channels), device=device),
                torch.empty(matrices, device=device),
            ),
            torch.tensor(key_of_values(spec, self.placement, index), device=device),
            self.operations,
            spec.traits.norm_eps,
        )

    def _feed(self, index: int) -> Run | None:
        if self.spec.kind(index).feed == "experts":
            return self._experts(index)
        return self._gated(f"layers.{index}.")

    def _gated(self, at: str) -> FeedForward | None:
        """The dense feed-forward whose matrices' names begin so."""
        linears = self.held.linears
        if at + "down" not in linears:
            return None
        return FeedForward(
            linears[at + "gate_up"],
            linears[at + "down"],
            self.operations,
            self.spec.traits.activation,
        )

    def _experts(self, index: int) -> Experts | None:
        at, linears, vectors = f"layers.{index}.", self.held.linears, self.held.vectors
        shared, routed = self._gated(at + "shared_"), None
        if at + "router" in linears:
            experts = self.placement.experts
            routed = RoutedExperts(
                Routing(
                    linears[at + "router"],
                    self.spec.dimensions.active_experts,
                    self.spec.traits.router,
                    vectors.get(at + "router_bias"),
                    vectors.get(at + "router_correction"),
                ),
                experts.start,
                matrices_of(linears[at + "experts_gate_up"]),
                matrices_of(linears[at + "experts_down"]),
                self.operations,
                self.spec.traits.activation,
                by_expert(vectors.get(at + "experts_gate_up_bias"), experts.size, 2),
                by_expert(vectors.get(at + "experts_down_bias"), experts.size, 1),
            )
        if routed is None and shared is None:
            return None
        return Experts(routed, shared, vectors.get(at + "shared_router"))

    def _cache(self, index: int, size: int) -> Tensor:
        """Keys and values of one layer, (2 kv_heads, places, head size), or compressed ones."""
        places = layer_places(self.spec, self.plan.goal, self.tokens, index)
        shape = kv_elements(self.spec, self.placement, index) // size, places, size
        dtype = DTYPES[self.plan.goal.kv_format or "float32"]
        return torch.empty(shape, dtype=dtype, device=self.device)

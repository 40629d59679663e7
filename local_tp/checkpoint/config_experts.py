"""How a `config.json` states the experts of its layers, under the keys of its family.

Knows nothing of families: a row of `config_shape` names one of the readers here.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from local_tp.checkpoint.config_sizes import MOST_EXPERTS, MOST_LAYERS, count
from local_tp.checkpoint.fields import Fields


class Experts(NamedTuple):
    """Routed experts of a layer, those that a token meets, and columns: of each, and shared."""

    routed: int
    active: int
    width: int
    shared: int


def feeds(text: Fields, layers: int) -> tuple[int, str]:
    """How many dense layers come first, and the letters that repeat after them."""
    stated = text.texts("mlp_layer_types")
    if stated:
        if len(stated) != layers or not set(stated) <= {"dense", "sparse"}:
            raise text.wrong("mlp_layer_types", f"{layers} of dense, sparse")
        return 0, "".join("D" if t == "dense" else "E" for t in stated)
    last = text.get("moe_layer_end_index")
    if last not in (None, -1) and last != layers - 1:
        raise text.wrong("moe_layer_end_index", f"{layers - 1}, the last layer's,")
    if count(text, "moe_layer_interval", most=MOST_LAYERS) > 1:
        raise text.wrong("moe_layer_interval", "1")
    step = count(text, "decoder_sparse_step", "interleave_moe_layer_step", most=MOST_LAYERS)
    dense = set(text.integers("mlp_only_layers"))
    if dense:
        if not dense <= set(range(layers)):
            raise text.wrong("mlp_only_layers", f"numbers of the {layers} layers")
        every = max(1, step)
        return 0, "".join("D" if i in dense or (i + 1) % every else "E" for i in range(layers))
    first = count(text, "first_k_dense_replace", "moe_layer_start_index", most=MOST_LAYERS)
    return first, "D" * (step - 1) + "E"


def _reader(
    experts: str, active: str, width: str, shared: str = "", shared_each: str = ""
) -> Callable[[Fields], Experts]:
    """Reads a family's keys: `shared` is a width, `shared_each` a number of shared experts."""

    def read(text: Fields) -> Experts:
        each = count(text, width)
        beside = count(text, shared) if shared else 0
        if shared_each:
            beside = count(text, shared_each, most=MOST_EXPERTS) * each
        routed = count(text, experts, "num_local_experts", most=MOST_EXPERTS)
        return Experts(routed, count(text, active, most=MOST_EXPERTS), each, beside)

    return read


_PER_TOKEN, _MOE_WIDTH = "num_experts_per_tok", "moe_intermediate_size"
QWEN = _reader("num_experts", _PER_TOKEN, _MOE_WIDTH, shared="shared_expert_intermediate_size")
DEEPSEEK = _reader("n_routed_experts", _PER_TOKEN, _MOE_WIDTH, shared_each="n_shared_experts")
LOCAL = _reader("num_local_experts", _PER_TOKEN, "intermediate_size")
LLAMA4 = _reader("num_local_experts", _PER_TOKEN, "intermediate_size", shared="intermediate_size")
ERNIE = _reader("moe_num_experts", "moe_k", _MOE_WIDTH, shared_each="moe_num_shared_experts")
GEMMA4 = _reader("num_experts", "top_k_experts", _MOE_WIDTH, shared="intermediate_size")
OLMOE = _reader("num_experts", _PER_TOKEN, "intermediate_size")

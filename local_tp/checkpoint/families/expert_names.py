"""What files call the tensors of routed and shared experts, where families agree.

Experts that are stored apart count as one tensor whose name lacks their number.
"""

from __future__ import annotations

from local_tp.checkpoint.families.row import Groups
from local_tp.core import ModelSpec

_LAYER = "model.layers.{i}."
GATE_UP = ("layers.{i}.experts_gate", "layers.{i}.experts_up")
DOWN = ("layers.{i}.experts_down",)

GGUF_EXPERTS = {
    "layers.{i}.router": "blk.{i}.ffn_gate_inp.weight",
    "layers.{i}.router_bias": "blk.{i}.ffn_gate_inp.bias",
    "layers.{i}.router_correction": "blk.{i}.exp_probs_b.bias",
    "layers.{i}.experts_gate": "blk.{i}.ffn_gate_exps.weight",
    "layers.{i}.experts_up": "blk.{i}.ffn_up_exps.weight",
    "layers.{i}.experts_down": "blk.{i}.ffn_down_exps.weight",
    "layers.{i}.experts_gate_bias": "blk.{i}.ffn_gate_exps.bias",
    "layers.{i}.experts_up_bias": "blk.{i}.ffn_up_exps.bias",
    "layers.{i}.experts_down_bias": "blk.{i}.ffn_down_exps.bias",
    "layers.{i}.shared_router": "blk.{i}.ffn_gate_inp_shexp.weight",
    "layers.{i}.shared_gate": "blk.{i}.ffn_gate_shexp.weight",
    "layers.{i}.shared_up": "blk.{i}.ffn_up_shexp.weight",
    "layers.{i}.shared_down": "blk.{i}.ffn_down_shexp.weight",
}
GGUF_EXPERTS_FUSED = {"blk.{i}.ffn_gate_up_exps.weight": GATE_UP}


def folder_experts(
    router: str = "mlp.gate.weight",
    experts: str = "mlp.experts.",
    roles: tuple[str, str, str] = ("gate_proj", "up_proj", "down_proj"),
    shared: str = "",
    correction: str = "",
) -> dict[str, str]:
    """Names in a layer: the router's, those of gate, up and down behind a common start, and how
    those of shared experts begin."""
    names = {"layers.{i}.router": _LAYER + router}
    for role, name in zip(("gate", "up", "down"), roles, strict=True):
        names[f"layers.{{i}}.experts_{role}"] = f"{_LAYER}{experts}{name}.weight"
        if shared:
            names[f"layers.{{i}}.shared_{role}"] = f"{_LAYER}{shared}{role}_proj.weight"
    if correction:
        names["layers.{i}.router_correction"] = _LAYER + correction
    return names


def each_expert(wanted: ModelSpec, _: str) -> int:
    """Gate and up of an expert lie one above the other."""
    return wanted.dimensions.experts


def each_row(wanted: ModelSpec, layer: str) -> int:
    """Rows of gate and up take turns."""
    return wanted.tensors[f"layers.{layer}.experts_gate"].shape[0]


FOLDER_STACKED = {
    _LAYER + "mlp.experts.gate_up_proj": GATE_UP,
    _LAYER + "mlp.experts.down_proj": DOWN,
}
FOLDER_GROUPED: dict[str, Groups] = {_LAYER + "mlp.experts.gate_up_proj": each_expert}
GGUF_GROUPED: dict[str, Groups] = {"blk.{i}.ffn_gate_up_exps.weight": each_expert}

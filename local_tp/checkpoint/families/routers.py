"""How files state the choice of experts, where many families agree. Knows nothing of any family."""

from __future__ import annotations

from typing import Literal, NamedTuple

from local_tp.checkpoint.fields import Fields
from local_tp.traits import Router

Score = Literal["softmax", "sigmoid"]


class Keys(NamedTuple):
    """What a kind of file calls the numbers of a router."""

    scale: str = "routed_scaling_factor"
    groups: str = "n_group"
    chosen_groups: str = "topk_group"
    experts: str = "n_routed_experts"
    active: str = "num_experts_per_tok"


CONFIG = Keys()
GGUF = Keys(
    "expert_weights_scale",
    "expert_group_count",
    "expert_group_used_count",
    "expert_count",
    "expert_used_count",
)


def grouped_router(
    fields: Fields, keys: Keys, score: Score, normalize: bool, grouped: bool = True
) -> Router:
    """A choice among all experts or, where `grouped`, among those of the best groups.

    Groups are compared by their two best experts where scores are sigmoids, else by the best.
    Raises `CheckpointError` for groups that are not alike or too few to choose from.
    """
    router = Router(
        score,
        normalize=normalize,
        scale=fields.real(keys.scale, 1.0),
        groups=fields.integer(keys.groups, default=1) if grouped else 1,
        chosen_groups=fields.integer(keys.chosen_groups, default=1) if grouped else 1,
        pairs=score == "sigmoid",
    )
    count, least = fields.integer(keys.experts), 2 if router.pairs else 1
    if count % router.groups or (router.groups > 1 and count < least * router.groups):
        raise fields.wrong(keys.groups, f"a number of equal groups of {count} experts")
    active = fields.integer(keys.active)
    if not active * router.groups <= count * router.chosen_groups <= count * router.groups:
        raise fields.wrong(
            keys.chosen_groups, f"so many of {router.groups} groups as have {active}"
        )
    return router

"""Which format each tensor gets in a quantized file that people call by one name, as in Q4_K_M.

Knows nothing of files: it answers for a tensor's role and its place among the layers. The rules of
the K and IQ mixes are those of llama.cpp's quantize tool without an importance matrix's fallbacks;
mixes whose makers choose for each model (UD-…) are approximations fitted to published file sizes.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal, NamedTuple

from local_tp.checkpoint.fields import shown
from local_tp.checkpoint.formats import EXL_BITS, FORMATS
from local_tp.errors import CheckpointError

Where = Literal["all", "more", "first 1/8", "first 1/16", "first 2", "first 4", "middle", "last"]

DOWN = ("down", "experts_down", "shared_down")
GATE_UP = ("gate", "up", "experts_gate", "experts_up", "shared_gate", "shared_up")
RECURRENT_IN = ("mix_q", "mix_k", "mix_v")
EXPERTS = ("experts_gate", "experts_up", "experts_down")
PLAIN = ("router", "mix_conv_q", "mix_conv_k", "mix_conv_v")  # always float32, as vectors are
FALLBACK = {"Q4_K": "Q5_0", "Q5_K": "Q5_1", "Q6_K": "Q8_0"}  # where rows are not whole blocks


@dataclass(frozen=True, slots=True)
class Place:
    """A tensor: its role, which of `count` layers that have such a one, and its row length.

    `groups` is query heads for each KV head, `experts` the number of routed experts.
    """

    role: str
    index: int = 0
    count: int = 1
    columns: int = 256
    groups: int = 1
    experts: int = 0


class Rule(NamedTuple):
    """These roles get that format there; the first rule that fits a tensor counts."""

    roles: tuple[str, ...]
    format: str
    where: Where = "all"
    least_groups: int = 0
    experts: tuple[int, int] = (0, 1 << 30)  # only models with so many, at least and at most


@dataclass(frozen=True, slots=True)
class Mix:
    """A quantization by name: `base` for matrices, `embed` and `head`, and rules above them."""

    base: str
    embed: str
    head: str
    rules: tuple[Rule, ...] = field(default=())

    def format_of(self, place: Place, tied: bool) -> str:
        """The format of a matrix. A tied embedding is stored as a head is."""
        if place.role in PLAIN:
            return "F32" if FORMATS[self.base].quantized else self.base
        if place.role in ("embed", "head"):
            name = self.head if tied or place.role == "head" else self.embed
        else:
            name = next((r.format for r in self.rules if _fits(r, place)), self.base)
        return _whole_blocks(name, place.columns)


def _fits(rule: Rule, place: Place) -> bool:
    return (
        place.role in rule.roles
        and place.groups >= rule.least_groups
        and rule.experts[0] <= place.experts <= rule.experts[1]
        and _there(rule.where, place.index, place.count)
    )


def _there(where: Where, index: int, count: int) -> bool:
    """Whether layer `index` of `count` is one of those; "more" is an eighth at each end and every
    third between."""
    eighth = count // 8
    inside = eighth <= index < 7 * count // 8
    if where == "more":
        return not inside or (index - eighth) % 3 == 2
    return {
        "all": True,
        "first 1/8": index < eighth,
        "first 1/16": index < count // 16,
        "first 2": index < 2,
        "first 4": index < 4,
        "middle": inside,
        "last": index == count - 1,
    }[where]


def _whole_blocks(name: str, columns: int) -> str:
    """The format, or what takes its place in a matrix whose rows are not whole blocks of it."""
    grain = FORMATS[name].grain
    if columns % grain == 0:
        return name
    name = FALLBACK.get(name, "IQ4_NL") if grain == 256 else "F16"
    return name if columns % 32 == 0 else "F16"


# ----------------------------------------------------------------------- llama.cpp's own mixes

_EIGHT = (8, 8)  # Mixtral: few experts, so its attention is small beside them
_MANY = (4, 1 << 30)
_MIXTRAL = (
    Rule(("v", "k"), "Q8_0", experts=_EIGHT),
    Rule(("o",), "Q5_K", experts=_EIGHT),
)
_LOW_V = (Rule(("v",), "Q4_K", least_groups=4), Rule(("v",), "Q4_K", experts=_MANY))


def _k(base: str, *rules: Rule) -> Mix:
    return Mix(base, base, "Q6_K", (*_MIXTRAL, *rules))


def _iq2(base: str, embed: str, better: str, o: str) -> Mix:
    rules = (*_LOW_V, Rule(("v",), better), Rule(DOWN, better, "first 1/8"), Rule(("o",), o))
    return Mix(base, embed, "Q5_K", (*_MIXTRAL, *rules))


def _uniform(name: str, ends: str = "") -> Mix:
    return Mix(name, ends or name, ends or name)


_MIXES: dict[str, Mix] = {
    "Q2_K": _k("Q2_K", *_LOW_V, Rule((*DOWN, "o", "v"), "Q3_K")),
    "Q2_K_S": _k("Q2_K", Rule(("v",), "Q4_K", least_groups=4), Rule(DOWN, "Q4_K", "first 1/8")),
    "Q3_K_S": _k("Q3_K"),
    "Q3_K_M": _k(
        "Q3_K",
        Rule(("v",), "Q5_K", "first 2"),
        Rule(DOWN, "Q5_K", "first 1/16"),
        Rule((*DOWN, "v", "o", *RECURRENT_IN), "Q4_K"),
    ),
    "Q3_K_L": _k("Q3_K", Rule((*DOWN, "v", "o"), "Q5_K"), Rule(RECURRENT_IN, "Q4_K")),
    "Q4_0": _k("Q4_0"),
    "Q4_1": _k("Q4_1"),
    "Q5_0": _k("Q5_0"),
    "Q5_1": _k("Q5_1"),
    "Q4_K_S": _k("Q4_K", Rule(("v",), "Q5_K", "first 4"), Rule(DOWN, "Q5_K", "first 1/8")),
    "Q4_K_M": _k("Q4_K", Rule(("v", *DOWN), "Q6_K", "more"), Rule(RECURRENT_IN, "Q5_K")),
    "Q5_K_S": _k("Q5_K"),
    "Q5_K_M": _k("Q5_K", Rule(("v", *DOWN), "Q6_K", "more"), Rule(RECURRENT_IN, "Q6_K")),
    "Q6_K": _k("Q6_K"),
    "Q8_0": _uniform("Q8_0"),
    "IQ1_S": _iq2("IQ1_S", "Q2_K", "Q2_K", "IQ2_XXS"),
    "IQ1_M": _iq2("IQ1_M", "Q2_K", "Q2_K", "IQ2_XXS"),
    "IQ2_XXS": _iq2("IQ2_XXS", "Q2_K", "Q2_K", "IQ2_XXS"),
    "IQ2_XS": _iq2("IQ2_XS", "Q2_K", "Q2_K", "IQ2_XS"),
    "IQ2_S": _iq2("IQ2_XS", "IQ3_S", "IQ3_S", "IQ3_S"),
    "IQ2_M": _iq2("IQ2_S", "IQ3_S", "IQ3_S", "IQ3_S"),
    "IQ3_XXS": Mix(
        "IQ3_XXS",
        "IQ3_S",
        "Q5_K",
        (*_MIXTRAL, *_LOW_V, Rule(("q", "k"), "IQ2_S"), Rule(("o",), "IQ3_S")),
    ),
    "IQ3_XS": _k("IQ3_S", *_LOW_V, Rule(("q", "k"), "IQ3_XXS"), Rule(GATE_UP, "IQ3_XXS", "middle")),
    "IQ3_S": _k("IQ3_S", *_LOW_V),
    "IQ3_M": _k("IQ3_S", Rule(("v", "o", *RECURRENT_IN), "Q4_K"), Rule(DOWN, "Q4_K", "first 1/8")),
    "IQ4_XS": _k("IQ4_XS", Rule(("v",), "Q5_K", least_groups=4)),
    "IQ4_NL": _k("IQ4_NL", Rule(("v",), "Q5_K", least_groups=4)),
    "IQ2_K": _k("IQ2_K"),
    "IQ3_K": Mix(
        "IQ3_K", "Q8_0", "Q8_0", (Rule(DOWN, "IQ4_K"), Rule(("q", "k", "v", "o"), "Q8_0"))
    ),
    "IQ4_K": _k("IQ4_K"),
    "IQ5_K": _k("IQ5_K"),
    "IQ6_K": _k("IQ6_K"),
}

# ------------------------------------------------------------------------- other makers' files

_FINE = ("q", "k", "v", "o", "mix_z", "mix_o", *RECURRENT_IN)  # what dynamic mixes spare


def _dynamic(base: str, better: str, attention: str, head: str = "Q6_K", embed: str = "") -> Mix:
    """A mix in which attention gets `attention`, and expert and some other downs `better`."""
    rules = (
        Rule((*_FINE, "shared_gate", "shared_up", "shared_down"), attention),
        Rule(("experts_down",), better),
        Rule(DOWN, better, "more"),
    )
    return Mix(base, embed or base, head, rules)


_MIXES |= {
    "UD-IQ2_XXS": _dynamic("IQ2_XXS", "IQ2_S", "IQ3_XXS", "Q5_K", "Q4_K"),
    "UD-IQ3_XXS": _dynamic("IQ3_XXS", "IQ3_XXS", "IQ3_XXS", "Q5_K", "Q4_K"),
    "UD-Q2_K_XL": _dynamic("Q2_K", "Q3_K", "Q5_K", "Q6_K", "Q4_K"),
    "UD-Q3_K_XL": _dynamic("Q3_K", "Q4_K", "Q5_K", "Q6_K", "Q4_K"),
    "UD-IQ4_XS": _dynamic("IQ4_XS", "IQ4_XS", "Q5_K"),
    "UD-Q4_K_XL": _dynamic("Q4_K", "Q5_K", "Q6_K"),
    "UD-Q5_K_XL": _dynamic("Q5_K", "Q6_K", "Q6_K"),
    "UD-Q6_K_XL": _dynamic("Q6_K", "Q8_0", "Q8_0", "Q8_0"),
    "UD-Q8_K_XL": _dynamic("Q8_0", "F16", "F16", "F16"),
    "MXFP4": Mix("Q8_0", "Q8_0", "Q8_0", (Rule(EXPERTS, "MXFP4"),)),
    "NVFP4": Mix("NVFP4", "BF16", "BF16", (Rule(_FINE, "BF16", experts=_MANY),)),
    "FP8": _uniform("FP8", "BF16"),
    "INT8": _uniform("INT8", "BF16"),
    "NF4": _uniform("NF4", "BF16"),
    "INT4-G128": _uniform("INT4-G128", "F16"),
    "INT4-G32": _uniform("INT4-G32", "F16"),
    "F32": _uniform("F32"),
    "F16": _uniform("F16"),
    "BF16": _uniform("BF16"),
}

_EXL = re.compile(r"(EXL[23])[ -](\d(?:\.\d{1,2})?)(?:bpw)?", re.IGNORECASE)
_SPELLED: Mapping[str, str] = {
    "AWQ": "INT4-G128",
    "AWQ-4BIT": "INT4-G128",
    "GPTQ": "INT4-G128",
    "GPTQ 4BIT G128": "INT4-G128",
    "GPTQ 4BIT G128 ACT": "INT4-G128",
    "GPTQ 4BIT G32": "INT4-G32",
    "GPTQ 4BIT G32 ACT": "INT4-G32",
    "INT4": "INT4-G128",
    "INT4 AUTOROUND": "INT4-G128",
    "W4A16": "INT4-G128",
    "W4A16 SERVED W4A8": "INT4-G128",
    "4-BIT": "INT4-G128",
    "4BIT": "INT4-G128",
    "INT8-W8A8": "INT8",
    "W8A8": "INT8",
    "FLOAT16": "F16",
    "FLOAT32": "F32",
    "BFLOAT16": "BF16",
    "IQ3_M-UD": "IQ3_M",
    "UD-IQ2_M": "IQ2_M",
    "Q4": "Q4_K_M",
}


def names() -> tuple[str, ...]:
    """Every mix by name; beside them any EXL2-n or EXL3-n with n bits a weight."""
    return tuple(_MIXES)


def mix(name: str) -> Mix:
    """The mix of that name, in any case and in the common spellings. Raises `CheckpointError`."""
    plain = " ".join(name.upper().split("(")[0].split())  # without a remark in brackets
    plain = _SPELLED.get(plain, plain)
    if plain in _MIXES:
        return _MIXES[plain]
    match = _EXL.fullmatch(plain)
    if match and (bits := round(float(match[2]) * 100)) in EXL_BITS:
        kind = match[1]
        return Mix(f"{kind}-{bits / 100:.2f}", "F16", f"{kind}-6.00")
    raise CheckpointError(
        f"no quantization is known by the name {shown(name)}: use one such as Q4_K_M, Q8_0, F16, "
        "FP8, AWQ, MXFP4 or EXL3-4.0"
    )

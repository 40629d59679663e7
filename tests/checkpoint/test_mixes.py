"""Quantizations by name: sizes are those of published files, and layers get what the rules say."""

from __future__ import annotations

import pytest

from local_tp.checkpoint import mixes
from local_tp.checkpoint.formats import FORMATS
from local_tp.checkpoint.known_models import known_model
from local_tp.checkpoint.mixes import Place, mix
from local_tp.errors import CheckpointError

GIB = 1 << 30


def gib(model: str, quant: str) -> float:
    return sum(info.nbytes for info in known_model(model, quant).tensors.values()) / GIB


@pytest.mark.parametrize(
    ("model", "quant", "published"),
    [
        ("Llama 3 8B", "F16", 14.96),
        ("Llama 3 8B", "Q4_K_M", 4.58),
        ("Llama 3 70B", "F16", 131.42),
        ("Llama 3 70B", "Q4_K_M", 39.59),
        ("Llama 3.1 8B", "Q2_K_S", 2.78),
        ("Llama 3.1 8B", "Q2_K", 2.95),
        ("Llama 3.1 8B", "Q3_K_S", 3.41),
        ("Llama 3.1 8B", "Q3_K_L", 4.02),
        ("Llama 3.1 8B", "Q4_K_S", 4.36),
        ("Llama 3.1 8B", "Q5_K_S", 5.21),
        ("Llama 3.1 8B", "Q6_K", 6.14),
        ("Llama 3.1 8B", "Q8_0", 7.95),
        ("Llama 3.1 8B", "IQ2_XXS", 2.23),
        ("Llama 3.1 8B", "IQ2_M", 2.74),
        ("Llama 3.1 8B", "IQ3_XXS", 3.04),
        ("Llama 3.1 8B", "IQ3_XS", 3.27),
        ("Llama 3.1 8B", "IQ3_M", 3.52),
        ("Llama 3.1 8B", "IQ4_XS", 4.14),
        ("Llama 2 7B", "Q4_0", 3.56),
        ("Llama 2 7B", "Q3_K_M", 3.07),
        ("Llama 2 7B", "Q4_K_M", 3.80),
        ("Llama 2 7B", "Q5_K_M", 4.45),
        ("Llama 2 70B", "Q4_K_M", 38.58),
        ("Mistral 7B", "Q4_K_M", 4.07),
        ("Qwen2.5 7B", "Q4_K_M", 4.36),
        ("Qwen2.5 32B", "Q4_K_M", 18.48),
        ("Qwen3 30B-A3B", "Q4_K_M", 17.28),
        ("Qwen3 32B", "Q4_K_M", 18.40),
        ("Qwen3.5 9B", "Q4_K_M", 5.29),
        ("Qwen3 235B-A22B", "IQ3_K", 106.83),
        ("Qwen3 235B-A22B", "UD-Q2_K_XL", 81.96),
        ("Qwen3.8 27B", "UD-Q4_K_XL", 16.34),
        ("Qwen3.8 27B", "UD-IQ2_XXS", 8.39),
        ("Qwen3.8 27B", "UD-IQ3_XXS", 10.17),
        ("Gemma 4 31B", "Q6_K", 23.46),
        ("Gemma 4 31B", "Q8_0", 30.38),
        ("gpt-oss 20B", "MXFP4", 11.28),
        ("gpt-oss 120B", "MXFP4", 59.02),
    ],
)
def test_a_file_is_as_large_as_published(model: str, quant: str, published: float) -> None:
    assert gib(model, quant) == pytest.approx(published, rel=0.02)


def test_a_third_of_the_layers_and_both_ends_get_more_bits_in_q4_k_m() -> None:
    better = [
        index
        for index in range(32)
        if mix("Q4_K_M").format_of(Place("down", index, 32, 14336), tied=False) == "Q6_K"
    ]
    assert better == [0, 1, 2, 3, 6, 9, 12, 15, 18, 21, 24, 27, 28, 29, 30, 31]


def test_attention_is_spared_where_few_experts_dwarf_it() -> None:
    chosen = mix("Q4_K_M").format_of
    assert chosen(Place("k", 5, 32, 4096, 4, experts=8), tied=False) == "Q8_0"
    assert chosen(Place("k", 5, 32, 4096, 4, experts=128), tied=False) == "Q4_K"


def test_rows_that_are_not_whole_blocks_get_another_format() -> None:
    assert mix("Q4_K_M").format_of(Place("o", columns=2880), tied=False) == "Q5_0"
    assert mix("Q6_K").format_of(Place("o", columns=2880), tied=False) == "Q8_0"
    assert mix("Q4_K_M").format_of(Place("o", columns=100), tied=False) == "F16"


def test_head_embedding_and_what_is_always_plain() -> None:
    chosen = mix("Q4_K_M").format_of
    assert chosen(Place("head"), tied=False) == chosen(Place("embed"), tied=True) == "Q6_K"
    assert chosen(Place("embed"), tied=False) == "Q4_K"
    assert chosen(Place("router"), tied=False) == "F32"
    assert mix("BF16").format_of(Place("router"), tied=False) == "BF16"


@pytest.mark.parametrize(
    ("spelled", "same"),
    [
        ("q4_k_m", "Q4_K_M"),
        ("GPTQ 4bit g128 act", "INT4-G128"),
        ("GPTQ 4bit g32 act", "INT4-G32"),
        ("INT4 AutoRound", "AWQ"),
        ("INT8-W8A8", "INT8"),
        ("UD-Q2_K_XL (ser 4,1)", "UD-Q2_K_XL"),
        ("EXL2 4.5bpw", "EXL2-4.50"),
        ("exl3-3.5", "EXL3 3.50bpw"),
    ],
)
def test_spellings(spelled: str, same: str) -> None:
    assert mix(spelled) == mix(same)


def test_every_mix_names_formats_that_exist() -> None:
    for name in mixes.names():
        found = mix(name)
        named = {found.base, found.embed, found.head, *(rule.format for rule in found.rules)}
        assert named <= set(FORMATS), name


@pytest.mark.parametrize("name", ["Q9_Z", "", "EXL2 9.5bpw", "EXL3-4.03", "unstated"])
def test_an_unknown_name_is_refused_with_examples(name: str) -> None:
    with pytest.raises(CheckpointError, match="no quantization is known by the name") as caught:
        mix(name)
    assert "use one such as Q4_K_M" in str(caught.value)
    assert "\n" not in str(caught.value)

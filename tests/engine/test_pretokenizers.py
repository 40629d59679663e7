"""Every family's cuts against what else reads them: transformers' classes and its reading of GGUF,
tiktoken, and the pre-tokenizers as the models' own tokenizer.json files state them.
"""

from __future__ import annotations

import json
from typing import Any

import pytest
import tokenizers
from small_vocabularies import byte_level, gguf_spec, merges, tokens
from tokenizers import models, normalizers
from torture_text import TORTURE

from local_tp.engine.pretokenizers import splitting
from local_tp.engine.tokenizer import Tokenizer
from local_tp.errors import CheckpointError

transformers = pytest.importorskip("transformers")

READ_BY_TRANSFORMERS = (
    "gpt-2 default llama-bpe llama3 llama-v3 falcon3 falcon-h1 pixtral lfm2 midm-2.0 dbrx "
    "smaug-bpe tekken qwen2 deepseek-r1-qwen qwen35 gpt-4o llama4 kanana2 minimax-m2"
)
CUT_APART = (
    "gpt-2 smollm command-r llama-bpe qwen2 qwen35 gpt-4o tekken kimi-k2 deepseek-llm "
    "deepseek-coder deepseek-v3 falcon seed-coder jais-2 bailingmoe exaone-moe"
)


def same(pre: str, reference: tokenizers.Tokenizer) -> None:
    """Token for token, on every sample. What the reference added to the vocabulary is left out."""
    ours = Tokenizer.from_spec(gguf_spec(pre))
    bare = tokenizers.Tokenizer(reference.model)
    bare.pre_tokenizer = reference.pre_tokenizer
    if reference.normalizer is not None:
        bare.normalizer = reference.normalizer
    for sample in TORTURE:
        assert ours.encode(sample) == bare.encode(sample).ids, sample


@pytest.mark.parametrize(
    "pre",
    READ_BY_TRANSFORMERS.split(),
)
def test_equals_transformers_reading_of_a_gguf_file(pre: str) -> None:
    from transformers.integrations.gguf import convert_gguf_tokenizer

    metadata = {
        "tokenizer_type": "gpt2",
        "pre_tokenizer_type": pre,
        "tokens": tokens(),
        "merges": list(map(" ".join, merges())),
    }
    reference, _ = convert_gguf_tokenizer("llama", metadata)
    if pre in ("qwen2", "qwen35"):  # as Qwen's own class has it: a GGUF file cannot say so
        reference.normalizer = normalizers.NFC()
    same(pre, reference)


@pytest.mark.parametrize(
    ("pre", "named"),
    [
        ("gpt-2", "GPT2Tokenizer"),
        ("qwen2", "Qwen2Tokenizer"),
        ("stablelm2", "Qwen2Tokenizer"),
        ("hunyuan", "Qwen2Tokenizer"),
        ("qwen35", "Qwen3_5Tokenizer"),
        ("command-r", "CohereTokenizer"),
        ("olmo", "GPTNeoXTokenizer"),
        ("mpt", "GPTNeoXTokenizer"),
    ],
)
def test_equals_the_familys_own_class(pre: str, named: str) -> None:
    made = getattr(transformers, named)(vocab=dict(byte_level()["vocab"]), merges=merges())
    same(pre, made.backend_tokenizer)


def split(pattern: str) -> dict[str, Any]:
    return {
        "type": "Split",
        "pattern": {"Regex": pattern},
        "behavior": "Isolated",
        "invert": False,
    }


def spelled(use_regex: bool) -> dict[str, Any]:
    return {
        "type": "ByteLevel",
        "add_prefix_space": False,
        "trim_offsets": True,
        "use_regex": use_regex,
    }


DIGITS = {"type": "Digits", "individual_digits": True}
CJK = "[一-龥ࠀ-一가-퟿]+"
STATED: dict[str, list[dict[str, Any]]] = {
    "starcoder": [DIGITS, spelled(True)],
    "refact": [DIGITS, spelled(True)],
    "smollm": [DIGITS, spelled(True)],
    "exaone": [DIGITS, spelled(True)],
    "minerva-7b": [DIGITS, spelled(True)],
    "jais": [spelled(True)],
    "falcon": [
        {"type": "Punctuation", "behavior": "Contiguous"},
        spelled(True),
        {"type": "Digits", "individual_digits": False},
        split("[0-9][0-9][0-9]"),
    ],
    "deepseek-coder": [
        split("[\r\n]"),
        split("\\s?\\p{L}+"),
        split("\\s?\\p{P}+"),
        split(CJK),
        DIGITS,
        spelled(False),
    ],
    "deepseek-v3": [
        split("\\p{N}{1,3}"),
        split("[一-龥぀-ゟ゠-ヿ]+"),
        split(
            "[!\"#$%&'()*+,\\-./:;<=>?@\\[\\\\\\]^_`{|}~][A-Za-z]+|[^\r\n\\p{L}\\p{P}\\p{S}]?"
            "[\\p{L}\\p{M}]+| ?[\\p{P}\\p{S}]+[\r\n]*|\\s*[\r\n]+|\\s+(?!\\S)|\\s+"
        ),
        spelled(False),
    ],
    "seed-coder": [
        split(
            "(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\\p{L}\\p{N}]?\\p{L}+|\\p{N}{1}"
            "| ?[^\\s\\p{L}\\p{N}\r\n]+|\\s*[\r\n]+|\\s+(?!\\S)|\\s+"
        ),
        spelled(False),
    ],
    "jais-2": [
        split(
            "(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|\\p{N}{1,3}"
            "| ?[^\\s\\p{L}\\p{N}]+[\\r\\n]*|\\s*[\\r\\n]+|\\s{512}(?!\\S)|\\s{256}(?!\\S)"
            "|\\s{128}(?!\\S)|\\s{64}(?!\\S)|\\s{32}(?!\\S)|\\s{16}(?!\\S)|\\s{8}(?!\\S)"
            "|\\s{4}(?!\\S)|\\s{1,2}(?!\\S)|\\s{1}"
        ),
        spelled(False),
    ],
}
STATED["hunyuan-dense"] = STATED["deepseek-v3"]


def stated(steps: list[dict[str, Any]]) -> tokenizers.Tokenizer:
    """A tokenizer whose pre-tokenizer is given as a tokenizer.json gives it."""
    made = tokenizers.Tokenizer(models.BPE(vocab=byte_level()["vocab"], merges=merges()))
    whole = json.loads(made.to_str())
    whole["pre_tokenizer"] = {"type": "Sequence", "pretokenizers": steps}
    return tokenizers.Tokenizer.from_str(json.dumps(whole))


@pytest.mark.parametrize("pre", STATED)
def test_equals_what_the_models_files_state(pre: str) -> None:
    same(pre, stated(STATED[pre]))


def test_deepseek_llm_equals_its_file_also_where_its_pattern_is_spelled_otherwise() -> None:
    """Its own pattern for blanks at the end takes quadratic time, so ours is another."""
    letters = str(splitting("deepseek-llm").steps[1])
    marks = "\\s?[!-/:-~！-／：-～‘-‟　-。]+"
    steps = [split("[\r\n]"), split(letters), split(marks), split("\\s+$"), split(CJK)]
    same("deepseek-llm", stated([*steps, DIGITS, spelled(False)]))


@pytest.mark.parametrize(
    ("pre", "pattern"),
    [
        (
            "kimi-k2",
            "|".join(
                [
                    r"[\p{Han}]+",
                    r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}&&[^\p{Han}]]*"
                    r"[\p{Ll}\p{Lm}\p{Lo}\p{M}&&[^\p{Han}]]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?",
                    r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}&&[^\p{Han}]]+"
                    r"[\p{Ll}\p{Lm}\p{Lo}\p{M}&&[^\p{Han}]]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?",
                    r"\p{N}{1,3}",
                    r" ?[^\s\p{L}\p{N}]+[\r\n]*",
                    r"\s*[\r\n]+",
                    r"\s+(?!\S)",
                    r"\s+",
                ]
            ),
        ),
        (
            "glm4",
            r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}"
            r"| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+",
        ),
        (
            "bailingmoe",
            r"'(?i:[sdmt]|ll|ve|re)|[^\r\n\p{L}\p{N}]?+\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]++[\r\n]*"
            r"|\s*[\r\n]|\s+(?!\S)|\s+",
        ),
    ],
)
def test_equals_tiktoken(pre: str, pattern: str) -> None:
    tiktoken = pytest.importorskip("tiktoken")
    ours = Tokenizer.from_spec(gguf_spec(pre))
    ranks = {ours.token_bytes(i): i for i in range(ours.vocab_size)}
    reference = tiktoken.Encoding(
        "small", pat_str=pattern, mergeable_ranks=ranks, special_tokens={}
    )
    for sample in TORTURE:
        assert ours.encode(sample) == reference.encode_ordinary(sample), sample


def test_an_unknown_name_is_refused_by_name() -> None:
    with pytest.raises(
        CheckpointError, match=r"'never-heard-of'.*use a model with one of .*tekken"
    ):
        splitting("never-heard-of")


@pytest.mark.parametrize(
    "pre",
    CUT_APART.split(),
)
def test_long_runs_take_no_quadratic_time(pre: str) -> None:
    """Each of these would take minutes if every character looked at all others."""
    ours = Tokenizer.from_spec(gguf_spec(pre))
    for letter in (" ", "a", "A", "1", "\u0301"):
        sample = letter * 100_000 + "x"
        assert ours.decode(ours.encode(sample)) == sample

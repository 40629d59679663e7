"""From a file to token ids, for each kind of file, against what else reads that file."""

from __future__ import annotations

import base64
import json
from pathlib import Path
from typing import Any

import pytest
import tokenizers
from gguf import GGUFWriter
from small_vocabularies import AS_WRITTEN, gguf_spec, merges, sentencepiece, tokens
from torture_text import TORTURE

from local_tp.checkpoint.folder_text import read_folder_text
from local_tp.checkpoint.gguf_header import read_header
from local_tp.checkpoint.gguf_text import read_gguf_text
from local_tp.checkpoint.sentencepiece_model import read_sentencepiece
from local_tp.engine.tokenizer import Tokenizer
from local_tp.errors import CheckpointError
from local_tp.text import TextSpec

GPT4 = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}"
    r"| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)


def write(folder: Path, **files: Any) -> Path:
    for name, content in files.items():
        path = folder / name.replace("__", ".")
        path.write_text(content if isinstance(content, str) else json.dumps(content))
    return folder


def gguf(path: Path, architecture: str, **values: Any) -> TextSpec:
    """Written in the GGUF layout and read back."""
    writer = GGUFWriter(path, architecture)
    for name, value in values.items():
        key = f"tokenizer.ggml.{name}"
        if isinstance(value, str):
            writer.add_string(key, value)
        elif isinstance(value, bool):
            writer.add_bool(key, value)
        elif isinstance(value, int):
            writer.add_uint32(key, value)
        else:
            writer.add_array(key, value)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.close()
    return read_gguf_text(read_header(path).metadata, 1 << 20)


# ---------------------------------------------------------------------------------- tiktoken


def rank_lines() -> str:
    ours = Tokenizer.from_spec(gguf_spec("gpt-2"))
    lines = [base64.b64encode(ours.token_bytes(i)).decode() + f" {i}" for i in range(len(tokens()))]
    return "\n".join(lines) + "\n"


ADDED = {
    "1001": {"content": "<|im_end|>", "special": True},
    "1003": {"content": "<think>", "special": False},
}


def test_a_rank_file_equals_tiktoken_and_transformers(tmp_path: Path) -> None:
    tiktoken = pytest.importorskip("tiktoken")
    converter = pytest.importorskip("transformers.convert_slow_tokenizer").TikTokenConverter
    write(
        tmp_path,
        tokenizer__model=rank_lines(),
        config__json={"model_type": "llama"},
        tokenizer_config__json={"added_tokens_decoder": ADDED, "eos_token": "<|im_end|>"},
    )
    text = read_folder_text(tmp_path, 2000)
    assert (text.kind, text.pre, text.eos, len(text.tokens)) == ("gpt2", "llama-bpe", 1001, 1004)
    assert text.tokens[1000] == "<|reserved_token_1000|>"
    ours = Tokenizer.from_spec(text)
    ranks = {ours.token_bytes(i): i for i in range(1000)}
    special = {"<|im_end|>": 1001}
    reference = tiktoken.Encoding(
        "small", pat_str=GPT4, mergeable_ranks=ranks, special_tokens=special
    )
    fast = converter(str(tmp_path / "tokenizer.model")).converted()
    for sample in TORTURE:
        assert ours.encode(sample, parse_special=False) == reference.encode_ordinary(sample)
        assert ours.encode(sample) == reference.encode(sample, allowed_special="all")
        assert ours.encode(sample, parse_special=False) == fast.encode(sample).ids
        assert ours.decode(ours.encode(sample), skip_special=False) == sample
    assert ours.encode("a<think>b") == [*ours.encode("a"), 1003, *ours.encode("b")]


@pytest.mark.parametrize(
    ("name", "beside", "pre"),
    [
        ("tiktoken.model", {}, "kimi-k2"),
        ("qwen.tiktoken", {}, "qwen2"),
        ("tokenizer.model", {"tokenizer_class": "ChatGLM4Tokenizer"}, "glm4"),
    ],
)
def test_the_family_says_how_a_rank_file_cuts(
    tmp_path: Path, name: str, beside: dict[str, Any], pre: str
) -> None:
    write(tmp_path, tokenizer_config__json=beside)
    (tmp_path / name).write_text(rank_lines())
    text = read_folder_text(tmp_path, 2000)
    expected = Tokenizer.from_spec(gguf_spec(pre))
    ours = Tokenizer.from_spec(text)
    for sample in TORTURE:
        assert ours.encode(sample) == expected.encode(sample), sample


def test_a_rank_file_of_nobody_is_refused_unless_its_pattern_is_stated(tmp_path: Path) -> None:
    write(tmp_path, tokenizer__model=rank_lines())
    with pytest.raises(CheckpointError, match="nothing beside it says how text is cut"):
        read_folder_text(tmp_path, 2000)
    write(tmp_path, tokenizer_config__json={"pat_str": r"\p{L}+|[^\p{L}]"})
    ours = Tokenizer.from_spec(read_folder_text(tmp_path, 2000))
    assert [ours.token_text(i) for i in ours.encode("12")] == ["1", "2"]
    write(tmp_path, tokenizer_config__json={"pat_str": "("})
    with pytest.raises(CheckpointError, match="pattern that cuts words is damaged"):
        Tokenizer.from_spec(read_folder_text(tmp_path, 2000))


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (" \n", "no tokens"),
        ("YQ== 0\nYg== 0\n", "two of one rank"),
        ("YQ== 0\nYQ== 1\n", "line 2 lists a token that is there already"),
        ("YQ== 99999999999\n", "line 1 has no rank"),
        ("YQ== 9999999\n", "line 1 has no rank"),
        ("YQ==\n", "line 1 has no rank"),
        ("Y! 0\n", "not base64"),
        ("= 0\n", "base64"),
    ],
)
def test_damaged_rank_files_are_refused(tmp_path: Path, content: str, said: str) -> None:
    write(tmp_path, tokenizer__model=content, config__json={"model_type": "llama"})
    with pytest.raises(CheckpointError, match=said):
        read_folder_text(tmp_path, 2000)


# ------------------------------------------------------------------------------------ tekken


def tekken() -> dict[str, Any]:
    ours = Tokenizer.from_spec(gguf_spec("gpt-2"))
    raw = [ours.token_bytes(i) for i in range(len(tokens()))]
    names = ["<unk>", "<s>", "</s>", "[INST]", "[/INST]"]
    return {
        "config": {
            "pattern": GPT4,
            "default_vocab_size": 900,
            "default_num_special_tokens": 10,
            "version": "v7",
        },
        "vocab": [
            {"rank": i, "token_bytes": base64.b64encode(token).decode(), "token_str": None}
            for i, token in enumerate(raw)
        ],
        "special_tokens": [
            {"rank": i, "token_str": name, "is_control": True} for i, name in enumerate(names)
        ],
    }


def test_tekken_equals_transformers(tmp_path: Path) -> None:
    mistral = pytest.importorskip("transformers.integrations.mistral.tokenizer")
    write(
        tmp_path,
        tekken__json=tekken(),
        config__json={"bos_token_id": 1, "eos_token_id": 2},
    )
    text = read_folder_text(tmp_path, 900)
    assert (len(text.tokens), text.bos, text.eos, text.add_bos) == (900, 1, 2, True)
    ours = Tokenizer.from_spec(text)
    reference = mistral.MistralConverter(str(tmp_path / "tekken.json")).converted()
    for sample in (*TORTURE, "<s>[INST]hi[/INST]there</s>"):
        ids = reference.encode(sample, add_special_tokens=False).ids
        assert ours.encode(sample, add_bos=False) == ids, sample


def test_damaged_tekken_files_are_refused(tmp_path: Path) -> None:
    for path, value, said in (
        (("config",), 5, "config = 5"),
        (("config", "default_vocab_size"), 5, "default_vocab_size"),
        (("special_tokens",), None, "older kind"),
        (("special_tokens", 0, "rank"), 12, "rank = 12"),
        (("vocab", 3, "token_bytes"), "?", "not base64"),
    ):
        whole = tekken()
        place: Any = whole
        for step in path[:-1]:
            place = place[step]
        place[path[-1]] = value
        write(tmp_path, tekken__json=whole)
        with pytest.raises(CheckpointError, match=said):
            read_folder_text(tmp_path, 2000)


# ------------------------------------------------------------------- SentencePiece in a folder


def test_a_sentencepiece_folder_equals_the_library(tmp_path: Path) -> None:
    library = pytest.importorskip("sentencepiece")
    raw = sentencepiece(model_type="bpe", **AS_WRITTEN)
    (tmp_path / "tokenizer.model").write_bytes(raw)
    theirs = library.SentencePieceProcessor(model_proto=raw)
    size = theirs.vocab_size()
    added = {str(size): {"content": "<|im_end|>", "special": True}}
    write(
        tmp_path,
        tokenizer_config__json={
            "added_tokens_decoder": added,
            "bos_token": "<s>",
            "eos_token": {"content": "<|im_end|>"},
        },
    )
    text = read_folder_text(tmp_path, size + 1)
    assert (text.kind, text.bos, text.eos, text.unknown) == ("llama", 1, size, 0)
    assert text.stop_ids == (size,)
    ours = Tokenizer.from_spec(text)
    for sample in TORTURE:
        assert ours.encode(sample, parse_special=False) == [1, *theirs.encode(sample)], sample
    turn = ours.encode("a<|im_end|>b", add_bos=False)
    assert turn == [*theirs.encode("a"), size, *theirs.encode("b")]
    write(tmp_path, tokenizer_config__json={"legacy": False, "added_tokens_decoder": added})
    later = Tokenizer.from_spec(read_folder_text(tmp_path, size + 1))
    assert later.encode("a b", add_bos=False) == theirs.encode("a b")
    once = later.encode("a<|im_end|>b", add_bos=False)
    assert [text.tokens[i] for i in once] == ["▁a", "<|im_end|>", "b"]
    with pytest.raises(CheckpointError, match="not of one model"):
        read_folder_text(tmp_path, size)


# -------------------------------------------------------------------------------------- GGUF


def reference_of(architecture: str, **metadata: Any) -> tokenizers.Tokenizer:
    integration = pytest.importorskip("transformers.integrations.gguf")
    made: tokenizers.Tokenizer = integration.convert_gguf_tokenizer(architecture, metadata)[0]
    return made


@pytest.mark.parametrize(("architecture", "prefix"), [("phi3", True), ("gemma2", False)])
def test_scored_pieces_in_gguf_equal_transformers(
    tmp_path: Path, architecture: str, prefix: bool
) -> None:
    pytest.importorskip("sentencepiece")
    model = read_sentencepiece("x", sentencepiece(model_type="bpe", **AS_WRITTEN))
    names, kinds = list(model.tokens), list(model.types)
    if not prefix:  # as Gemma's files have runs: of real spaces, user-defined
        for width in range(2, 17):
            names.append(" " * width)
            kinds.append(4)
    scores = [*model.scores, *(-1000.0 for _ in names[len(model.tokens) :])]
    text = gguf(
        tmp_path / "small.gguf",
        architecture,
        model="llama",
        tokens=names,
        scores=scores,
        token_type=kinds,
        add_space_prefix=prefix,
    )
    ours = Tokenizer.from_spec(text)
    reference = reference_of(
        architecture, tokenizer_type="llama", tokens=names, scores=scores, token_type=kinds
    )
    for sample in TORTURE:
        ids = reference.encode(sample, add_special_tokens=False).ids
        assert ours.encode(sample, add_bos=False) == ids, sample


def test_gemma4_in_gguf_equals_transformers(tmp_path: Path) -> None:
    pytest.importorskip("sentencepiece")
    model = read_sentencepiece("x", sentencepiece(model_type="bpe", **AS_WRITTEN))
    spelled = tokenizers.Tokenizer.from_str(
        reference_of(
            "llama", tokenizer_type="llama", tokens=list(model.tokens), scores=list(model.scores)
        ).to_str()
    )
    pairs = [f"{a} {b}" for a, b in json.loads(spelled.to_str())["model"]["merges"]]
    pairs = [pair for pair in pairs if pair.count(" ") == 1]
    values = {"tokens": list(model.tokens), "merges": pairs, "token_type": list(model.types)}
    text = gguf(tmp_path / "small.gguf", "gemma4", model="gemma4", unknown_token_id=0, **values)
    assert text.kind == "gemma4"
    reference = reference_of("gemma4", tokenizer_type="gemma4", **values)
    ours = Tokenizer.from_spec(text)
    for sample in TORTURE:
        ids = reference.encode(sample, add_special_tokens=False).ids
        assert ours.encode(sample) == ids, sample


def test_a_gguf_file_without_a_pre_tokenizer_is_doubted(tmp_path: Path) -> None:
    values = {"tokens": tokens(), "merges": list(map(" ".join, merges()))}
    (doubt,) = gguf(tmp_path / "a.gguf", "llama", model="gpt2", **values).doubts
    assert "does not name its pre-tokenizer, and GPT-2's is used" in doubt
    assert gguf(tmp_path / "b.gguf", "llama", model="gpt2", pre="qwen2", **values).doubts == ()
    with pytest.raises(CheckpointError, match="no merges"):
        gguf(tmp_path / "c.gguf", "llama", model="gpt2", pre="qwen2", tokens=tokens())
    kimi = gguf(tmp_path / "d.gguf", "llama", model="gpt2", pre="kimi-k2", tokens=tokens())
    stated = Tokenizer.from_spec(gguf_spec("kimi-k2"))
    ours = Tokenizer.from_spec(kimi)
    for sample in TORTURE:
        assert ours.encode(sample) == stated.encode(sample), sample


def test_named_chat_templates_in_gguf(tmp_path: Path) -> None:
    writer = GGUFWriter(tmp_path / "a.gguf", "llama")
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre("qwen2")
    writer.add_token_list([*tokens(), "<|im_end|>"])
    writer.add_token_types([*(1 for _ in tokens()), 3])
    writer.add_token_merges(list(map(" ".join, merges())))
    writer.add_chat_template(
        [
            {"name": "default", "template": "D"},
            {"name": "tool_use", "template": "T<|im_end|>"},
            {"name": "rag", "template": "R"},
        ]
    )
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.close()
    text = read_gguf_text(read_header(tmp_path / "a.gguf").metadata, 1 << 20)
    assert text.chat_template == "D"
    assert text.named_templates == (("rag", "R"), ("tool_use", "T<|im_end|>"))
    assert text.stop_ids == (len(tokens()),)
    assert text.templates == ("D", "R", "T<|im_end|>")

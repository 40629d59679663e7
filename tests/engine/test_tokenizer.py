"""Token ids against transformers' reading of the same file, and against vocabularies made by hand.

For `smollm` transformers 5.24 keeps GPT-2's pattern and so cuts spaces before digits otherwise than
the model's own tokenizer, which sets every digit apart; the reference is corrected for that.
"""

from __future__ import annotations

import random
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import tokenizers
from tokenizers import AddedToken, decoders, models, pre_tokenizers, processors

from local_tp.checkpoint.read import read
from local_tp.engine.tokenizer import Tokenizer
from local_tp.errors import CheckpointError, InputError
from local_tp.text import TextSpec

WORDS = [
    "Hello, world! It's what they'll say: DON'T, we've, I'M.",
    "👨‍👩‍👧‍👦 🏳️‍🌈 🇩🇪🇯🇵 👍🏽 ❤️",
    "你好，世界！日本語のテキスト。한국어 텍스트",
    "مرحبا بالعالم — שלום",
    "नमस्ते दुनिया, क्षत्रिय",
    "e\u0301 a\u030a Z\u0337a\u0338l\u0335g\u0336o Việt Cửa",
    "def f(x):\n\tif x:\n\t\treturn  x ** y   # c\n\n\n    z = [a, b]\r\n\r\n  ",
    "   leading and trailing   ",
    "\n\n\n",
    " ",
    "",
    "\u00a0no-break\u200bzero\u3000wide \ufeffmark \x00\x7f",
    "<|im_start|>user\nhi<|im_end|>\n<|im_start|>assistant\n<|endoftext|><|im_end",
    "HelloWorld XMLHttpRequest /path/to//x\\y $%^&*()_+ ǅ ß ﬁ",
]
NUMBERS = [
    "12345 3.14159 1,000,000 x86_64",
    "spaces  1   22    333\t4\n5",
    "१२३ ١٢٣ ½²Ⅷ",
]


@pytest.fixture(scope="module")
def text(starter: Path) -> TextSpec:
    return read(starter).text


@pytest.fixture(scope="module")
def tokenizer(text: TextSpec) -> Tokenizer:
    return Tokenizer.from_spec(text)


@pytest.fixture(scope="module")
def reference(starter: Path) -> Any:
    transformers = pytest.importorskip("transformers")
    # The class AutoTokenizer picks for this file, without the seconds it takes to choose.
    return transformers.PreTrainedTokenizerFast.from_pretrained(
        starter.parent, gguf_file=starter.name
    )


def test_equals_transformers_token_for_token(tokenizer: Tokenizer, reference: Any) -> None:
    for sample in WORDS:
        assert tokenizer.encode(sample) == reference(sample)["input_ids"], sample
    own = reference.backend_tokenizer
    own.pre_tokenizer = pre_tokenizers.Sequence(
        [pre_tokenizers.Digits(individual_digits=True), pre_tokenizers.ByteLevel(False)]
    )
    for sample in WORDS + NUMBERS:
        ids = own.encode(sample, add_special_tokens=False).ids
        assert tokenizer.encode(sample) == ids, sample
        for skip in (True, False):
            assert tokenizer.decode(ids, skip_special=skip) == own.decode(ids, skip), sample


def test_any_ids_decode_as_the_library_does(tokenizer: Tokenizer, reference: Any) -> None:
    draw = random.Random(7)
    bytes_alone = [i for i in range(600) if len(tokenizer.token_bytes(i)) == 1]
    for pool in (bytes_alone, range(tokenizer.vocab_size)):
        for _ in range(200):
            ids = draw.choices(pool, k=30)
            assert tokenizer.decode(ids) == reference.backend_tokenizer.decode(ids)


def test_smollm_sets_every_digit_apart_and_keeps_the_spaces_before_whole(
    tokenizer: Tokenizer,
) -> None:
    pieces = [tokenizer.token_text(i) for i in tokenizer.encode("at  12")]
    assert pieces == ["at", "  ", "1", "2"]


def test_text_survives_encoding(tokenizer: Tokenizer) -> None:
    for sample in WORDS + NUMBERS:
        ids = tokenizer.encode(sample, parse_special=False)
        assert tokenizer.decode(ids) == sample
        assert b"".join(map(tokenizer.token_bytes, ids)) == sample.encode()
        assert tokenizer.control_ids.isdisjoint(ids)


def test_control_tokens(tokenizer: Tokenizer) -> None:
    assert tokenizer.encode("<|im_start|>") == [1]
    assert len(tokenizer.encode("<|im_start|>", parse_special=False)) > 1
    assert tokenizer.decode([1, *tokenizer.encode("hi"), 2]) == "hi"
    assert tokenizer.decode([1, 2], skip_special=False) == "<|im_start|><|im_end|>"
    assert (tokenizer.bos_text, tokenizer.eos_text) == ("<|im_start|>", "<|im_end|>")
    assert tokenizer.stop_ids >= {2}
    assert tokenizer.vocab_size == 49152


def test_bos_is_what_the_checkpoint_says_unless_asked(text: TextSpec) -> None:
    plain = Tokenizer.from_spec(text)
    assert plain.encode("hi", add_bos=True) == [1, *plain.encode("hi")]
    starting = Tokenizer.from_spec(replace(text, add_bos=True))
    assert starting.encode("hi") == plain.encode("hi", add_bos=True)
    assert starting.encode("hi", add_bos=False) == plain.encode("hi")
    assert Tokenizer.from_spec(replace(text, bos=None)).encode("hi", add_bos=True) == plain.encode(
        "hi"
    )


def test_a_large_vocabulary_is_ready_at_once(text: TextSpec) -> None:
    began = time.process_time()
    Tokenizer.from_spec(text)
    assert time.process_time() - began < 0.5


def test_half_a_surrogate_pair_is_refused(tokenizer: Tokenizer) -> None:
    with pytest.raises(InputError, match=r"character 3 .*surrogate"):
        tokenizer.encode("abc\ud83d")


def test_ids_beyond_the_vocabulary_have_no_text(tokenizer: Tokenizer) -> None:
    assert tokenizer.token_bytes(60000) == b""
    assert tokenizer.decode([60000, *tokenizer.encode("hi")]) == "hi"


# ------------------------------------------------------------------------- byte-level, by hand


def byte_level(pre: str, **changes: Any) -> TextSpec:
    """All bytes, a few merges, a whole word without merges, one control and one added token."""
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    merges = ("1 2", "12 3", "123 4", "a B", "' M", "Ġ Ġ", "Ġ a", "/ Ċ")
    made = tuple(merge.replace(" ", "") for merge in merges)
    tokens = (*alphabet, *made, "xyz", "<|end|>", "<think>")
    types = (1,) * (len(tokens) - 2) + (3, 4)
    spec = TextSpec("gpt2", tokens=tokens, token_types=types, merges=merges, pre=pre)
    return replace(spec, **changes)


def pieces(tokenizer: Tokenizer, text: str, **options: Any) -> list[str]:
    return [tokenizer.token_text(i) for i in tokenizer.encode(text, **options)]


@pytest.mark.parametrize(
    ("pre", "text", "expected"),
    [
        ("gpt-2", "1234", ["1234"]),
        ("default", "1234", ["1234"]),
        ("smollm", "1234", ["1", "2", "3", "4"]),
        ("starcoder", "1234", ["1", "2", "3", "4"]),
        ("deepseek-coder", "1234", ["1", "2", "3", "4"]),
        ("qwen2", "1234", ["1", "2", "3", "4"]),
        ("tekken", "1234", ["1", "2", "3", "4"]),
        ("llama-bpe", "1234", ["123", "4"]),
        ("gpt-4o", "1234", ["123", "4"]),
        ("deepseek-v3", "1234", ["123", "4"]),
        ("gpt-2", "x'M", ["x", "'", "M"]),
        ("llama-bpe", "x'M", ["x", "'M"]),
        ("gpt-2", "aB", ["aB"]),
        ("llama-bpe", "aB", ["aB"]),
        ("tekken", "aB", ["a", "B"]),
        ("gpt-4o", "aB", ["a", "B"]),
        ("gpt-2", "   a", ["  ", " a"]),
        ("deepseek-coder", "   a", ["  ", " a"]),
        ("gpt-2", "/\n", ["/", "\n"]),
        ("llama-bpe", "/\n", ["/\n"]),
        ("llama-bpe", "xyz", ["xyz"]),
        ("tekken", "xyz", ["xyz"]),
        ("smaug-bpe", "xyz", ["x", "y", "z"]),
        ("qwen2", "xyz", ["x", "y", "z"]),
    ],
)
def test_words_are_cut_as_the_family_does(pre: str, text: str, expected: list[str]) -> None:
    assert pieces(Tokenizer.from_spec(byte_level(pre)), text) == expected


def test_qwen_composes_characters_and_others_do_not() -> None:
    for pre, composed in (("qwen2", True), ("llama-bpe", False), ("deepseek-r1-qwen", False)):
        made = Tokenizer.from_spec(byte_level(pre))
        assert (made.decode(made.encode("e\u0301")) == "\u00e9") == composed


def test_user_defined_tokens_are_text_and_control_tokens_are_not() -> None:
    made = Tokenizer.from_spec(byte_level("gpt-2"))
    think, end = made.vocab_size - 1, made.vocab_size - 2
    assert made.encode("<think>a<|end|>") == [think, *made.encode("a"), end]
    plain = made.encode("<think>a<|end|>", parse_special=False)
    assert plain[0] == think
    assert end not in plain
    assert made.decode([think, end]) == "<think>"


def test_a_token_named_as_a_stop_is_control_whatever_its_type() -> None:
    spec = byte_level("gpt-2")
    stop = spec.tokens.index("xyz")
    made = Tokenizer.from_spec(replace(spec, stop_ids=(stop,)))
    assert made.stop_ids == {stop}
    assert made.decode([stop]) == ""


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        (byte_level("kimi-k9"), r"'kimi-k9'.*default, .*llama-bpe.*smollm"),
        (byte_level("gpt-2", merges=("a nothing",)), "merges .* damaged"),
        (byte_level("gpt-2", merges=("ab",)), "merges .* damaged"),
        (byte_level("gpt-2", token_types=(1,)), "1 token types"),
        (byte_level("gpt-2", eos=5000), "names token 5000"),
        (byte_level("gpt-2", tokens=()), "no tokens"),
        (byte_level("gpt-2", kind="llama"), "0 scores"),
        (TextSpec("json"), "no tokenizer.json"),
    ],
)
def test_damaged_vocabularies_are_refused(spec: TextSpec, message: str) -> None:
    with pytest.raises(CheckpointError, match=message) as caught:
        Tokenizer.from_spec(spec)
    assert "\n" not in str(caught.value)
    assert caught.value.exit_code == 2


# ----------------------------------------------------------------------- SentencePiece, by hand


def sentencepiece(**changes: Any) -> TextSpec:
    """Control tokens, all bytes, and pieces whose scores fall in the order they stand in.

    Runs of spaces share the lowest score, as real models have them.
    """
    words = ["▁t", "he", "▁the", "▁▁", "▁▁▁", "</", "s>", "ab", "bc"]
    letters = ["▁", *"thesabc<>/"]
    tokens = ["<unk>", "<s>", "</s>", *(f"<0x{b:02X}>" for b in range(256)), *words, *letters]
    types = [2, 3, 3] + [6] * 256 + [1] * (len(words) + len(letters))
    scores = [0.0] * 259 + [-float(i) for i in range(len(words) + len(letters))]
    for run in ("▁▁", "▁▁▁"):
        scores[tokens.index(run)] = -1e9
    spec = TextSpec(
        "llama",
        tokens=tuple(tokens),
        scores=tuple(scores),
        token_types=tuple(types),
        bos=1,
        eos=2,
        unknown=0,
        add_bos=True,
    )
    return replace(spec, **changes)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("the", ["▁the"]),
        ("the the", ["▁the", "▁the"]),
        (" the", ["▁", "▁the"]),
        ("abc", ["▁", "ab", "c"]),
        ("a    b", ["▁", "a", "▁▁▁", "▁", "b"]),
        ("é", ["▁", "<0xC3>", "<0xA9>"]),
        ("a\nb", ["▁", "a", "<0x0A>", "b"]),
        ("<s>the</s>the", ["<s>", "▁the", "</s>", "▁the"]),
        ("", []),
    ],
)
def test_sentencepiece_pieces(text: str, expected: list[str]) -> None:
    spec = sentencepiece()
    ids = Tokenizer.from_spec(spec).encode(text, add_bos=False)
    assert [spec.tokens[i] for i in ids] == expected


def test_sentencepiece_spaces_and_bytes_come_back() -> None:
    made = Tokenizer.from_spec(sentencepiece())
    for sample in ["the  cab", " the", "😀 é\n\tthe ", "</s>"]:
        ids = made.encode(sample, parse_special=False)
        assert ids[0] == 1
        assert 2 not in ids
        assert made.decode(ids) == sample
        assert made.decode(ids, continues=True) == " " + sample
    assert made.token_bytes(3 + 0xF0) == b"\xf0"
    assert made.token_text(3 + 0xF0) == "\ufffd"
    assert made.token_text(made.encode("the", add_bos=False)[0]) == " the"
    assert made.decode(made.encode("the"), skip_special=False) == "<s> the"


def test_sentencepiece_without_the_first_space() -> None:
    made = Tokenizer.from_spec(sentencepiece(add_space_prefix=False))
    assert made.decode(made.encode(" the")) == " the"
    assert made.decode(made.encode("the")) == "the"


# ------------------------------------------------------------------------------ tokenizer.json


def save(path: Path, spec: TextSpec, decoder: Any) -> str:
    """The vocabulary of `spec` as a tokenizer.json that begins every text with BOS, cut at two."""
    vocab = {token: i for i, token in enumerate(spec.tokens)}
    pairs = [(left, right) for left, right in (merge.split(" ") for merge in spec.merges)]
    made = tokenizers.Tokenizer(models.BPE(vocab=vocab, merges=pairs))
    made.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    if decoder is not None:
        made.decoder = decoder
    made.add_special_tokens([AddedToken("<|end|>", normalized=False, special=True)])
    made.add_tokens(["<think>"])
    made.add_special_tokens([AddedToken("<|begin|>", normalized=False, special=True)])
    begin = made.token_to_id("<|begin|>")
    made.post_processor = processors.TemplateProcessing(
        single="<|begin|> $A", pair=None, special_tokens=[("<|begin|>", begin)]
    )
    made.enable_truncation(2)
    made.save(str(path))
    return str(path)


def test_json_says_the_same_as_the_gguf_of_it(tmp_path: Path) -> None:
    spec = byte_level("gpt-2")
    gguf = Tokenizer.from_spec(spec)
    begin, end = len(spec.tokens), spec.tokens.index("<|end|>")
    file = save(tmp_path / "tokenizer.json", spec, decoders.ByteLevel())
    made = Tokenizer.from_spec(TextSpec("json", file=file, bos=begin, eos=end, add_bos=True))
    for sample in WORDS + NUMBERS + ["<think>a<|end|>"]:
        for parse in (True, False):
            ids = gguf.encode(sample, parse_special=parse)
            assert made.encode(sample, parse_special=parse) == [begin, *ids]
            assert made.decode(ids) == gguf.decode(ids)
    assert (made.bos_text, made.eos_text) == ("<|begin|>", "<|end|>")
    assert made.encode("<|begin|>", add_bos=False) == [begin]
    assert begin not in made.encode("<|begin|>", add_bos=False, parse_special=False)
    assert made.vocab_size == len(spec.tokens) + 1
    assert made.stop_ids == {end}


def test_json_with_byte_fallback(tmp_path: Path) -> None:
    steps = [decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse()]
    spec = replace(sentencepiece(), merges=("▁ t", "h e", "▁t he"))
    for extra, dropped in (([decoders.Strip(" ", 1, 0)], True), ([], False)):
        file = save(tmp_path / "tokenizer.json", spec, decoders.Sequence(steps + extra))
        made = Tokenizer.from_spec(TextSpec("json", file=file))
        ids = [spec.tokens.index(token) for token in ("▁the", "<0xC3>", "<0xA9>", "▁the")]
        assert made.decode(ids) == ("" if dropped else " ") + "theé the"


def test_json_that_cannot_be_used_is_refused(tmp_path: Path) -> None:
    broken = tmp_path / "broken.json"
    broken.write_text('{"model": ')
    unknown = save(tmp_path / "unknown.json", byte_level("gpt-2"), decoders.WordPiece())
    silent = save(tmp_path / "silent.json", byte_level("gpt-2"), None)
    for file, message in (
        (str(broken), "cannot read the tokenizer .*broken.json"),
        (str(tmp_path / "absent.json"), "cannot read the tokenizer .*absent.json"),
        (unknown, "unknown.json decodes by WordPiece"),
        (silent, "silent.json decodes by nothing"),
    ):
        with pytest.raises(CheckpointError, match=message):
            Tokenizer.from_spec(TextSpec("json", file=file))


def test_user_defined_tokens_are_spelled_as_they_read() -> None:
    """Also in a byte-level vocabulary, whose alphabet has letters like é for other bytes."""
    letters = sorted(byte_letters())
    tokens = (*letters, "<|é|>")
    text = TextSpec(
        kind="gpt2",
        tokens=tokens,
        token_types=(*(1 for _ in letters), 4),
        merges=(),
        pre="gpt-2",
    )
    tokenizer = Tokenizer.from_spec(text)
    ids = tokenizer.encode("a<|é|>é")
    assert ids.count(len(letters)) == 1
    assert tokenizer.decode(ids) == "a<|é|>é"


def byte_letters() -> list[str]:
    """The letters that byte-level vocabularies spell bytes with, by the library that uses them."""
    from tokenizers.pre_tokenizers import ByteLevel

    return list(ByteLevel.alphabet())

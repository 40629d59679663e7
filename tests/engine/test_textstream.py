"""The stream's one promise, over any text, any token ids and any stop strings: it equals the whole
decode, cut where the first stop string begins, and it never takes back a character.
"""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizers import pre_tokenizers

from local_tp.engine.textstream import TextStream
from local_tp.engine.tokenizer import Tokenizer
from local_tp.errors import InputError
from local_tp.text import TextSpec

ALPHABET = tuple(sorted(pre_tokenizers.ByteLevel.alphabet()))
BYTE_MERGES = ("a b", "ab c", "Ġ a", "ð Ł", "ðŁ ĺ", "ä ½", "Ì ģ", "o p", "s t", "st op")
BYTE_TOKENS = (*ALPHABET, *(m.replace(" ", "") for m in BYTE_MERGES), "<|end|>", "<think>", "�")
BYTE_LEVEL = Tokenizer.from_spec(
    TextSpec(
        "gpt2",
        tokens=BYTE_TOKENS,
        token_types=(1,) * (len(BYTE_TOKENS) - 3) + (3, 4, 4),
        merges=BYTE_MERGES,
    )
)
WORDS = ("▁a", "ab", "abc", "▁▁", "st", "op", "stop", "▁", *"abcstop", "é", "你", "�")
PIECES = ("<unk>", "<s>", "</s>", *(f"<0x{b:02X}>" for b in range(256)), *WORDS)
SENTENCEPIECE = Tokenizer.from_spec(
    TextSpec(
        "llama",
        tokens=PIECES,
        scores=tuple(-float(i) for i in range(len(PIECES))),
        token_types=(2, 3, 3, *(6,) * 256, *(1,) * len(WORDS)),
        bos=1,
        eos=2,
        unknown=0,
    )
)

TOKENIZERS = st.sampled_from([BYTE_LEVEL, SENTENCEPIECE])
TEXTS = st.text(
    st.sampled_from("abcstop e\u0301é你好\n😀👨\u200d👩\U0001f3fd\ufffd<|end|>")
    | st.characters(exclude_categories=["Cs"])
)
STOPS = st.lists(
    st.sampled_from(
        ["stop", "top", "ab", "abc", "bcs", "aab", "é", "\u0301", "你好", "\n\n", "😀", "�"]
    )
    | st.text("abc", min_size=1, max_size=4),
    max_size=4,
)


def ids_of(tokenizer: Tokenizer) -> st.SearchStrategy[list[int]]:
    """Encoded text, any ids at all (invalid bytes among them), and mixtures."""
    text = TEXTS.map(tokenizer.encode)
    anything = st.lists(st.integers(0, tokenizer.vocab_size + 1))
    return st.lists(text | anything, max_size=4).map(lambda runs: [i for run in runs for i in run])


def cut(text: str, stop: Sequence[str]) -> str:
    found = [at for at in map(text.find, stop) if at >= 0]
    return text[: min(found)] if found else text


def run(stream: TextStream, ids: Sequence[int]) -> str:
    return "".join([*map(stream.push, ids), stream.flush()])


@settings(deadline=None)
@given(st.data(), TOKENIZERS, st.booleans(), st.booleans())
def test_pieces_together_are_the_whole_decode(
    data: st.DataObject, tokenizer: Tokenizer, skip: bool, continues: bool
) -> None:
    ids = data.draw(ids_of(tokenizer))
    stream = TextStream(tokenizer, skip_special=skip, continues=continues)
    whole = tokenizer.decode(ids, skip_special=skip, continues=continues)
    seen = ""
    for place, token in enumerate(ids):
        seen += stream.push(token)
        assert whole.startswith(seen)
        so_far = tokenizer.decode(ids[: place + 1], skip_special=skip, continues=continues)
        # Half a character is one U+FFFD so far; half a surrogate (ED A0) is two.
        assert so_far.removeprefix(seen) in ("", "\ufffd", "\ufffd\ufffd")
    assert seen + stream.flush() == whole
    assert not stream.stopped


@settings(deadline=None)
@given(st.data(), TOKENIZERS, STOPS)
def test_text_ends_where_the_first_stop_string_begins(
    data: st.DataObject, tokenizer: Tokenizer, stop: list[str]
) -> None:
    ids = data.draw(ids_of(tokenizer))
    whole = tokenizer.decode(ids)
    expected = cut(whole, stop)
    stream = TextStream(tokenizer, stop)
    seen = ""
    for token in ids:
        seen += stream.push(token)
        assert expected.startswith(seen)
    assert seen + stream.flush() == expected
    assert stream.stopped == (expected != whole)


@pytest.mark.parametrize(
    ("pushed", "stop", "pieces", "flushed", "stopped"),
    [
        (["a", "st", "op", "b"], ["stop"], ["a", "", "", ""], "", True),
        (["st", "a"], ["stop"], ["", "sta"], "", False),
        (["st", "st", "op"], ["stop"], ["", "st", ""], "", True),
        (["a", "st"], ["stop"], ["a", ""], "st", False),
        (["abc", "a"], ["b"], ["a", ""], "", True),
        # An earlier start wins, even if it is decided later, and is given up when it fails.
        (["ab", "c"], ["b", "abc"], ["", ""], "", True),
        (["ab", "a"], ["b", "abc"], ["", "a"], "", True),
        (["ab"], ["b", "abc"], [""], "a", True),
        (["a", "a", "ab"], ["aab"], ["", "", "a"], "", True),
    ],
)
def test_what_is_let_out_and_when(
    pushed: list[str], stop: list[str], pieces: list[str], flushed: str, stopped: bool
) -> None:
    stream = TextStream(BYTE_LEVEL, stop)
    assert [stream.push(BYTE_TOKENS.index(token)) for token in pushed] == pieces
    assert stream.flush() == flushed
    assert stream.stopped == stopped


def test_a_match_is_announced_by_the_token_that_completes_it() -> None:
    stream = TextStream(BYTE_LEVEL, ["stop"])
    stream.push(BYTE_TOKENS.index("st"))
    assert not stream.stopped
    stream.push(BYTE_TOKENS.index("op"))
    assert stream.stopped


def test_a_character_comes_whole_and_half_a_character_comes_at_the_end() -> None:
    smile = BYTE_LEVEL.encode("😀")
    assert len(smile) > 1
    stream = TextStream(BYTE_LEVEL)
    assert [stream.push(token) for token in smile] == [""] * (len(smile) - 1) + ["😀"]
    assert stream.push(smile[0]) == ""
    assert stream.flush() == "\ufffd"


@pytest.mark.parametrize("tokenizer", [BYTE_LEVEL, SENTENCEPIECE])
def test_invalid_bytes_hold_nothing_back(tokenizer: Tokenizer) -> None:
    byte = next(i for i in range(tokenizer.vocab_size) if tokenizer.token_bytes(i) == b"\xff")
    stream = TextStream(tokenizer)
    assert [stream.push(byte) for _ in range(1000)] == ["\ufffd"] * 1000
    assert stream.flush() == ""


def test_half_a_surrogate_is_invalid_like_any_other_bytes() -> None:
    ids = [PIECES.index(f"<0x{byte:02X}>") for byte in (0xED, 0xA0, 0x80, 0x41)]
    assert SENTENCEPIECE.decode(ids) == "\ufffd\ufffd\ufffdA"
    assert run(TextStream(SENTENCEPIECE), ids) == "\ufffd\ufffd\ufffdA"
    assert run(TextStream(SENTENCEPIECE), ids[:2]) == "\ufffd\ufffd"


def test_control_tokens_are_silent_or_shown_and_split_no_character() -> None:
    end = BYTE_TOKENS.index("<|end|>")
    first, *rest = BYTE_LEVEL.encode("你")
    assert run(TextStream(BYTE_LEVEL), [first, end, *rest]) == "你"
    assert run(TextStream(BYTE_LEVEL, skip_special=False), [end]) == "<|end|>"
    assert run(TextStream(BYTE_LEVEL, ["end"], skip_special=False), [end]) == "<|"


def test_the_first_space_of_sentencepiece_goes_unless_the_text_continues() -> None:
    ids = [1, PIECES.index("▁a"), PIECES.index("▁a")]
    assert run(TextStream(SENTENCEPIECE), ids) == "a a"
    assert run(TextStream(SENTENCEPIECE, continues=True), ids) == " a a"


def test_an_empty_stop_string_is_refused() -> None:
    with pytest.raises(InputError, match="empty stop string"):
        TextStream(BYTE_LEVEL, ["a", ""])

"""How families cut text into words before merging, by the names that GGUF gives them.

Knows nothing of vocabularies. The cuts are those of the original tokenizers; a name that is not in
the table is refused, since a wrong cut gives wrong tokens that still look like text. No pattern
takes more than linear time.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum, auto

from tokenizers import Regex, pre_tokenizers

from local_tp.errors import CheckpointError


class Cut(Enum):
    """Cuts that the library makes without a pattern."""

    GPT2 = auto()  # GPT-2's words, spelled in its alphabet from here on
    DIGITS = auto()  # each digit apart
    DIGIT_RUNS = auto()
    PUNCTUATION = auto()  # runs of it


@dataclass(frozen=True, slots=True)
class Splitting:
    """How a family cuts text: `steps` one after the other, the texts among them as patterns.

    `whole_words` takes a word that is a token as it is; `composes` is Unicode NFC before all.
    """

    steps: tuple[str | Cut, ...] = (Cut.GPT2,)
    whole_words: bool = False
    composes: bool = False

    def build(self) -> pre_tokenizers.PreTokenizer:
        """The library's form of it. Raises plain `Exception` for a pattern that is none."""
        steps = [_built(step) for step in self.steps]
        if Cut.GPT2 not in self.steps:
            steps.append(pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False))
        return pre_tokenizers.Sequence(steps)


def splitting(name: str) -> Splitting:
    """The one that GGUF calls `name`. Raises `CheckpointError` where it is not known."""
    table = _table()
    if name not in table:
        raise CheckpointError(
            f"the model file names the pre-tokenizer {name!r}, which is not known here: use a "
            f"model with one of {', '.join(sorted(table))}"
        )
    return table[name]


def _built(step: str | Cut) -> pre_tokenizers.PreTokenizer:
    if isinstance(step, str):
        return pre_tokenizers.Split(Regex(step), behavior="isolated")
    if step is Cut.DIGITS:
        return pre_tokenizers.Digits(individual_digits=True)
    if step is Cut.DIGIT_RUNS:
        return pre_tokenizers.Digits(individual_digits=False)
    if step is Cut.PUNCTUATION:
        return pre_tokenizers.Punctuation(behavior="contiguous")
    return pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=True)


# ------------------------------------------------------------------------------- the patterns

_BLANKS = r"\s*[\r\n]+|\s+(?!\S)|\s+"
_SUFFIX = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)"
_LEAD = r"[^\r\n\p{L}\p{N}]?"
_SYMBOLS = r" ?[^\s\p{L}\p{N}]+"
_THREE_DIGITS = r"\p{N}{1,3}"
# Letters of scripts with two cases, as DeepSeek's first vocabulary lists them: code points.
_CASED_RANGES = (
    "41-5A 61-7A B5 C0-D6 D8-F6 F8-1BA 1BC-1BF 1C4-293 295-2AF 370-373 376 377 37B-37D 37F 386 "
    "388-38A 38C 38E-3A1 3A3-3F5 3F7-481 48A-52F 531-556 10A0-10C5 13A0-13F5 13F8-13FD "
    "1C90-1CBA 1CBD-1CBF 1D00-1D2B 1D6B-1D77 1D79-1D9A 1E00-1F15 1F18-1F1D 1F20-1F45 1F48-1F4D "
    "1F50-1F57 1F59 1F5B 1F5D 1F5F-1F7D 1F80-1FB4 1FB6-1FBC 1FBE 1FC2-1FC4 1FC6-1FCC 1FD0-1FD3 "
    "1FD6-1FDB 1FE0-1FEC 1FF2-1FF4 1FF6-1FFC 2102 2107 210A-2113 2115 2119-211D 2124 2126 2128 "
    "212A-212D 212F-2134 2139 213C-213F 2145-2149 214E 2183 2184 2C00-2C7B 2C7E-2CE4 2CEB-2CEE "
    "2CF2 2CF3 A640-A66D A680-A69B A722-A76F A771-A787 A78B-A78E AB70-ABBF FB00-FB06 FB13-FB17 "
    "FF21-FF3A FF41-FF5A 10400-1044F 104B0-104D3 104D8-104FB 10C80-10CB2 10CC0-10CF2 "
    "118A0-118DF 1E900-1E943 "
)
_CJK_AND_BELOW = "[\u4e00-\u9fa5\u0800-\u4e00\uac00-\ud7ff]+"


def _letters(ranges: str) -> str:
    """The inside of a character class."""
    return "".join(
        "-".join(chr(int(end, 16)) for end in each.split("-")) for each in ranges.split()
    )


def _words(number: str, blanks: str = _BLANKS) -> str:
    """GPT-4's words, with the given numbers."""
    return rf"{_SUFFIX}|{_LEAD}\p{{L}}+|{number}|{_SYMBOLS}[\r\n]*|{blanks}"


def _cased(ending: str, number: str, lead: str = "", symbols: str = r"[\r\n/]*") -> str:
    """GPT-4o's words, which end where lower case turns to upper."""
    apart = r"&&[^\p{Han}]" if lead else ""
    upper = rf"[\p{{Lu}}\p{{Lt}}\p{{Lm}}\p{{Lo}}\p{{M}}{apart}]"
    lower = rf"[\p{{Ll}}\p{{Lm}}\p{{Lo}}\p{{M}}{apart}]"
    word = rf"{_LEAD}{upper}*{lower}+{ending}|{_LEAD}{upper}+{lower}*{ending}"
    return rf"{lead}{word}|{number}|{_SYMBOLS}{symbols}|{_BLANKS}"


def _table() -> dict[str, Splitting]:
    gpt2, single_digits = Splitting(), Splitting((Cut.DIGITS, Cut.GPT2))
    composed_gpt2 = Splitting(composes=True)
    gpt4 = Splitting((_words(_THREE_DIGITS),))
    llama3 = Splitting(gpt4.steps, whole_words=True)
    gpt4_digits = Splitting((_words(r"\p{N}"),))
    qwen2 = Splitting(gpt4_digits.steps, composes=True)
    gpt4o = Splitting((_cased(_SUFFIX + "?", _THREE_DIGITS),))
    marks = r"[^\s\p{L}\p{M}\p{N}]"
    qwen35 = rf"{_SUFFIX}|{_LEAD}[\p{{L}}\p{{M}}]+|\p{{N}}| ?{marks}+[\r\n]*|{_BLANKS}"
    deepseek_v3 = Splitting(
        (
            _THREE_DIGITS,
            "[\u4e00-\u9fa5\u3040-\u30ff]+",
            r"[!-/:-@\[-`{-~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+"
            rf"| ?[\p{{P}}\p{{S}}]+[\r\n]*|{_BLANKS}",
        )
    )
    deepseek_llm = (
        r"[\r\n]",
        rf"\s?[{_letters(_CASED_RANGES)}]+",
        r"\s?[!-/:-~！-／：-～‘-‟　-。]+",
        r"(?<!\s)\s+$",  # only from where the blanks begin: elsewhere each blank tries them all
        _CJK_AND_BELOW,
        Cut.DIGITS,
    )
    deepseek_coder = (r"[\r\n]", r"\s?\p{L}+", r"\s?\p{P}+", _CJK_AND_BELOW, Cut.DIGITS)
    falcon = (Cut.PUNCTUATION, Cut.GPT2, Cut.DIGIT_RUNS, "[0-9][0-9][0-9]")
    seed_coder = rf"{_SUFFIX}|{_LEAD}\p{{L}}+|\p{{N}}| ?[^\s\p{{L}}\p{{N}}\r\n]+|{_BLANKS}"
    runs = "".join(rf"\s{{{2**n}}}(?!\S)|" for n in range(9, 1, -1))
    jais2 = rf"\s*[\r\n]+|{runs}\s{{1,2}}(?!\S)|\s"
    kimi = _cased(_SUFFIX + "?", _THREE_DIGITS, lead=r"\p{Han}+|", symbols=r"[\r\n]*")
    bailing = (
        r"'(?i:[sdmt]|ll|ve|re)|[^\r\n\p{L}\p{N}]?+\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]++[\r\n]*"
        r"|\s*[\r\n]|\s+(?!\S)|\s+"
    )
    exaone_moe = (
        rf"{_SUFFIX}|{_LEAD}(?:\p{{L}}\p{{M}}*(?: \p{{L}}\p{{M}}*)*)+|\p{{N}}"
        rf"|{_SYMBOLS}[\r\n/]?|\s*[\r\n]|\s+(?!\S)|\s+"
    )
    groups: tuple[tuple[str, Splitting], ...] = (
        ("default gpt-2 phi-2 jais trillion exaone4 mellum gigachat a.x-4.0", gpt2),
        ("mpt olmo", composed_gpt2),
        ("smollm starcoder refact codeshell exaone minerva-7b", single_digits),
        ("command-r", Splitting(single_digits.steps, composes=True)),
        ("llama-bpe llama3 llama-v3 falcon3 falcon-h1 pixtral lfm2 midm-2.0", llama3),
        ("smaug-bpe dbrx glm4 chatglm-bpe", gpt4),
        ("qwen2 stablelm2 hunyuan", qwen2),
        ("deepseek-r1-qwen grok-2 solar-open", gpt4_digits),
        ("qwen35", Splitting((qwen35,), composes=True)),
        ("gpt-4o llama4 kanana2 minimax-m2", gpt4o),
        ("tekken", Splitting((_cased("", r"\p{N}"),), whole_words=True)),
        ("kimi-k2", Splitting((kimi,))),
        ("deepseek-llm", Splitting(deepseek_llm)),
        ("deepseek-coder", Splitting(deepseek_coder)),
        ("deepseek-v3 hunyuan-dense joyai-llm", deepseek_v3),
        ("falcon", Splitting(falcon)),
        ("seed-coder", Splitting((seed_coder,))),
        ("jais-2", Splitting((_words(_THREE_DIGITS, jais2),))),
        ("bailingmoe bailingmoe2", Splitting((bailing,))),
        ("exaone-moe", Splitting((exaone_moe,))),
    )
    return {name: cut for names, cut in groups for name in names.split()}

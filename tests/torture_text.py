"""Text that tokenizers get wrong: the samples that every kind of vocabulary is held to, and a text
to train small ones on. Written for this; ten scripts and what people paste.
"""

from __future__ import annotations

TORTURE = (
    "",
    " ",
    "a",
    "The quick brown fox jumps over the lazy dog. It's 5 o'clock; they'll say: DON'T, we've, I'M.",
    "IT'S I'LL WE'VE YOU'D He'S can'T 'tis o’clock l'été aujourd'hui rock'n'roll '' ''s",
    "Größe straße ÄÖÜ ßẞ naïve façade Ćevapčići İstanbul ığüşöç Việt Nam tiếng Đặng",
    "Привет, мир! Съешь же ещё этих мягких французских булок, ЁЛКА",
    "Ξεσκεπάζω τὴν ψυχοφθόρα βδελυγμία ΟΔΟΣ οδός",
    "你好，世界！日本語のテキスト、カタカナとひらがな。한국어 텍스트도 있습니다「引用」",
    "中文123和English混排，１２３全角ＡＢＣ．",
    "مرحبا بالعالم — كيف الحال؟ السَّلامُ ٱلْعَرَبِيَّة שלום עולם נִקּוּד",
    "नमस्ते दुनिया, क्षत्रिय ज्ञान हिन्दी १२३",
    "สวัสดีชาวโลก ภาษาไทย ๑๒๓ ខ្មែរ தமிழ் தொழில்",
    "አማርኛ ქართული հայերեն ᏣᎳᎩ",
    "👨‍👩‍👧‍👦 🏳️‍🌈 🇩🇪🇯🇵 👍🏽 ❤️ 🤦🏼‍♂️ ☺ 1️⃣ 🫠🫡",
    "e\u0301 a\u030a Z\u0337a\u0338l\u0335g\u0336o\u0321\u0321 \u1100\u1161\u11a8 ﬁ ﬀ Å Ω K ǅ ⅷ",
    "1 12 123 1234 12345 1234567 12345678901234567890 3.14159 -1e-9 1,000,000.00 0x1F x86_64 v2.0",
    "१२३ ١٢٣٤ ½ ²³ Ⅷ ① ㊿ 𝟙𝟚𝟛 ４２",
    "def f(x):\n\tif x:\n\t\treturn  x ** y   # c\n\n\n    z = [a, b]\r\n\r\n  \tw\r\ry",
    'for (int i = 0; i < n; ++i) { printf("%d\\n", a[i]); }  // done\n\n\n\n}',
    "HelloWorld XMLHttpRequest camelCaseWord snake_case SCREAMING_CASE /path/to//x\\y $%^&*()_+",
    "   leading and trailing   ",
    "a  b   c    d     e      f" + " " * 40 + "g" + "\n" * 40 + "h\t\t\t\ti",
    "\n",
    "\n\n\n",
    " \n \n  \n",
    "\t \t",
    "\u00a0no-break\u00a0\u00a0twice\u2009thin\u200bzero\u200cjoin\u3000wide\u3000\u3000\ufeffmark",
    "\u2028line\u2029paragraph\u0085next\x0bvertical\x0cform\x1funit",
    "\x00\x01\x02\x07\x08\x1b[31mred\x1b[0m\x7f\x80\x9f\ufffd\ufffe",
    "https://example.com/a?b=c&d=%20#e user.name+tag@example.org",
    "<|im_start|>user\nhi<|im_end|>\n<s>x</s> <unk> <|endoftext|><|im_end <0x41> ▁▁x [INST]",
    "...!!!???---===___~~~``` ¿¡«»„“”‘’…—–‐ ©®™€£¥₹ ∑∫√≤≠∞ →⇒ █▓▒░ ♠♥ †‡§¶",
    "Donaudampfschifffahrtselektrizitätenhauptbetriebswerkbauunterbeamtengesellschaft",
    "a" * 300 + " " + "xy" * 200 + "中" * 100,
    "word " * 50,
)
TRAINING = [line for text in TORTURE for line in text.split("\n")] + [
    "the cat and the dog and the bird were there when they said that this is what it was",
    "print(value) return self.value if value is not None else default for item in items",
    "der die das und ein eine nicht mit auf für von dem den ist sich auch als wird",
    "и в не на я быть он с что а по это она этот к но они мы весь который из у",
    "的 一 是 在 不 了 有 和 人 这 中 大 为 上 个 国 我 以 要 他",
    "123 456 789 000 2024 1999 10 20 30 100 200",
] * 3

"""What names mean: repositories, quantizations, parts, and which quantizations run."""

from __future__ import annotations

from pathlib import PurePosixPath

import pytest

from local_tp.checkpoint.formats import READABLE
from local_tp.checkpoint.hub.choice import runs_here, variants
from local_tp.checkpoint.hub.found import size_text
from local_tp.checkpoint.hub.listing import RemoteFile
from local_tp.checkpoint.hub.names import (
    Reference,
    one_line,
    parse_reference,
    part_of,
    quant_label,
    safe_path,
)


@pytest.mark.parametrize(
    ("text", "reference"),
    [
        ("owner/name", Reference("owner", "name")),
        ("owner/name:Q4_K_M", Reference("owner", "name", "Q4_K_M")),
        ("hf.co/owner/na.me_1:q8_0", Reference("owner", "na.me_1", "q8_0")),
        ("https://huggingface.co/owner/name/", Reference("owner", "name")),
        ("name", None),
        ("a/b/c", None),
        ("../b", None),
        ("a/..", None),
        ("/a/b", None),
        ("~/b", None),
        ("./b", None),
        ("C:/b", None),
        ("a/b:", None),
        ("a/b:x\ny", None),
        ("nul/b", None),
        ("a/b?x=1", None),
        ("a/b%2e", None),
        ("", None),
    ],
)
def test_references(text: str, reference: Reference | None) -> None:
    assert parse_reference(text) == reference


@pytest.mark.parametrize(
    ("path", "label"),
    [
        ("gpt-oss-20b-mxfp4.gguf", "MXFP4"),
        ("gemma-3-4b-it-q4_0.gguf", "Q4_0"),
        ("Model.i1-Q4_K_M.gguf", "Q4_K_M"),
        ("R1-UD-IQ1_S-00001-of-00003.gguf", "UD-IQ1_S"),
        ("ggml-model-f16.gguf", "F16"),
        ("model-fp16.gguf", "F16"),
        ("Q4_K_M.gguf", "Q4_K_M"),
        ("UD-Q4_K_XL/m-00001-of-00002.gguf", "UD-Q4_K_XL"),
        ("Q8_0/m-Q6_K.gguf", "Q6_K"),
        ("x.IQ4_NL.gguf", "IQ4_NL"),
        ("Mistral-7B.gguf", None),
        ("Qwen3-30B-A3B.gguf", None),
    ],
)
def test_quantizations_by_file_name(path: str, label: str | None) -> None:
    assert quant_label(path) == label


def test_parts() -> None:
    assert part_of("m-Q4_0-00002-of-00007") == ("m-Q4_0", 2, 7)
    assert part_of("m-Q4_0") == ("m-Q4_0", 1, 1)


def test_names_that_are_safe_everywhere() -> None:
    for path in ("a.gguf", "Q4 K/é-m.gguf", "console.gguf", "a..b.gguf"):
        assert safe_path(path, "it") == PurePosixPath(path)


def test_a_strangers_words_are_one_short_line() -> None:
    assert one_line("\x1b[31mMIT\n") == "[31mMIT"
    assert len(one_line("x" * 1000)) == 80


def test_files_that_are_no_language_models_are_apart() -> None:
    names = ("m-Q8_0.gguf", "mmproj-m.gguf", "m.imatrix.gguf", "m-lora-f16.gguf", "m-mtp-Q8_0.gguf")
    there, beside = variants(RemoteFile(PurePosixPath(name), 1) for name in names)
    assert [variant.label for variant in there] == ["Q8_0"]
    assert len(beside) == 4


@pytest.mark.parametrize(
    ("label", "needs"),
    [
        ("Q4_K_M", {"Q4_K", "Q6_K"}),
        ("UD-Q4_K_XL", {"Q4_K", "Q6_K"}),
        ("Q6_K", {"Q6_K"}),
        ("MXFP4_MOE", {"MXFP4"}),
        ("Q4_0", {"Q4_0"}),
        ("BF16", {"BF16"}),
    ],
)
def test_what_runs_follows_from_what_is_read(label: str, needs: set[str]) -> None:
    assert runs_here(label) is (needs <= set(READABLE))


def test_sizes_in_words() -> None:
    sizes = (0, 1, 999_999, 98_362_432, 1_000_000_000, 42_500_000_000)
    assert [size_text(size) for size in sizes] == [
        "0 kB",
        "1 kB",
        "1000 kB",
        "98 MB",
        "1.0 GB",
        "42.5 GB",
    ]

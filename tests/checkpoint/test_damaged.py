"""Whatever a file holds, reading succeeds or raises `CheckpointError`, soon, in little memory."""

from __future__ import annotations

import json
import struct
import time
import tracemalloc
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tiny_checkpoints import gguf_values, write_gguf

from local_tp.checkpoint.read import read
from local_tp.errors import CheckpointError

HEADER = struct.Struct("<4sIQQ")


@contextmanager
def refused_cheaply(match: str = "") -> Iterator[None]:
    """The block must raise a one-line `CheckpointError` within a second and 32 MiB."""
    tracemalloc.start()
    started = time.perf_counter()
    try:
        with pytest.raises(CheckpointError, match=match) as refused:
            yield
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert time.perf_counter() - started < 1.0
    assert peak < 32 << 20
    assert "\n" not in str(refused.value)


def key(name: bytes, kind: int, value: bytes) -> bytes:
    return struct.pack("<Q", len(name)) + name + struct.pack("<I", kind) + value


@pytest.mark.parametrize(
    ("data", "said"),
    [
        (b"", "it is empty"),
        (b"GG", "not a GGUF file"),
        (b"PK\x03\x04" + bytes(100), "not a GGUF file"),
        (b"GGUF", "ends in the middle"),
        (HEADER.pack(b"GGUF", 1, 0, 0), "version 1"),
        (HEADER.pack(b"GGUF", 99, 0, 0), "version 99"),
        (HEADER.pack(b"GGUF", 3, 2**64 - 1, 1), "tensors"),
        (HEADER.pack(b"GGUF", 3, 1, 2**63), "metadata keys"),
        (HEADER.pack(b"GGUF", 3, 0, 0), "general.architecture"),
        (
            HEADER.pack(b"GGUF", 3, 0, 1) + struct.pack("<Q", 2**62),
            "a text of 4,611,686,018,427,387,904 bytes",
        ),
        (HEADER.pack(b"GGUF", 3, 0, 1) + key(b"\xff\xfe", 4, b"1234"), "not UTF-8"),
        (HEADER.pack(b"GGUF", 3, 0, 1) + key(b"a", 77, bytes(8)), "unknown type 77"),
        (HEADER.pack(b"GGUF", 3, 0, 2) + 2 * key(b"a", 4, bytes(4)), "there twice"),
        (
            HEADER.pack(b"GGUF", 3, 0, 1) + key(b"a", 9, struct.pack("<IQ", 0, 2**40)),
            "elements in its lists",
        ),
        (
            HEADER.pack(b"GGUF", 3, 0, 1) + key(b"a", 8, struct.pack("<Q", 2**25)),
            "a text of 33,554,432 bytes",
        ),
        (
            HEADER.pack(b"GGUF", 3, 0, 1) + key(b"a", 9, struct.pack("<IQ", 4, 2**20)),
            "ends in the middle",
        ),
        (
            HEADER.pack(b"GGUF", 3, 0, 1) + key(b"a", 9, struct.pack("<IQIQ", 9, 1, 9, 1)),
            "unknown type 9",
        ),
    ],
)
def test_an_absurd_header(tmp_path: Path, data: bytes, said: str) -> None:
    path = tmp_path / "bad.gguf"
    path.write_bytes(data)
    with refused_cheaply(said):
        read(path)


@pytest.mark.parametrize(
    ("place", "value", "said"),
    [
        ("dimensions", struct.pack("<I", 2**31), "dimensions of 'token_embd.weight'"),
        ("dims", struct.pack("<QQ", 2**63, 2**63), "elements in one dimension"),
        ("dims", struct.pack("<QQ", 2**31 - 1, 2**31 - 1), "file is incomplete"),
        ("dims", struct.pack("<QQ", 0, 48), "is empty"),
        ("offset", struct.pack("<Q", 2**64 - 1), "file is incomplete"),
    ],
)
def test_an_absurd_tensor(tmp_path: Path, place: str, value: bytes, said: str) -> None:
    path = write_gguf(tmp_path / "bad.gguf")
    data = bytearray(path.read_bytes())
    row = data.index(b"token_embd.weight") + len(b"token_embd.weight")
    start = row + {"dimensions": 0, "dims": 4, "offset": 4 + 16 + 4}[place]
    data[start : start + len(value)] = value
    path.write_bytes(data)
    with refused_cheaply(said):
        read(path)


def test_a_row_that_is_not_whole_blocks(tmp_path: Path) -> None:
    path = write_gguf(tmp_path / "bad.gguf")
    data = bytearray(path.read_bytes())
    row = data.index(b"token_embd.weight") + len(b"token_embd.weight")
    data[row + 4 : row + 24] = struct.pack("<QQI", 31, 48, 8)  # 8 is Q8_0
    path.write_bytes(data)
    with refused_cheaply("31 columns are not whole blocks of Q8_0"):
        read(path)


def test_lists_share_one_limit(tmp_path: Path) -> None:
    path, count = tmp_path / "bad.gguf", 1_200_000
    data = struct.pack("<IQ", 0, count) + bytes(count)
    path.write_bytes(HEADER.pack(b"GGUF", 3, 0, 2) + key(b"a", 9, data) + key(b"b", 9, data))
    with refused_cheaply("claims 1,200,000 elements in its lists"):
        read(path)


def test_a_header_without_end_in_a_large_file(tmp_path: Path) -> None:
    path = tmp_path / "bad.gguf"
    longest = struct.pack("<Q", 1 << 24)
    with path.open("wb") as file:  # sparse: it takes no room on disk
        file.write(HEADER.pack(b"GGUF", 3, 0, 1000))
        for index in range(20):
            file.write(key(b"%d" % index, 8, longest))
            file.seek(1 << 24, 1)
        file.truncate(1 << 40)
    with pytest.raises(CheckpointError, match="its header is larger than 268,435,456 bytes"):
        read(path)


def test_every_truncation_is_refused(tmp_path: Path) -> None:
    whole = write_gguf(tmp_path / "tiny.gguf").read_bytes()
    path = tmp_path / "cut.gguf"
    header = len(whole) - sum(value.nbytes for value in gguf_values().values())
    for size in [*range(0, header, 53), header, len(whole) - 33]:
        path.write_bytes(whole[:size])
        with pytest.raises(CheckpointError):
            read(path)


@pytest.fixture(scope="module")
def small(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, bytes]:
    """A file to overwrite, and a valid model's bytes."""
    folder = tmp_path_factory.mktemp("mutated")
    return folder / "mutated.gguf", write_gguf(folder / "valid.gguf").read_bytes()


@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(
    places=st.lists(
        st.tuples(st.integers(0, 4000), st.binary(min_size=1, max_size=9)), min_size=1, max_size=3
    ),
    cut=st.none() | st.integers(0, 4000),
)
def test_mutations_are_read_or_refused(
    small: tuple[Path, bytes], places: list[tuple[int, bytes]], cut: int | None
) -> None:
    path, valid = small
    data = bytearray(valid)
    for start, value in places:
        data[start : start + len(value)] = value
    path.write_bytes(data[:cut])
    try:
        spec = read(path).spec
    except CheckpointError as error:
        refusal = str(error)
    else:
        refusal = ""
        for tensor in spec.tensors.values():
            assert 0 <= tensor.offset <= tensor.offset + tensor.nbytes <= len(data)
    assert "\n" not in refusal


JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-2, 2**70) | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner),
    max_leaves=5,
)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder of a model whose one weight file has no tensors."""
    folder = tmp_path_factory.mktemp("folder")
    (folder / "model.safetensors").write_bytes(struct.pack("<Q", 2) + b"{}")
    (folder / "tokenizer.json").write_text("{}")
    return folder


@settings(max_examples=100, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(
    name=st.sampled_from(
        ["num_hidden_layers", "head_dim", "rope_scaling", "rope_parameters", "architectures"]
    ),
    value=JSON,
)
def test_configs_are_refused_whatever_they_say(folder: Path, name: str, value: object) -> None:
    config: dict[str, object] = {
        "model_type": "llama",
        "hidden_size": 32,
        "num_attention_heads": 4,
        "num_hidden_layers": 2,
        "intermediate_size": 64,
        "vocab_size": 48,
    }
    (folder / "config.json").write_text(json.dumps(config | {name: value}))
    with pytest.raises(CheckpointError) as refused:
        read(folder)
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize(
    ("data", "said"),
    [
        (b"", "not a whole safetensors file"),
        (struct.pack("<Q", 2**63) + b"{}", "not a whole safetensors file"),
        (struct.pack("<Q", 6) + b"[" * 6, "damaged"),
        (struct.pack("<Q", 100_000) + b"[" * 100_000, "damaged"),
        (struct.pack("<Q", 2) + b"[]", "holds no JSON object"),
        (struct.pack("<Q", 7) + b'{"a":1}', "an object is needed"),
    ],
)
def test_an_absurd_safetensors_header(folder: Path, data: bytes, said: str) -> None:
    config = {"model_type": "llama", "hidden_size": 8, "num_attention_heads": 1, "vocab_size": 4}
    config |= {"num_hidden_layers": 1, "intermediate_size": 8}  # type: ignore[dict-item]
    (folder / "config.json").write_text(json.dumps(config))
    whole = (folder / "model.safetensors").read_bytes()
    (folder / "model.safetensors").write_bytes(data)
    with refused_cheaply(said):
        read(folder)
    (folder / "model.safetensors").write_bytes(whole)


def test_paths_that_hold_nothing(tmp_path: Path) -> None:
    for path, said in (
        (tmp_path / "absent.gguf", "there is no file or folder"),
        (tmp_path, "has no config.json"),
        (Path("/dev/null"), "neither a file nor a folder"),
        (tmp_path / ("x" * 5000), "cannot read"),
        (Path("~no-such-person-here/model"), "cannot read"),
    ):
        with refused_cheaply(said):
            read(path)
    write_gguf(tmp_path / "inside.gguf")
    with refused_cheaply(r"give its path, such as .*inside\.gguf"):
        read(tmp_path)

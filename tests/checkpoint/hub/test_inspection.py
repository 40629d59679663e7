"""What a model is by its headers, here and on a hub, and what is refused on the way."""

from __future__ import annotations

import json
import struct
import tracemalloc
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from gguf import GGMLQuantizationType as Kind
from hub_server import Asked, FakeHub, running, send
from tiny_checkpoints import write_gguf

from local_tp.checkpoint.hub.choice import choose
from local_tp.checkpoint.hub.client import hub
from local_tp.checkpoint.hub.inspection import Inspection, inspect, inspect_known
from local_tp.checkpoint.hub.listing import repository
from local_tp.checkpoint.hub.names import parse_reference
from local_tp.checkpoint.hub.remote import skeleton
from local_tp.checkpoint.known_models import known_model
from local_tp.errors import CheckpointError

MIB = 1 << 20
HIDDEN, FFN, VOCAB = 32, 64, 48
PARAMETERS = VOCAB * HIDDEN + HIDDEN + 2 * (2 * HIDDEN + 3 * HIDDEN * HIDDEN + 3 * HIDDEN * FFN)
CONFIG: dict[str, Any] = {
    "architectures": ["LlamaForCausalLM"],
    "model_type": "llama",
    "hidden_size": HIDDEN,
    "intermediate_size": FFN,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "num_hidden_layers": 2,
    "vocab_size": VOCAB,
    "max_position_embeddings": 512,
    "tie_word_embeddings": True,
}


def shapes() -> dict[str, tuple[int, ...]]:
    """The tensors of the tiny model as a folder has them."""
    made: dict[str, tuple[int, ...]] = {"model.embed_tokens.weight": (VOCAB, HIDDEN)}
    for i in range(2):
        layer, attention = f"model.layers.{i}", f"model.layers.{i}.self_attn"
        made |= {
            f"{layer}.input_layernorm.weight": (HIDDEN,),
            f"{layer}.post_attention_layernorm.weight": (HIDDEN,),
            f"{attention}.q_proj.weight": (HIDDEN, HIDDEN),
            f"{attention}.k_proj.weight": (HIDDEN // 2, HIDDEN),
            f"{attention}.v_proj.weight": (HIDDEN // 2, HIDDEN),
            f"{attention}.o_proj.weight": (HIDDEN, HIDDEN),
            f"{layer}.mlp.gate_proj.weight": (FFN, HIDDEN),
            f"{layer}.mlp.up_proj.weight": (FFN, HIDDEN),
            f"{layer}.mlp.down_proj.weight": (HIDDEN, FFN),
        }
    return made | {"model.norm.weight": (HIDDEN,)}


def safetensors(tensors: dict[str, tuple[int, ...]], dtype: str = "BF16", size: int = 2) -> bytes:
    header, offset = {}, 0
    for name, shape in tensors.items():
        nbytes = int(np.prod(shape)) * size
        span = [offset, offset + nbytes]
        header[name] = {"dtype": dtype, "shape": shape, "data_offsets": span}
        offset += nbytes
    raw = json.dumps(header).encode()
    return len(raw).to_bytes(8, "little") + raw + bytes(offset)


def folder(**config: Any) -> dict[str, bytes]:
    names = list(shapes().items())
    return {
        "config.json": json.dumps(CONFIG | config).encode(),
        "tokenizer.json": b"{}",
        "tokenizer_config.json": b'{"chat_template": "{{ messages }}"}',
        "model-00001-of-00002.safetensors": safetensors(dict(names[:9])),
        "model-00002-of-00002.safetensors": safetensors(dict(names[9:])),
        "model.safetensors.index.json": json.dumps(
            {
                "weight_map": {
                    name: f"model-0000{1 if place < 9 else 2}-of-00002.safetensors"
                    for place, (name, _) in enumerate(names)
                }
            }
        ).encode(),
    }


def written(root: Path, files: dict[str, bytes]) -> Path:
    root.mkdir(exist_ok=True)
    for name, data in files.items():
        (root / name).write_bytes(data)
    return root


@pytest.fixture
def fake(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[FakeHub]:
    with running(FakeHub(info={"tags": ["license:mit"]})) as fake:
        monkeypatch.setenv("HF_ENDPOINT", fake.endpoint)
        monkeypatch.setenv("HF_HOME", str(tmp_path / "hub-home"))
        for name in ("HF_TOKEN", "HUGGING_FACE_HUB_TOKEN", "HF_HUB_OFFLINE"):
            monkeypatch.delenv(name, raising=False)
        yield fake


def remote(name: str) -> Inspection:
    reference = parse_reference(name)
    assert reference is not None
    with hub(wait=lambda seconds: None) as connection:
        found = repository(connection, reference)
        with skeleton(connection, found, choose(found)) as path:
            made = inspect(path, name, found.licence)
    assert not path.exists()
    return made


def refused(name: str) -> str:
    with pytest.raises(CheckpointError) as error:
        remote(name)
    (line,) = str(error.value).splitlines()
    return line


# -------------------------------------------------------------------------------------- here


def test_a_gguf_file(tmp_path: Path) -> None:
    kinds = {f"blk.{i}.ffn_gate.weight": Kind.Q8_0 for i in range(2)}
    path = write_gguf(tmp_path / "m.gguf", {"general.license": "mit"}, kinds=kinds)
    found = inspect(path, "mine")
    packed = 2 * FFN * 34
    assert (found.name, found.family, found.refusal) == ("mine", "llama", None)
    assert (found.parameters, found.active) == (PARAMETERS, PARAMETERS)
    assert found.formats == {"F32": 4 * (PARAMETERS - 2 * FFN * HIDDEN), "Q8_0": packed}
    assert found.files == (("m.gguf", path.stat().st_size),)
    assert (found.licence, found.chat_template) == ("mit", True)
    assert found.spec is not None
    assert (found.spec.dimensions.layers, found.spec.dimensions.context) == (2, 256)


def test_what_this_version_cannot_run_is_described_all_the_same(tmp_path: Path) -> None:
    path = write_gguf(tmp_path / "m.gguf", {"general.architecture": None}, architecture="newest")
    found = inspect(path, "mine")
    assert (found.family, found.parameters, found.spec) == ("newest", PARAMETERS, None)
    assert found.refusal is not None
    assert found.refusal.startswith("mine is of the family 'newest', which is not supported")
    assert found.notes[0].startswith("memory cannot be told: mine ")


def test_a_folder_of_the_hub(tmp_path: Path) -> None:
    card = b"---\nlanguage: en\nlicense: 'apache-2.0'\n---\nlicense: other\n"
    found = inspect(written(tmp_path / "m", folder() | {"README.md": card}), "mine")
    assert (found.family, found.refusal, found.parameters) == ("llama", None, PARAMETERS)
    assert found.formats == {"BF16": 2 * PARAMETERS}
    assert (found.licence, found.chat_template) == ("apache-2.0", True)
    assert [name for name, _ in found.files] == [
        "model-00001-of-00002.safetensors",
        "model-00002-of-00002.safetensors",
    ]


def test_what_is_not_loaded_of_a_folder_is_said(tmp_path: Path) -> None:
    seeing = safetensors({"vision_tower.patch.weight": (4, 4)})
    files = folder() | {"model-00003-of-00003.safetensors": seeing}
    del files["model.safetensors.index.json"]
    found = inspect(written(tmp_path / "m", files), "mine")
    assert found.refusal is None
    assert found.notes == ("its vision part is not loaded",)


def test_a_quantized_folder_has_the_parameters_of_its_shape(tmp_path: Path) -> None:
    files = folder(quantization_config={"quant_method": "awq", "version": "gemv"}, head_dim=8)
    found = inspect(written(tmp_path / "m", files), "mine")
    assert found.parameters == PARAMETERS
    assert found.notes == ("quantized: 'awq'",)
    assert found.refusal is not None
    assert "choose a model in AWQ's GEMM layout" in found.refusal


def test_a_model_known_by_its_shape() -> None:
    found = inspect_known(known_model("llama-3.1-70b", "Q8_0"))
    assert found.parameters == 70_553_706_496
    assert (found.files, found.chat_template) == ((), False)
    assert found.refusal is not None


@pytest.mark.parametrize(
    ("name", "data", "words"),
    [
        ("m.safetensors", (1 << 31).to_bytes(8, "little") + b"{}", "damaged or incomplete"),
        ("m.safetensors", (9).to_bytes(8, "little") + b"[1, 2, 3]", "holds no JSON object"),
        ("m.safetensors", safetensors(shapes())[:-1], "lies outside the file"),
        ("m.gguf", b"GGUF" + struct.pack("<IQQ", 3, 1 << 60, 1), "claims"),
    ],
)
def test_damaged_headers(tmp_path: Path, name: str, data: bytes, words: str) -> None:
    root = written(tmp_path / "m", {"config.json": json.dumps(CONFIG).encode(), name: data})
    with pytest.raises(CheckpointError) as error:
        inspect(root / name if name.endswith(".gguf") else root, "mine")
    assert words in str(error.value)


def test_a_truncated_gguf_is_incomplete(tmp_path: Path) -> None:
    path = write_gguf(tmp_path / "m.gguf")
    path.write_bytes(path.read_bytes()[:-1000])
    with pytest.raises(CheckpointError, match=r"mine holds .* it is incomplete"):
        inspect(path, "mine")


# -------------------------------------------------------------------------------- on the hub


def test_a_gguf_on_the_hub_by_its_beginning_alone(fake: FakeHub, tmp_path: Path) -> None:
    path = write_gguf(tmp_path / "m-Q4_0.gguf")
    with path.open("ab") as file:
        file.write(bytes(3 * MIB))
    fake.add("o/n-GGUF", {path.name: path.read_bytes()})
    found = remote("o/n-GGUF:Q4_0")
    here = inspect(path, "o/n-GGUF:Q4_0")
    assert found.licence == "mit"
    assert (found.formats, found.parameters, found.files) == (
        here.formats,
        here.parameters,
        here.files,
    )
    assert fake.ranges_of("storage") == ["bytes=0-131071"]


def test_a_long_header_comes_in_growing_ranges(fake: FakeHub, tmp_path: Path) -> None:
    tokens = [f"token number {n:010}" for n in range(30_000)]
    changes = {"tokenizer.ggml.tokens": tokens, "tokenizer.ggml.token_type": [1] * 30_000}
    path = write_gguf(tmp_path / "m-Q4_0.gguf", changes)
    fake.add("o/n-GGUF", {path.name: path.read_bytes()})
    assert remote("o/n-GGUF").parameters == PARAMETERS
    assert fake.ranges_of("storage")[:3] == [
        "bytes=0-131071",
        "bytes=131072-393215",
        "bytes=393216-917503",
    ]


def test_a_folder_on_the_hub(fake: FakeHub, tmp_path: Path) -> None:
    files = folder()
    fake.add("o/n", files)
    found = remote("o/n")
    here = inspect(written(tmp_path / "n", files), "o/n", "mit")
    assert (found.formats, found.parameters, found.files) == (
        here.formats,
        here.parameters,
        here.files,
    )
    assert (found.refusal, found.licence, found.chat_template) == (None, "mit", True)
    assert not [asked for asked in fake.asked if asked.path.endswith("tokenizer.json")]


def test_a_server_without_ranges_is_said(fake: FakeHub, tmp_path: Path) -> None:
    path = write_gguf(tmp_path / "m-Q4_0.gguf")
    fake.add("o/n-GGUF", {path.name: path.read_bytes()})
    fake.ranges = False
    said = refused("o/n-GGUF")
    assert said.startswith("o/n-GGUF: m-Q4_0.gguf can only be had whole from ")
    assert "fetch it with `local-tp models pull` and inspect it then" in said


def test_a_busy_server_is_asked_again(fake: FakeHub, tmp_path: Path) -> None:
    path = write_gguf(tmp_path / "m-Q4_0.gguf")
    fake.add("o/n-GGUF", {path.name: path.read_bytes()})
    answers = [503, 500]

    def trouble(handler: BaseHTTPRequestHandler, server: str, asked: Asked) -> bool:
        if server != "storage" or not answers:
            return False
        send(handler, answers.pop())
        return True

    fake.trouble = trouble
    assert remote("o/n-GGUF").parameters == PARAMETERS


def huge(size: int) -> Any:
    """A listing that says all files have that size."""
    return lambda entries: [
        e | ({"lfs": {**e["lfs"], "size": size}} if "lfs" in e else {}) for e in entries
    ]


def endless(beginning: bytes, size: int) -> Any:
    """Storage of one file of `size` bytes, zeros after its beginning."""

    def trouble(handler: BaseHTTPRequestHandler, server: str, asked: Asked) -> bool:
        if server != "storage":
            return False
        start, stop = map(int, (asked.range or "").removeprefix("bytes=").split("-"))
        data = (beginning[start:] + bytes(stop + 1 - start))[: stop + 1 - start]
        send(handler, 206, data, Content_Range=f"bytes {start}-{stop}/{size}")
        return True

    return trouble


@pytest.mark.parametrize(
    ("name", "beginning", "words"),
    [
        ("m.safetensors", (2 << 30).to_bytes(8, "little"), "claims a header of 2,147,483,648"),
        ("m.safetensors", b"\xff" * 8, "claims a header of 18,446,744,073,709,551,615"),
        # a key, and a list of 2**40 numbers
        (
            "m.gguf",
            b"GGUF" + struct.pack("<IQQQ1sIIQ", 3, 1, 1, 1, b"k", 9, 6, 1 << 40),
            "claims 1,099,511,627,776 elements",
        ),
        # a key, and a text of 2 GB
        (
            "m.gguf",
            b"GGUF" + struct.pack("<IQQQ1sIQ", 3, 1, 1, 1, b"k", 8, 2 << 30),
            "claims a text of 2,147,483,648 bytes",
        ),
    ],
)
def test_a_header_of_two_gigabytes(fake: FakeHub, name: str, beginning: bytes, words: str) -> None:
    config = json.dumps(CONFIG).encode()
    fake.add("o/n", {name: b"x" * 5000, "config.json": config})
    fake.changed = huge(1 << 40)
    fake.trouble = endless(beginning, 1 << 40)
    tracemalloc.start()
    said = refused("o/n")
    _, most = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert words in said
    assert most < 16 * MIB
    assert fake.ranges_of("storage") == ["bytes=0-131071"]


def test_a_header_that_goes_on_and_on(fake: FakeHub, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("local_tp.checkpoint.hub.remote.LARGEST_GGUF_HEADER", 4 * MIB)
    fake.add("o/n", {"m.gguf": b"x" * 5000})
    fake.changed = huge(1 << 40)
    text = struct.pack("<Q1sIQ", 1, b"k", 8, 3 * MIB) + bytes(3 * MIB)
    second = struct.pack("<Q1sIQ", 1, b"l", 8, 3 * MIB)
    fake.trouble = endless(b"GGUF" + struct.pack("<IQQ", 3, 1, 9) + text + second, 1 << 40)
    assert "has a header of more than 4,194,304 bytes" in refused("o/n")


def test_a_storage_that_disagrees_about_the_size(fake: FakeHub, tmp_path: Path) -> None:
    path = write_gguf(tmp_path / "m-Q4_0.gguf")
    fake.add("o/n-GGUF", {path.name: path.read_bytes()})
    fake.changed = huge(1 << 30)
    said = refused("o/n-GGUF")
    assert "has 1,073,741,824 bytes in the listing and the server sends" in said

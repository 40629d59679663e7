"""Loading never holds more than the rank's own part: read from /proc, on half a gigabyte."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import gguf
import numpy
import pytest

from local_tp.checkpoint.formats import FORMATS
from local_tp.checkpoint.read import read
from local_tp.core import Goal

MIB = 1024 * 1024
LAYERS, HIDDEN, HEADS, KV_HEADS, HEAD_DIM, FFN, VOCAB = 8, 2048, 32, 8, 64, 8192, 32000

# Runs as one rank would: everything imported and warm, then only the loading is counted.
RANK = """
import json, pickle, sys
import torch
from local_tp.load.loader import Loading
from local_tp.model.processor import learn_processor
from local_tp.plan.layout import parameters

def status(field):
    with open("/proc/self/status") as file:
        return next(int(line.split()[1]) * 1024 for line in file if line.startswith(field))

torch.set_num_threads(1)
spec, placement = pickle.load(sys.stdin.buffer)
processor = learn_processor()
layout = parameters(spec, placement, "auto", "cpu")
with open("/proc/self/clear_refs", "w") as file:
    file.write("5")
before = status("VmRSS")
loading = Loading(spec, layout, torch.device("cpu"), processor)
for progress in loading:
    pass
print(json.dumps({
    "added": status("VmHWM") - before,
    "held": sum(parameter.nbytes for parameter in layout),
    "read": [progress.done, progress.total],
}))
"""


def write_model(path: Path, name: str) -> None:
    """A llama of random bits in one format, at least 500 MB."""
    kind = gguf.GGMLQuantizationType[name]
    format = FORMATS[name]
    writer = gguf.GGUFWriter(path, "llama")
    writer.add_block_count(LAYERS)
    writer.add_embedding_length(HIDDEN)
    writer.add_head_count(HEADS)
    writer.add_head_count_kv(KV_HEADS)
    writer.add_feed_forward_length(FFN)
    writer.add_context_length(4096)
    writer.add_layer_norm_rms_eps(1e-5)
    writer.add_tokenizer_model("llama")
    writer.add_token_list([f"t{i}" for i in range(VOCAB)])
    writer.add_token_scores([0.0] * VOCAB)
    writer.add_token_types([1] * VOCAB)
    random = numpy.random.default_rng(0)

    def matrix(tensor: str, rows: int, columns: int) -> None:
        stored = random.integers(0, 64, (rows, format.nbytes(1, columns)), dtype=numpy.uint8)
        writer.add_tensor(tensor, stored, raw_dtype=kind)

    def vector(tensor: str) -> None:
        writer.add_tensor(tensor, numpy.ones(HIDDEN, numpy.float32))

    matrix("token_embd.weight", VOCAB, HIDDEN)
    for i in range(LAYERS):
        vector(f"blk.{i}.attn_norm.weight")
        matrix(f"blk.{i}.attn_q.weight", HEADS * HEAD_DIM, HIDDEN)
        matrix(f"blk.{i}.attn_k.weight", KV_HEADS * HEAD_DIM, HIDDEN)
        matrix(f"blk.{i}.attn_v.weight", KV_HEADS * HEAD_DIM, HIDDEN)
        matrix(f"blk.{i}.attn_output.weight", HIDDEN, HEADS * HEAD_DIM)
        vector(f"blk.{i}.ffn_norm.weight")
        matrix(f"blk.{i}.ffn_gate.weight", FFN, HIDDEN)
        matrix(f"blk.{i}.ffn_up.weight", FFN, HIDDEN)
        matrix(f"blk.{i}.ffn_down.weight", HIDDEN, FFN)
    vector("output_norm.weight")
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


@pytest.fixture(scope="module", params=["BF16", "Q8_0"])
def big_model(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("big") / f"big-{request.param}.gguf"
    write_model(path, request.param)
    assert path.stat().st_size >= 500_000_000
    return path


@pytest.mark.parametrize(("split", "ranks"), [("single", 1), ("tensor", 2), ("layer", 2)])
def test_peak_is_the_shard_and_64_mib(big_model: Path, split: str, ranks: int) -> None:
    import pickle

    from engines import planned

    checkpoint = read(big_model)
    plan, _ = planned(checkpoint, ranks, Goal(split=split, context=64, streams=1))
    for placement in plan.placements:
        done = subprocess.run(
            [sys.executable, "-c", RANK],
            input=pickle.dumps((checkpoint.spec, placement)),
            capture_output=True,
            check=True,
        )
        found = json.loads(done.stdout)
        assert found["held"] == placement.memory.weights
        assert found["read"][0] == found["read"][1] > 0
        assert found["added"] <= found["held"] + 64 * MIB
        assert found["added"] >= found["held"] * 0.98, "the shard itself must be in memory"

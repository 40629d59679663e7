"""Reading the constants: what an engine takes from another, and what a damaged file says."""

from __future__ import annotations

from pathlib import Path

import pytest

from local_tp.errors import InputError
from local_tp.hardware.rates import load_rates, read_rates
from local_tp.rates import Channel, Efficiency, Rates, Wire

SMALL = """
[classes]
"k" = ["Q4_K"]
"exl" = ["EXL2"]
[joule]
"8.6" = 4e11
[engine.general]
source = "here"
step = 1.0
launch = { cuda = 1, rocm = 2, xpu = 3, cpu = 4 }
[engine.general.efficiency]
"cuda other" = { memory = 0.5, compute = 0.4 }
"rocm other" = { memory = 0.5, compute = 0.4 }
"xpu other" = { memory = 0.5, compute = 0.4 }
"cpu other" = { memory = 0.5, compute = 0.4 }
[engine.general.wires]
"nccl host" = { latency = 1e-5 }
[engine.fast]
source = "here"
launch = { cuda = 0.5 }
[engine.fast.efficiency]
"cuda k" = { memory = 0.9, compute = 0.8 }
[engine.faster]
like = "fast"
source = "here"
step = 0.1
"""


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "rates.toml"
    path.write_text(SMALL, encoding="utf-8")
    return path


def test_an_engine_takes_what_it_lacks_from_the_one_it_is_like(file: Path) -> None:
    rates = read_rates(file, "faster")
    assert (rates.step, rates.launch["cuda"], rates.launch["cpu"]) == (0.1, 0.5, 4)
    assert rates.of("cuda", "Q4_K") == Efficiency(0.9, 0.8)
    assert rates.of("cuda", "Q8_0") == Efficiency(0.5, 0.4)
    assert rates.joule == {"8.6": 4e11}


def test_an_unknown_engine_is_the_general_one_by_its_own_name(file: Path) -> None:
    rates = read_rates(file, "nobody's")
    assert (rates.engine, rates.step, rates.pipelined) == ("nobody's", 1.0, 1)
    assert rates.wire("nccl", "nvlink") == Wire(1e-5)


def test_what_stands_behind_a_hyphen_does_not_change_the_class(file: Path) -> None:
    rates = read_rates(file, "fast")
    assert (rates.class_of("EXL2-4.00"), rates.class_of("Q4_K")) == ("exl", "k")
    assert rates.class_of("something new") == "other"


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("engine.general", "engine.common", "engine.general: missing"),
        ("cpu = 4", "gpu = 4", "entry for cpu"),
        ('like = "fast"', 'like = "slow"', "'slow' leads nowhere"),
        ('like = "fast"', 'like = "faster"', "leads nowhere"),
        ('"cpu other"', '"cpu k"', "entry for cpu"),
        ("memory = 0.9", "memory = 'most'", "memory"),
    ],
)
def test_a_damaged_file_is_named_with_what_is_wrong(
    file: Path, old: str, new: str, message: str
) -> None:
    file.write_text(SMALL.replace(old, new), encoding="utf-8")
    with pytest.raises(InputError, match=message) as caught:
        read_rates(file, "faster")
    assert str(caught.value).startswith("rates.toml: ")
    assert "\n" not in str(caught.value)


def test_the_kept_constants_of_this_program_cover_every_form_that_it_holds() -> None:
    rates = load_rates()
    general = load_rates("general")
    for kind, held in (("cpu", "int4"), ("cpu", "int8"), ("cpu", "bfloat16"), ("cpu", "float32"),
                       ("cuda", "bfloat16"), ("cuda", "float16")):  # fmt: skip
        assert rates.of(kind, held) != general.of(kind, "other")  # type: ignore[arg-type]
    assert rates.wire("nccl", "nvlink").of(2, 1e10) == Channel(1.1e-5, 1e10)


def test_every_kept_constant_is_possible() -> None:
    for engine in ("local_tp", "llama.cpp", "llama.cpp 2024", "vllm", "exllama", "general"):
        rates: Rates = load_rates(engine)
        for one in rates.efficiency.values():
            assert 0 < one.memory <= 1
            assert 0 < one.compute <= 2

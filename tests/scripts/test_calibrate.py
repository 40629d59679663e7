"""Calibration on measurements made up from known constants, and on what rows can look like."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from calibrate import main
from calibration import kept
from calibration.cases import Case, LeftOut, case_of, cases_of
from calibration.cross import cross_validated
from calibration.fit import constants, fitted, with_constant
from calibration.naming import names
from calibration.prediction import counted
from calibration.report import Point, errors_of, points_of, winners_of

from local_tp.hardware.rates import load_rates
from local_tp.rates import Efficiency

ROW: dict[str, Any] = {
    "id": "one",
    "gpus": ["RTX 3090"],
    "link": "unknown",
    "p2p": None,
    "engine": "llama.cpp b9999",
    "split": "single",
    "model": "Llama 3 8B",
    "quant": "Q4_K_M",
    "prefill_tps": 4000.0,
    "prefill_len": 512,
    "decode_tps": 130.0,
    "decode_len": 128,
    "concurrency": 1,
    "source": "made/up@1 here",
    "usable": True,
    "spec_decode": False,
}
TWO = {"gpus": ["RTX 3090", "RTX 3090"]}


def row(**changes: Any) -> dict[str, Any]:
    return ROW | changes


def case(**changes: Any) -> Case:
    return case_of(row(**changes))


def test_a_row_becomes_a_case() -> None:
    found = case(ubatch=256, context=1000)
    assert (found.engine, found.chunk, found.prompt, found.behind) == ("llama.cpp", 256, 512, 1000)
    assert (found.context, found.rows, found.source) == (1064, 1, "made/up@1")
    assert found.writing.spec.name == "Llama 3 8B"
    (device,) = found.writing.devices
    assert (device.name, device.bandwidth) == ("GeForce RTX 3090", 936.2e9)
    assert device.flops == pytest.approx(142.3e12, rel=0.01)  # with 16-bit sums


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"usable": False}, "not usable"),
        ({"model": "unstated"}, "not stated"),
        ({"quant": "not stated"}, "not stated"),
        ({"quant": "mystery"}, "no known size"),
        ({"model": "Nobody's 5B"}, "no known size"),
        ({"gpus": ["unstated in excerpt"]}, "card not stated"),
        ({"gpus": ["GTX 9999"]}, "is not known"),
        ({"split": "cpu_offload", "gpus": []}, "processor not stated"),
        ({"split": "cpu_offload", "cpu": "Ryzen 9 7950X"}, "with the processor is not stated"),
    ],
)
def test_what_decides_a_figure_and_is_not_stated_leaves_a_row_out(
    changes: dict[str, Any], reason: str
) -> None:
    with pytest.raises(LeftOut, match=reason):
        case(**changes)


def test_rows_left_out_are_named_with_their_reason() -> None:
    cases, left = cases_of([row(), row(id="two", usable=False)])
    assert [found.id for found in cases] == ["one"]
    assert left == [("two", "marked as not usable")]


@pytest.mark.parametrize(
    ("changes", "unsure"),
    [
        ({"spec_decode": True}, "speculative"),
        ({"concurrency": None}, "users"),
        ({"gpus": ["unstated in excerpt (2x RTX 4090 likely)"], "split": "layer"}, "likely"),
    ],
)
def test_what_cannot_be_held_against_a_measurement_can_still_be_compared(
    changes: dict[str, Any], unsure: str
) -> None:
    found = case(**changes)
    assert unsure in found.unsure
    one = counted(found, load_rates(found.engine))
    assert not [
        p for p in points_of([one], {found.engine: one_rates(found)}) if p.figure == "decode"
    ]
    assert one.decode(one_rates(found)) > 0


def one_rates(found: Case) -> Any:
    return load_rates(found.engine)


@pytest.mark.parametrize(
    ("link", "slots"),
    [
        ("PCIe 3.0 x8", [(3, 8), (3, 8)]),
        ("2x x16 + 2x x8 PCIe", [(4, 16), (4, 16)]),
        ("PCIe 4.0 x4 + x8", [(4, 4), (4, 8)]),
        ("USB4 eGPU + OCuLink x4", [(4, 4), (3, 4)]),
        ("PCIe 3.0 x16 + 2x PCIe 2.0 x1 behind one switch", [(3, 16), (1, 1)]),
        ("unknown", [(4, 16), (4, 16)]),
    ],
)
def test_slots_are_read_from_words(link: str, slots: list[tuple[int, int]]) -> None:
    devices = case(link=link, split="layer", **TWO).writing.devices
    assert [(d.pcie.generation, d.pcie.width) for d in devices if d.pcie] == slots


def test_links_are_what_a_row_says() -> None:
    kinds = {
        "NVLink": ({"link": "NVLink (NV4)"}, "nvlink"),
        "off": ({"link": "PCIe (NVLink fitted, disabled)", "p2p": False}, "host"),
        "direct": ({"link": "PCIe 4.0 x16", "p2p": True}, "p2p"),
    }
    for changes, kind in kinds.values():
        (link,) = case(split="tensor", **TWO, **changes).writing.links
        assert (link.kind, link.verified) == (kind, kind != "host")


def test_layers_on_the_processor_are_streamed_for_a_prompt() -> None:
    found = case(split="cpu_offload", cpu="Ryzen 9 7950X", n_gpu_layers=20)
    (reading,) = found.reading.placements
    assert reading.streamed == (0, 12)
    host, card = found.writing.placements
    assert (host.device, host.layers, card.layers) == ("cpu", (0, 12), (12, 32))
    assert found.writing.devices[0].bandwidth == 83.2e9


def test_copies_run_side_by_side() -> None:
    found = case(split="dp", dp="2x TP=2", gpus=["RTX 3090"] * 4, concurrency=8)
    assert (found.writing.copies, len(found.writing.placements)) == (2, 2)
    half = case(split="tensor", gpus=["RTX 3090"] * 2, concurrency=4)
    rates = load_rates("llama.cpp")
    assert counted(found, rates).decode(rates) == pytest.approx(
        2 * counted(half, rates).decode(rates)
    )


def test_a_row_with_one_users_tokens_is_counted_for_all() -> None:
    found = case(concurrency=2, note="decode_tps is the median per-stream")
    assert found.decode == 260.0


def test_the_fit_finds_the_constants_that_made_the_measurements() -> None:
    rates = load_rates("llama.cpp")
    true = with_constant(with_constant(rates, "cuda k", "memory", 0.7), "cuda k", "compute", 0.3)
    rows = []
    for index, card in enumerate(("RTX 3060", "RTX 3090", "RTX 4090", "RTX 5090")):
        one = counted(case(gpus=[card], id=card), true)
        rows.append(
            row(gpus=[card], id=card, source=f"s{index} x",
                decode_tps=one.decode(true), prefill_tps=one.prefill(true))
        )  # fmt: skip
    cases = [counted(case_of(r), rates) for r in rows]
    found = fitted(cases, {"llama.cpp": rates})
    assert constants(cases, found)["llama.cpp"]["cuda k"] == Efficiency(0.7, 0.3)
    errors = errors_of(points_of(cases, found))
    assert errors is not None
    assert errors.ninetieth < 0.01
    held_back = cross_validated(cases, {"llama.cpp": rates})
    assert held_back["one source left out, decode"].ninetieth < 0.01


def test_outliers_do_not_pull_the_fit() -> None:
    rates = load_rates("llama.cpp")
    true = with_constant(rates, "cuda k", "memory", 0.7)
    speeds = {card: counted(case(gpus=[card]), true).decode(true)
              for card in ("RTX 3060", "RTX 3070", "RTX 3080", "RTX 3090")}  # fmt: skip
    rows = [row(gpus=[c], id=c, decode_tps=v, prefill_tps=None) for c, v in speeds.items()]
    rows.append(row(gpus=["RTX 4090"], id="odd", decode_tps=10.0, prefill_tps=None))
    cases = [counted(case_of(r), rates) for r in rows]
    found = fitted(cases, {"llama.cpp": rates})["llama.cpp"]
    assert found.of("cuda", "Q4_K").memory == pytest.approx(0.7, abs=0.005)


def test_winners_are_told_by_the_same_predictions() -> None:
    rates = {"llama.cpp": load_rates("llama.cpp")}
    cases = [
        counted(case(id="fast", gpus=["RTX 4090"]), rates["llama.cpp"]),
        counted(case(id="slow", gpus=["RTX 3060"]), rates["llama.cpp"]),
    ]
    pairs = [
        {"a": "fast", "b": "slow", "decode_tps_a_over_b": 2.5, "prefill_tps_a_over_b": 0.5},
        {"a": "fast", "b": "slow", "decode_tps_a_over_b": 1.05},
        {"a": "fast", "b": "gone", "decode_tps_a_over_b": 3.0},
    ]
    found = winners_of(pairs, cases, rates)
    assert (found.right, found.pairs, found.share) == (1, 2, 0.5)
    assert found.wrong[0].startswith("fast against slow, prefill: measured 0.50, predicted")
    assert found.left_out == ("fast against gone, decode",)


def test_errors_are_relative_and_percentiles_lie_between_neighbours() -> None:
    points = [Point("", "decode", "", "", "", "", 100.0, 100.0 + i) for i in (0, 10, -20, 30)]
    errors = errors_of(points)
    assert errors is not None
    assert (errors.rows, errors.median) == (4, pytest.approx(0.15))
    assert errors.ninetieth == pytest.approx(0.27)
    assert errors_of([]) is None


def test_fitted_constants_are_kept_below_their_mark(tmp_path: Path) -> None:
    path = tmp_path / "rates.toml"
    path.write_text(f"[engine.x]\n{kept.MARK}old = 1\n", encoding="utf-8")
    kept.write(path, {"x": {"cuda k": Efficiency(0.5, 0.4)}})
    text = path.read_text(encoding="utf-8")
    assert text.startswith(f"[engine.x]\n{kept.MARK}")
    assert '[engine."x".efficiency]\n"cuda k" = { memory = 0.5, compute = 0.4 }' in text
    assert "old" not in text
    path.write_text("nothing", encoding="utf-8")
    with pytest.raises(ValueError, match=r"rates\.toml"):
        kept.write(path, {})


def test_every_engine_of_the_names_has_constants_and_the_last_takes_all() -> None:
    assert names().engine_of("something that nobody heard of").rates == "general"
    for engine in names().engine:
        assert engine.rates == "general" or load_rates(engine.rates).efficiency
        assert load_rates(engine.rates).wires


def test_the_script_prints_json(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    data, pairs = tmp_path / "data.jsonl", tmp_path / "pairs.jsonl"
    rows = [row(), row(id="two", gpus=["RTX 4090"], decode_tps=160.0), row(id="no", usable=False)]
    data.write_text("\n".join(map(json.dumps, rows)), encoding="utf-8")
    pair = {"a": "two", "b": "one", "decode_tps_a_over_b": 1.23}
    pairs.write_text(json.dumps(pair) + "\n", encoding="utf-8")
    assert main(["--data", str(data), "--pairs", str(pairs), "--json"]) == 0
    printed = json.loads(capsys.readouterr().out)
    assert printed["decode"]["rows"] == printed["prefill"]["rows"] == 2
    assert printed["decode"]["median"] < 0.25
    assert (printed["winners"]["right"], printed["winners"]["pairs"]) == (1, 1)
    assert printed["left_out"] == {"no": "marked as not usable"}
    assert main(["--fit", "--data", str(data)]) == 0
    assert "decode: 2 rows" in capsys.readouterr().out


SHARED = Path(__file__).resolve().parents[3] / "shared"


@pytest.mark.skipif(not (SHARED / "benchmarks.jsonl").exists(), reason="no measurements beside")
def test_the_kept_constants_reach_what_is_promised(capsys: pytest.CaptureFixture[str]) -> None:
    files = ["--data", str(SHARED / "benchmarks.jsonl"), "--pairs", str(SHARED / "pairs.jsonl")]
    assert main([*files, "--json"]) == 0
    printed = json.loads(capsys.readouterr().out)
    assert printed["decode"]["median"] < 0.12
    assert printed["decode"]["ninetieth"] < 0.35
    assert printed["prefill"]["median"] < 0.20
    assert printed["prefill"]["ninetieth"] < 0.50
    assert printed["winners"]["share"] > 0.9

"""The plan command: how a model would be placed, on this machine or another, and why.

Loads nothing. The plan goes to standard output, progress and refusals to standard error; the exit
code is 2 where no plan is possible.
"""

from __future__ import annotations

import argparse
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

from local_tp import codec
from local_tp.cli import options, session
from local_tp.cli.decide import Decided, decide
from local_tp.cli.doubts import decided_again
from local_tp.cli.facts import to_json
from local_tp.cli.plan_html import plan_html
from local_tp.cli.plan_text import plan_text, refusal_text
from local_tp.cli.saved import plan_json
from local_tp.cli.subject import spec_of
from local_tp.cli.terminal import look
from local_tp.core import Device, Plan, Rig
from local_tp.errors import DoesNotFit, InputError
from local_tp.hardware.catalog import GIB, find
from local_tp.hardware.devices import CONTEXT, RESERVE
from local_tp.hardware.rigs import load_rig
from local_tp.plan.changes import changes
from local_tp.plan.explain import explain
from local_tp.plan.planner import best_plan

CHANGES_SECONDS = 2.0  # that asking what would change the answer may take
ANOTHER = {"rocm": "Radeon RX 7600"}  # a common card of 8 GB, by the kind of those there are
ANOTHER_USUAL = "GeForce RTX 4060"


def add_commands(commands: Any) -> None:
    parser = commands.add_parser(
        "plan",
        help="how a model would be placed, without loading it",
        description="Work out how to place a model, and say why. Nothing is loaded. The model may "
        "be one that is not downloaded, such as llama-3.1-70b, and the machine one that you don't "
        "have.",
    )
    options.add_model(parser, positional=True)
    group = parser.add_argument_group("models and machines that are not here")
    group.add_argument(
        "--quant",
        metavar="NAME",
        help="quantization of a model known by name or config, such as Q4_K_M",
    )
    group.add_argument(
        "--model-config",
        metavar="FILE",
        help="plan the model that a config.json or the header of a GGUF file describes",
    )
    group.add_argument(
        "--rig",
        metavar="NAME|FILE",
        help="plan for another machine: a name of the collection, such as rtx3090-x2, a TOML file "
        "that describes one, or what `local-tp doctor --json` printed there",
    )
    group = parser.add_argument_group("result")
    group.add_argument(
        "--measure",
        action="store_true",
        help="measure just those numbers on which the choice depends, and decide again",
    )
    options.add_json(group)
    group.add_argument("--html", metavar="FILE", help="also write a page that needs no network")
    group.add_argument(
        "--save", metavar="FILE", help="also write the plan, which --placement FILE takes"
    )
    parser.set_defaults(run=run_plan)


def run_plan(parsed: argparse.Namespace) -> int:
    try:
        _run(parsed)
    except InputError as refusal:
        if parsed.json:
            print(to_json({"refusal": refusal_json(refusal)}))
        session.complain(refusal)
        if isinstance(refusal, DoesNotFit) and not parsed.json:
            for line in refusal_text(refusal, look()):
                session.say(line)
        return refusal.exit_code
    return 0


def refusal_json(refusal: InputError) -> dict[str, Any]:
    """Why there is no plan, for programs."""
    said: dict[str, Any] = {"kind": type(refusal).__name__, "message": str(refusal)}
    if isinstance(refusal, DoesNotFit):
        said |= {
            "device": refusal.device,
            "need": refusal.need,
            "have": refusal.have,
            "remedy": refusal.remedy,
            "terms": codec.encode(tuple(refusal.terms)),
            "settings": list(refusal.settings),
        }
    return said


def with_changes(decided: Decided) -> Plan:
    """The decided plan with what would change it, as far as the time for that allows."""
    end = time.monotonic() + CHANGES_SECONDS
    found = []
    asked = changes(
        decided.rig,
        decided.goal,
        decided.plan,
        lambda rig, goal: best_plan(decided.spec, rig, goal, decided.knowledge),
        another_card(decided.rig),
    )
    for line in asked:
        found.append(line)
        if time.monotonic() > end:
            break
    return replace(decided.plan, changes=tuple(found))


def another_card(rig: Rig) -> Device | None:
    """A common card of 8 GB that one could add to this machine."""
    kinds = [device.kind for device in rig.devices if device.kind != "cpu"]
    gpu = find(ANOTHER.get(kinds[0] if kinds else "cuda", ANOTHER_USUAL), 8 * GIB)
    if gpu is None:
        return None
    return Device(
        id="another card",
        kind=kinds[0] if kinds else "cuda",
        name=f"{gpu.name} with 8 GB",
        total=8 * GIB,
        free=8 * GIB - 8 * GIB // 50,
        reserve=RESERVE,
        context=gpu.context or CONTEXT,
        bandwidth=gpu.bandwidth,
        flops=gpu.flops,
        capability=gpu.capability,
    )


def _run(parsed: argparse.Namespace) -> None:
    if parsed.rig is not None and parsed.measure:
        raise InputError("--measure measures this machine: leave out --rig")
    spec = spec_of(parsed, session.say)
    own = parsed.rig is None
    rig = session.this_machine() if own else load_rig(parsed.rig)
    decided = decide(parsed, spec, rig, session.say, own=own)
    if parsed.measure:
        decided = decided_again(parsed, decided, session.say)
    plan = with_changes(decided)
    explanation = explain(decided.rig, plan)
    for option, file in (("--save", parsed.save), ("--html", parsed.html)):
        if file is not None:
            whole = (
                to_json(plan_json(plan, explanation)) + "\n"
                if option == "--save"
                else plan_html(spec, decided.rig, plan, explanation)
            )
            _write(Path(file), whole)
    if parsed.json:
        print(to_json(plan_json(plan, explanation)))
    else:
        print(plan_text(spec, decided.rig, plan, explanation, look()))


def _write(path: Path, text: str) -> None:
    try:
        path.write_text(text, encoding="utf-8")
    except OSError as error:
        raise InputError(f"cannot write {path}: {error.strerror}") from error
    session.say(f"wrote {path}")

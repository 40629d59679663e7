"""Commands that print facts and start nothing: probe, plan, models."""

from __future__ import annotations

import argparse
import json
import sys
from typing import Any

from local_tp import codec, settings
from local_tp.checkpoint.local_models import installed
from local_tp.checkpoint.starter import ensure_starter
from local_tp.cli import options, session
from local_tp.cli.plan_text import plan_text
from local_tp.errors import InputError
from local_tp.hardware.describe import describe
from local_tp.hardware.probe import probe

MB = 1_000_000


def add_commands(commands: Any) -> None:
    parser = commands.add_parser("probe", help="what this machine has")
    options.add_json(parser)
    parser.set_defaults(run=run_probe)

    parser = commands.add_parser("plan", help="how a model would be placed, without loading it")
    options.add_model(parser)
    options.add_json(parser)
    parser.set_defaults(run=run_plan)

    parser = commands.add_parser("models", help="the models on this machine")
    actions = parser.add_subparsers(title="actions", metavar="ACTION")
    listing = actions.add_parser("list", help="names, sizes and places (the default)")
    options.add_json(parser)
    options.add_json(listing, default=argparse.SUPPRESS)  # else it undoes `models --json list`
    parser.set_defaults(run=run_models_list)
    pull = actions.add_parser("pull", help="fetch a model")
    pull.add_argument("name", choices=["starter"], help="starter: a small instruct model, 98 MB")
    pull.set_defaults(run=run_models_pull)


def run_probe(parsed: argparse.Namespace) -> int:
    rig = probe()
    print(to_json(codec.encode(rig)) if parsed.json else describe(rig))
    return 0


def run_plan(parsed: argparse.Namespace) -> int:
    planned = session.plan(parsed, verify=False)
    if parsed.json:
        print(to_json(codec.encode(planned.plan)))
    else:
        print(plan_text(planned.checkpoint.spec, planned.plan))
    return 0


def run_models_list(parsed: argparse.Namespace) -> int:
    models = installed()
    if parsed.json:
        rows = [{"name": m.name, "path": str(m.path), "bytes": m.nbytes} for m in models]
        print(to_json(rows))
        return 0
    if not models:
        print(
            f"no models in {settings.models()}: fetch one with `local-tp models pull starter`, "
            "or name any GGUF file by path"
        )
        return 0
    print(f"models in {settings.models()}:")
    width = max(len(m.name) for m in models)
    for m in models:
        print(f"  {m.name:<{width}}  {m.nbytes / MB:10,.0f} MB  {m.path}")
    return 0


def run_models_pull(parsed: argparse.Namespace) -> int:
    if parsed.name != "starter":
        raise InputError(f"cannot fetch {parsed.name}: only the starter model can be fetched")
    print(ensure_starter(session.say))
    return 0


def to_json(value: object) -> str:
    """JSON as every command prints it: readable where the output can show it, exact everywhere."""
    encoding = getattr(sys.stdout, "encoding", None) or "ascii"
    plain = encoding.lower().replace("-", "") != "utf8"
    return json.dumps(value, ensure_ascii=plain, indent=2)

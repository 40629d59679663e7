"""The command that prints the machine's facts and starts nothing: probe."""

from __future__ import annotations

import argparse
import json
import sys
from typing import Any

from local_tp import codec
from local_tp.cli import options
from local_tp.hardware.describe import describe
from local_tp.hardware.probe import probe


def add_commands(commands: Any) -> None:
    parser = commands.add_parser("probe", help="what this machine has")
    options.add_json(parser)
    parser.set_defaults(run=run_probe)


def run_probe(parsed: argparse.Namespace) -> int:
    rig = probe()
    print(to_json(codec.encode(rig)) if parsed.json else describe(rig))
    return 0


def to_json(value: object) -> str:
    """JSON as every command prints it: readable where the output can show it, exact everywhere."""
    encoding = getattr(sys.stdout, "encoding", None) or "ascii"
    plain = encoding.lower().replace("-", "") != "utf8"
    return json.dumps(value, ensure_ascii=plain, indent=2)

"""The `local-tp models` command: what is here, what is fetched, what is removed.

Knows nothing of files or of the hub: it prints what they say. Names and paths go to standard
output, questions and progress to standard error.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from itertools import groupby
from typing import Any

from local_tp import settings
from local_tp.checkpoint.hub.found import YOURS, LocalModel, size_text
from local_tp.checkpoint.hub.removal import Removal, removal, remove
from local_tp.checkpoint.local_models import STARTER_NAME, installed, named
from local_tp.checkpoint.starter import starter_path
from local_tp.cli import options
from local_tp.cli.facts import to_json
from local_tp.cli.terminal import Look, look
from local_tp.errors import CheckpointError, InputError

DECLINED = 1


def add_commands(commands: Any) -> None:
    parser = commands.add_parser("models", help="the models on this machine, and more from the hub")
    actions = parser.add_subparsers(title="actions", metavar="ACTION")
    listing = actions.add_parser("list", help="names, sizes and places (the default)")
    options.add_json(parser)
    options.add_json(listing, default=argparse.SUPPRESS)  # else it undoes `models --json list`
    parser.set_defaults(run=run_list)

    pull = actions.add_parser("pull", help="fetch a model")
    pull.add_argument(
        "name",
        metavar="OWNER/NAME[:QUANT]",
        help="a repository of the hub, and which of its quantizations; or starter: a small "
        "instruct model, 98 MB",
    )
    _add_json_lines(pull)
    pull.set_defaults(run=run_pull)

    inspecting = actions.add_parser("inspect", help="what a model is, from its headers alone")
    inspecting.add_argument(
        "name",
        metavar="MODEL",
        help="a name from `local-tp models`, a path, or OWNER/NAME[:QUANT] of the hub, which is "
        "not fetched for it",
    )
    options.add_json(inspecting, default=argparse.SUPPRESS)
    inspecting.set_defaults(run=run_inspect)

    removing = actions.add_parser("rm", help="remove a model")
    removing.add_argument("name", metavar="MODEL", help="a name from `local-tp models`")
    removing.add_argument("--yes", action="store_true", help="do not ask")
    removing.set_defaults(run=run_rm)


def _add_json_lines(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--json",
        action="store_true",
        default=argparse.SUPPRESS,
        help="print a line of JSON for each thing that happens, and choose nothing unasked",
    )


def run_pull(parsed: argparse.Namespace) -> int:
    from local_tp.cli import models_pull  # brings an HTTP client, which no other command needs

    return models_pull.run_pull(parsed)


def run_inspect(parsed: argparse.Namespace) -> int:
    from local_tp.cli import models_inspect  # likewise

    return models_inspect.run_inspect(parsed)


def run_list(parsed: argparse.Namespace) -> int:
    models = installed()
    if parsed.json:
        print(to_json([_row(model) for model in models]))
        return 0
    if not models:
        print(
            f"no models in {settings.models()} or in other programs' folders: fetch one with "
            "`local-tp models pull starter`, or name any GGUF file by path"
        )
        return 0
    print("\n".join(_lines(models, look())))
    return 0


def run_rm(parsed: argparse.Namespace) -> int:
    model = _named(parsed.name)
    what = removal(model, settings.models(), settings.hub_cache())
    print(_announced(model, what), file=sys.stderr)
    if not parsed.yes and not _agreed():
        print("nothing was deleted", file=sys.stderr)
        return DECLINED
    remove(what)
    print(f"deleted {model.name}: {size_text(what.nbytes)} are free again")
    return 0


def _row(model: LocalModel) -> dict[str, object]:
    return {
        "name": model.name,
        "path": str(model.path),
        "bytes": model.nbytes,
        "source": model.source,
        "problem": model.problem,
    }


def _lines(models: Sequence[LocalModel], look: Look) -> list[str]:
    """A heading for each source, and under it the models; what is wrong stands at the end."""
    width = min(48, max(len(model.name) for model in models))
    lines = []
    for source, group in groupby(models, key=lambda model: model.source):
        where = f"models in {settings.models()}:" if source == YOURS else f"in {source}:"
        lines.append(look.plain(where))
        for model in group:
            size = f"{size_text(model.nbytes):>10}" if model.files else f"{'-':>10}"
            line = f"  {look.plain(model.name):<{width}}  {size}  {look.plain(str(model.path))}"
            wrong = f"  ({model.problem})" if model.problem else ""
            lines.append(line + look.plain(wrong))
    return lines


def _named(name: str) -> LocalModel:
    models = installed()
    if name == STARTER_NAME:
        path = starter_path()
        model = next((model for model in models if model.path == path), None)
    else:
        model = named(name, models)
    if model is None:
        raise CheckpointError(f"there is no model {name!r} here: see `local-tp models`")
    return model


def _announced(model: LocalModel, what: Removal) -> str:
    place = what.tree or model.path
    links = "" if what.nbytes else " (it is a link: what it leads to stays)"
    return f"{model.name} in {place}: deleting it frees {size_text(what.nbytes)}{links}"


def _agreed() -> bool:
    if not sys.stdin.isatty():
        raise InputError("there is nobody to ask whether to delete it: add --yes")
    print("delete it? [y/N] ", end="", file=sys.stderr, flush=True)
    return sys.stdin.readline().strip().lower() in ("y", "yes")

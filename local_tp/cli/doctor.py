"""The doctor command: what is wrong with this machine, or with one that somebody pasted.

Findings are no failure: the exit code is 0 with any number of them, and 2 only for text that
cannot be read. The report goes to standard output, progress to standard error.
"""

from __future__ import annotations

import argparse
import shutil
import sys
from functools import partial
from pathlib import Path
from typing import Any

from local_tp.checkpoint.known_models import known_model
from local_tp.cli import options, session
from local_tp.core import Rig
from local_tp.errors import InputError
from local_tp.hardware.diagnose import diagnose
from local_tp.hardware.measuring.cache import default_folder
from local_tp.hardware.measuring.measure import measure, with_kept_build
from local_tp.hardware.paste import read_pasted
from local_tp.hardware.probe import probe
from local_tp.hardware.rates import load_rates
from local_tp.hardware.report.html import report_html
from local_tp.hardware.report.json import read_report, report_json
from local_tp.hardware.report.markdown import report_markdown
from local_tp.hardware.report.report import Report, own_names, printable, scrub
from local_tp.hardware.report.text import report_text
from local_tp.hardware.rigs import load_rig
from local_tp.plan.fault_costs import with_costs
from local_tp.plan.planner import Knowledge

STDIN = "-"
# Far above any machine's output; a model file named by mistake is not read into memory.
LONGEST = 64 * 1024 * 1024
NARROWEST, WIDEST = 60, 110
# What the cost of a fault is told with: the first that the cards hold.
MEASURES = (
    ("llama-3.3-70b", "Q4_K_M"),
    ("qwen3-32b", "Q4_K_M"),
    ("llama-3.1-8b", "Q4_K_M"),
    ("llama-3.2-1b", "Q4_K_M"),
)


def add_commands(commands: Any) -> None:
    parser = commands.add_parser(
        "doctor",
        help="what is wrong with this machine, and what to do",
        description="Look at this machine, or at pasted text of another, and say what is wrong "
        "and what to do. The exit code is 0 also with findings, 2 for text that cannot be read.",
    )
    source = parser.add_argument_group("machine").add_mutually_exclusive_group()
    source.add_argument(
        "--from",
        dest="sources",
        nargs="+",
        metavar="FILE",
        help="read another machine: output of nvidia-smi, lspci, rocm-smi, …, or a JSON report; "
        "- reads standard input",
    )
    source.add_argument(
        "--rig",
        metavar="NAME|FILE",
        help="a machine that you don't have: a name of the collection, such as rtx3090-x2, or a "
        "TOML or JSON file that describes one",
    )
    source.add_argument(
        "--measure", action="store_true", help="also measure what can change a plan"
    )
    source.add_argument("--full", action="store_true", help="also measure everything else")
    parser.add_argument(
        "--again", action="store_true", help="measure anew what was measured before"
    )
    form = parser.add_argument_group("report")
    form.add_argument("--html", metavar="FILE", help="also write a page that needs no network")
    kind = form.add_mutually_exclusive_group()
    kind.add_argument("--markdown", action="store_true", help="print it for an issue tracker")
    options.add_json(kind)
    form.add_argument(
        "--show-identifiers",
        action="store_true",
        help="keep UUIDs, serial numbers, host and user names, which are removed otherwise",
    )
    parser.set_defaults(run=run_doctor)


def run_doctor(parsed: argparse.Namespace) -> int:
    if parsed.again and not (parsed.measure or parsed.full):
        raise InputError("--again says how to measure: add --measure or --full")
    foreign = _foreign(parsed)
    report = foreign or _own(parsed)
    if not parsed.show_identifiers:
        report = scrub(report, () if foreign else own_names())
    if parsed.html:
        _write(Path(parsed.html), report_html(report))
    if parsed.json:
        print(report_json(report))
    elif parsed.markdown:
        print(report_markdown(report), end="")
    else:
        print(report_text(report, _width()))
        if not (foreign or parsed.measure or parsed.full):
            print("\nSpeeds were not measured: local-tp doctor --measure does.")
    return 0


def _foreign(parsed: argparse.Namespace) -> Report | None:
    """The machine that was pasted or named, None where this one is meant."""
    if parsed.sources:
        return _pasted(parsed.sources)
    if parsed.rig is not None:
        return _diagnosed(load_rig(parsed.rig))
    return None


def _own(parsed: argparse.Namespace) -> Report:
    """This machine, measured if that was asked for."""
    rig = with_kept_build(probe(), default_folder(), session.say)
    if parsed.measure or parsed.full:
        rig = measure(
            rig, full=parsed.full, again=parsed.again, report=session.say, cache=default_folder()
        )
    return _diagnosed(rig)


def _diagnosed(rig: Rig, unread: tuple[str, ...] = ()) -> Report:
    """The findings, with what the plan can say of their cost."""
    knowledge = Knowledge(load_rates())
    models = [partial(known_model, name, quant) for name, quant in MEASURES]
    return Report(rig, with_costs(rig, diagnose(rig), models, knowledge), unread)


def _pasted(names: list[str]) -> Report:
    """The machine that the named texts describe: a JSON report, or outputs of tools."""
    texts = [(_spoken(name), _read(name)) for name in names]
    if len(texts) == 1 and (whole := read_report(texts[0][1], texts[0][0])):
        return whole  # with its findings, as it was written
    pasted = read_pasted(texts)
    report = _diagnosed(pasted.rig, tuple(pasted.unread))
    if not (report.findings or _says_something(report.rig)):
        listed = ", ".join(name for name, _ in texts)
        unread = scrub(report).unread
        why = printable(f" ({unread[0]})") if unread else ""
        raise InputError(
            f"{listed} tells of no machine{why}: give the output of `nvidia-smi -q`, "
            "`nvidia-smi topo -m`, `lspci -vv`, `rocm-smi` or a report of `local-tp doctor --json`"
        )
    return report


def _says_something(rig: Rig) -> bool:
    return rig != Rig(devices=())


def _spoken(name: str) -> str:
    return "standard input" if name == STDIN else name


def _read(name: str) -> bytes:
    """A file's bytes. Raises `InputError` for what cannot be read or is no pasted text."""
    try:
        if name == STDIN:
            data = sys.stdin.buffer.read(LONGEST + 1)
        else:
            with Path(name).open("rb") as file:
                data = file.read(LONGEST + 1)
    except OSError as error:
        raise InputError(f"cannot read {name}: {error.strerror}") from error
    if len(data) > LONGEST:
        raise InputError(
            f"{_spoken(name)} is longer than {LONGEST // 1024**2} MiB: give the text output of one "
            "machine"
        )
    return data


def _write(path: Path, text: str) -> None:
    try:
        path.write_text(text, encoding="utf-8", errors="replace")
    except OSError as error:
        raise InputError(f"cannot write {path}: {error.strerror}") from error
    session.say(f"wrote {path}")


def _width() -> int:
    columns = shutil.get_terminal_size((WIDEST, 24)).columns
    return max(NARROWEST, min(columns, WIDEST))

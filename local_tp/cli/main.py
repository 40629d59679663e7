"""The `local-tp` command: one parser, one place where errors become a line and an exit code.

Exit codes: 0 done, 1 a worker failed, 2 what was asked for cannot be done, 130 stopped by the
person. Facts go to standard output, progress and errors to standard error. Importing this module
is quick: the commands are imported by `main`, so that Ctrl+C in that half second is heard too.
"""

from __future__ import annotations

import argparse
import io
import os
import signal
import sys
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from types import FrameType
from typing import NoReturn

from local_tp.errors import LocalTpError, WorkerFault

INTERRUPTED = 130
STOPPED = "local-tp: stopped\n"
COMMANDS = {  # by the module that has them, as help lists them
    "facts": ("probe",),
    "models": ("models",),
    "plan": ("plan",),
    "doctor": ("doctor",),
    "talk": ("chat", "complete"),
    "page": ("serve",),
    "measure": ("bench",),
}


class Parser(argparse.ArgumentParser):
    """Says what is wrong in one line."""

    def error(self, message: str) -> NoReturn:
        print(f"{self.prog}: {message} (see {self.prog} --help)", file=sys.stderr)
        raise SystemExit(2)


def build_parser(named: str | None = None) -> Parser:
    """Every command with its options, or the `named` one alone where there is such a one.

    A command's module is imported with it: alone it is there in a third of the time.
    """
    from importlib import import_module
    from importlib.metadata import version

    parser = Parser(
        prog="local-tp",
        description="Run a language model split over the devices of this machine.",
    )
    parser.add_argument("--version", action="version", version=f"local-tp {version('local-tp')}")
    commands = parser.add_subparsers(title="commands", metavar="COMMAND", required=True)
    wanted = [module for module, names in COMMANDS.items() if named in names] or COMMANDS
    for module in wanted:
        import_module(f"local_tp.cli.{module}").add_commands(commands)
    return parser


@contextmanager
def _interrupted_at_once() -> Iterator[None]:
    """Ctrl+C ends the process there and then; only for code that leaves nothing to clean up.

    Raised in the midst of an import, an interruption comes out as whatever the interrupted module
    makes of it.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.getsignal(signal.SIGINT)
    if before is signal.default_int_handler:  # not where somebody has made this process deaf to it
        signal.signal(signal.SIGINT, _leave)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)


def _leave(number: int, frame: FrameType | None) -> NoReturn:
    sys.stderr.write(STOPPED)
    sys.stderr.flush()
    os._exit(INTERRUPTED)


def _prepare_process() -> None:
    """Streams that can be written to, and an orderly end when the system asks for one."""
    if sys.stdout is None:
        sys.stdout = open(os.devnull, "w", encoding="utf-8")  # noqa: SIM115  lives as long as we do
    if sys.stderr is None:
        sys.stderr = sys.stdout
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="replace")  # not every terminal can show every character
    if threading.current_thread() is threading.main_thread():
        signal.signal(signal.SIGTERM, _terminated)


def _terminated(number: int, frame: FrameType | None) -> NoReturn:
    """Unwinds like Ctrl+C does, so that workers are ended and nothing is left behind."""
    raise SystemExit(128 + number)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command; returns its exit code."""
    _prepare_process()
    with _interrupted_at_once():
        given = sys.argv[1:] if arguments is None else arguments
        parser = build_parser(given[0] if given else None)
    try:
        parsed = parser.parse_args(arguments)
        code: int = parsed.run(parsed)
        sys.stdout.flush()
    except LocalTpError as error:
        print(f"local-tp: {error}", file=sys.stderr)
        if isinstance(error, WorkerFault):
            print(error.traceback, file=sys.stderr)
        return error.exit_code
    except KeyboardInterrupt:
        sys.stderr.write(STOPPED)
        return INTERRUPTED
    except BrokenPipeError:
        # Whoever read our output has left: nothing more to say, also not while Python exits.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    return code

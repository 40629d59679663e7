"""Starts local_tp: makes its environment, fetches the starter model, opens the page.

Knows nothing of how each is done. It runs on the standard library alone, and this file can be read
by any Python 3, so that one that is too old can be told so.

    launch.py [flags of app.py]
    launch.py --setup-only [--extras test]
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from launcher.environment import Environment

SET_UP_FAILED = 2
STOPPED = 130

HELP = """\
start [--setup-only] [--extras NAME] [flags of app.py]

  --setup-only     make the environment and stop
  --extras NAME    also install an optional group of pyproject.toml, such as test
"""


class Options(NamedTuple):
    """The launcher's own flags, and all the others in their order."""

    setup_only: bool
    extras: tuple[str, ...]
    rest: tuple[str, ...]


def parse(arguments: Sequence[str]) -> Options:
    """Take the launcher's own flags out of the command line; raises ValueError."""
    setup_only, extras, rest = False, [], []
    words = iter(arguments)
    for word in words:
        if word == "--setup-only":
            setup_only = True
        elif word == "--extras":
            extras.append(next(words, ""))
        elif word.startswith("--extras="):
            extras.append(word.partition("=")[2])
        else:
            rest.append(word)
    if "" in extras:
        raise ValueError("--extras needs a name, such as --extras test")
    if setup_only and rest:
        raise ValueError(f"--setup-only starts nothing, so leave out {' '.join(rest)}")
    return Options(setup_only, tuple(extras), tuple(rest))


def version_problem(version: tuple[int, int]) -> str | None:
    """What is wrong with a Python of this version, in words; None when it fits."""
    have = f"{version[0]}.{version[1]}"
    if version < (3, 11):
        return f"this Python is {have} and local_tp needs 3.11 to 3.14: install a newer one"
    if version > (3, 14):
        return f"this Python is {have} and PyTorch is ready for 3.11 to 3.14: install one of those"
    return None


def wants_starter(flags: Sequence[str]) -> bool:
    """Whether the page will need the starter model: not when another is named, nor for help."""
    return not any(
        flag in ("--model", "-h", "--help") or flag.startswith("--model=") for flag in flags
    )


def say(line: str) -> None:
    print(line, flush=True)


def complain(line: str) -> None:
    print(f"start: {line}", file=sys.stderr, flush=True)


def main(arguments: Sequence[str]) -> int:
    """Run the launcher; returns the exit code (on POSIX a good start never returns)."""
    if problem := version_problem(sys.version_info[:2]):
        complain(problem)
        return SET_UP_FAILED
    try:
        options = parse(arguments)
    except ValueError as error:
        complain(str(error))
        return SET_UP_FAILED
    try:
        return start(options, Path(__file__).resolve().parent.parent)
    except KeyboardInterrupt:
        complain("stopped; the next start goes on from here")
        return STOPPED
    except OSError as error:
        complain(f"{error}: see that this folder can be written to and that no local_tp runs in it")
        return SET_UP_FAILED


def start(options: Options, root: Path) -> int:
    """Prepare, fetch and run, in that order."""
    # Not at the top: an older Python cannot read these modules.
    from launcher import environment, prepare

    outside = prepare.this_machine()
    if {"-h", "--help"} & set(options.rest):
        say(HELP)
        if not environment.is_ready(environment.Environment(root), outside.signature(), ()):
            say("The flags of app.py are shown once it is set up: start --setup-only")
            return 0
    try:
        ready = prepare.prepare(root, options.extras, say, outside)
    except environment.SetupError as error:
        complain(str(error))
        return SET_UP_FAILED
    if options.setup_only:
        say(f"ready: {ready.folder}")
        return 0
    if wants_starter(options.rest) and (code := fetch_starter(ready)):
        return code
    return run_app(ready, options.rest)


def fetch_starter(environment: Environment) -> int:
    """Fetch the starter model where it is not there yet; it shows its own progress."""
    # -P: a folder named local_tp where the person stands is not ours.
    command = [str(environment.python), "-P", "-m", "local_tp", "models", "pull", "starter"]
    code = subprocess.run(command, stdout=subprocess.DEVNULL, check=False).returncode
    if code in (0, STOPPED):
        return code
    complain(
        "the starter model could not be fetched: check the network and start again, "
        "or name a model of your own with --model"
    )
    return SET_UP_FAILED


def run_app(environment: Environment, flags: Sequence[str]) -> int:
    """Hand over to app.py, with its flags as they came."""
    command = [str(environment.python), str(environment.root / "app.py"), *flags]
    sys.stdout.flush()
    if os.name == "posix":
        os.execv(command[0], command)
    # Windows cannot replace one process by another that keeps the console.
    process = subprocess.Popen(command)
    while True:
        try:
            return process.wait()
        except KeyboardInterrupt:
            # Ctrl-C reached app.py too: it stops its workers, and says with which code.
            continue


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

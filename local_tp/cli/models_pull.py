"""Fetching a model at a terminal: what was chosen, how far it is, and where it is in the end.

Knows nothing of HTTP. On a terminal progress is one line that changes; elsewhere it is a line now
and then; with `--json` everything is an object on a line of standard output.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections import deque
from dataclasses import dataclass, field

from local_tp.checkpoint.hub.choice import Choice, SeveralVariants, Variant, runs_here
from local_tp.checkpoint.hub.client import hub
from local_tp.checkpoint.hub.found import size_text
from local_tp.checkpoint.hub.listing import Repository
from local_tp.checkpoint.hub.names import parse_reference
from local_tp.checkpoint.hub.pull import Progress, Pulled, pull
from local_tp.checkpoint.local_models import STARTER_NAME
from local_tp.checkpoint.starter import ensure_starter
from local_tp.cli.session import say
from local_tp.cli.terminal import look
from local_tp.errors import InputError

WINDOW = 15.0  # seconds that a speed is the mean of
ON_TERMINAL, ELSEWHERE, AS_JSON = 0.2, 10.0, 1.0  # seconds between reports


def run_pull(parsed: argparse.Namespace) -> int:
    if parsed.name == STARTER_NAME:
        path = ensure_starter(lambda line: say(line) if not parsed.json else None)
        done = Pulled(path, path.stat().st_size, fresh=False)
        _finish(done, parsed.json)
        return 0
    reference = parse_reference(parsed.name)
    if reference is None:
        raise InputError(
            f"{parsed.name!r} is no name of a repository: write OWNER/NAME or OWNER/NAME:QUANT, "
            "or starter"
        )
    meter = Meter(parsed.json)
    try:
        with hub() as connection:
            done = pull(connection, reference, meter.chosen, meter.report, ask=parsed.json)
    except SeveralVariants as error:
        if parsed.json:
            _print_json(event="error", error=str(error), variants=list(map(_row, error.variants)))
        raise
    except KeyboardInterrupt:
        meter.end()
        if meter.started:
            print(
                f"what has arrived is kept: `local-tp models pull {reference}` goes on with it",
                file=sys.stderr,
            )
        raise
    finally:
        meter.end()
    _finish(done, parsed.json)
    return 0


@dataclass(slots=True)
class Meter:
    """Reports what happens, not more often than anybody can read."""

    as_json: bool
    started: bool = False
    _last: float = 0.0
    _open_line: int = 0
    _seen: deque[tuple[float, int]] = field(default_factory=deque)

    def chosen(self, found: Repository, choice: Choice) -> None:
        if self.as_json:
            _print_json(
                event="chosen",
                repository=found.reference.repository,
                commit=found.commit,
                quant=choice.label,
                licence=found.licence,
                bytes=choice.nbytes,
                files=[{"path": str(f.path), "bytes": f.nbytes} for f in choice.files],
                notes=list(choice.notes),
            )
            return
        for line in _chosen(found, choice):
            say(look().plain(line))

    def report(self, progress: Progress) -> None:
        now = time.monotonic()
        self.started = True
        terminal = sys.stderr.isatty()
        pause = AS_JSON if self.as_json else ON_TERMINAL if terminal else ELSEWHERE
        if now - self._last < pause and progress.done < progress.total:
            return
        self._last = now
        speed = self._speed(now, progress.fetched)
        left = (progress.total - progress.done) / speed if speed else None
        if self.as_json:
            _print_json(
                event="progress",
                file=progress.file,
                done=progress.done,
                total=progress.total,
                bytes_per_second=None if speed is None else round(speed),
                seconds_left=None if left is None else round(left),
            )
            return
        line = look().plain(_progress(progress, speed, left))
        if not terminal:
            say(line)
            return
        line = line[: look().width - 1]
        sys.stderr.write("\r" + line.ljust(self._open_line))
        sys.stderr.flush()
        self._open_line = len(line)

    def end(self) -> None:
        """Ends the line that changes, so that others begin below it."""
        if self._open_line:
            sys.stderr.write("\n")
            self._open_line = 0

    def _speed(self, now: float, fetched: int) -> float | None:
        """Bytes a second over the last seconds."""
        self._seen.append((now, fetched))
        while now - self._seen[0][0] > WINDOW and len(self._seen) > 2:
            self._seen.popleft()
        then, before = self._seen[0]
        seconds = now - then
        return (fetched - before) / seconds if seconds > 0 and fetched > before else None


def _chosen(found: Repository, choice: Choice) -> list[str]:
    name = found.reference.repository
    count = f"{len(choice.files)} files" if len(choice.files) > 1 else str(choice.files[0].path)
    label = f"{choice.label}: " if choice.label else ""
    licence = f", licence {found.licence}" if found.licence else ""
    lines = [f"{name} {label}{count}, {size_text(choice.nbytes)}{licence}"]
    if choice.others and found.reference.quant is None:
        lines.append(
            f"it has {len(choice.others)} quantizations: "
            + ", ".join(f"{v.label} {size_text(v.nbytes)}" for v in choice.others)
        )
        another = next(v.label for v in reversed(choice.others) if v.files != choice.files)
        lines.append(
            f"taking {choice.label}, as none is named: `local-tp models pull {name}:{another}` "
            "would take another"
        )
    if choice.label is not None and not runs_here(choice.label):
        lines.append(f"this version may not run {choice.label} yet: it can be planned with")
    return [*lines, *choice.notes]


def _progress(progress: Progress, speed: float | None, left: float | None) -> str:
    done = 100 * progress.done // max(1, progress.total)
    file = progress.file.rpartition("/")[2]
    line = f"{done:3}%  {size_text(progress.done)} of {size_text(progress.total)}"
    if speed is not None and left is not None:
        line += f"  {speed / 1e6:,.1f} MB/s  {duration(left)} left"
    return f"{line}  {file}"


def duration(seconds: float) -> str:
    """Seconds as people say them: 40 s, 3 min 20 s, 2 h 5 min."""
    whole = round(seconds)
    if whole < 60:
        return f"{whole} s"
    if whole < 3600:
        return f"{whole // 60} min {whole % 60} s"
    return f"{whole // 3600:,} h {whole % 3600 // 60} min"


def _finish(done: Pulled, as_json: bool) -> None:
    if as_json:
        _print_json(event="done", path=str(done.path), bytes=done.nbytes, fetched=done.fresh)
        return
    fresh, kept = "it is whole and its checksums are right", "it was here already, by name and size"
    say(fresh if done.fresh else kept)
    print(done.path)


def _row(variant: Variant) -> dict[str, object]:
    files = [str(file.path) for file in variant.files]
    return {"quant": variant.label, "bytes": variant.nbytes, "files": files}


def _print_json(**values: object) -> None:
    print(json.dumps(values), flush=True)

"""The machine's page: what is wrong with it, a picture, and a report to hand on.

A client of the `local-tp doctor` command, which runs as a process of its own: a driver that hangs
then hangs there, and Stop ends it at once. Knows nothing of engines. Each browser tab has its own
`Examination`; the report shown is the one without names and identifiers.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from html import escape
from typing import IO, Any, Literal

import gradio as gr

from local_tp import settings
from local_tp.errors import InputError
from local_tp.hardware.measuring.killable import environment
from local_tp.hardware.report.html import STYLE as REPORT_STYLE
from local_tp.hardware.report.html import report_body
from local_tp.hardware.report.json import read_report
from local_tp.hardware.report.markdown import report_markdown
from local_tp.hardware.report.report import Report
from ui.status import notice

LOOK = (sys.executable, "-m", "local_tp", "doctor", "--json")
MEASURE = (*LOOK, "--measure", "--again")
LINES_SHOWN = 8
STYLE = f"""{REPORT_STYLE}
body:not(.tp-on-machine) #tp-machine {{ display: none; }}
.tp-on-machine #tp-talk {{ display: none; }}
.tp-on-machine #tp-new {{ display: none; }}
#tp-machine {{ --r-panel: var(--block-background-fill); --r-text: var(--body-text-color);
  --r-quiet: color-mix(in srgb, var(--body-text-color) 68%, var(--block-background-fill));
  --r-line: var(--border-color-primary); }}
#tp-machine > * {{ flex: none; }}
.tp-progress {{ margin: 0; font-size: 13px; color: var(--r-quiet); }}
"""
# Both pages stay in the document: a running answer goes on, and a draft is not lost.
TURN = """() => {
  const shown = document.body.classList.toggle("tp-on-machine");
  document.querySelector("#tp-turn").textContent = shown ? "Chat" : "Machine";
}"""
# Browsers give a clipboard only to pages from this computer or over HTTPS.
COPY = """async (text) => {
  const button = document.querySelector("#tp-copy");
  if (navigator.clipboard) await navigator.clipboard.writeText(text);
  else {
    const area = document.createElement("textarea");
    area.value = text;
    document.body.append(area);
    area.select();
    document.execCommand("copy");
    area.remove();
  }
  button.textContent = "Copied";
  setTimeout(() => { button.textContent = "Copy report"; }, 2000);
  return [];
}"""

Phase = Literal["running", "ended", "failed", "stopped"]


@dataclass(frozen=True, slots=True)
class View:
    """One state of the page while the machine is looked at. `report` is there at the end."""

    phase: Phase
    lines: tuple[str, ...]
    report: Report | None = None


@dataclass
class Examination:
    """The look or measurement that one tab waits for, so that Stop can find it."""

    shown: bool = False
    _process: subprocess.Popen[bytes] | None = field(default=None, repr=False)
    _stopped: subprocess.Popen[bytes] | None = field(default=None, repr=False)

    @property
    def busy(self) -> bool:
        return self._process is not None and self._process.poll() is None

    def run(self, command: Sequence[str]) -> Iterator[View]:
        """Its progress line by line, then its report. Leaving early ends the process."""
        self.stop()
        with tempfile.TemporaryFile(prefix="local_tp-report-") as answer:
            process = subprocess.Popen(
                command,
                cwd=settings.source(),
                env=environment(None),
                stdin=subprocess.DEVNULL,
                stdout=answer,
                stderr=subprocess.PIPE,
            )
            self._process = process
            lines: list[str] = []
            try:
                assert process.stderr is not None
                yield View("running", ())
                for line in process.stderr:
                    lines.append(line.decode(errors="replace").rstrip())
                    yield View("running", tuple(lines))
                code = process.wait()
            finally:
                _end(process)
            answer.seek(0)
            if self._stopped is process:
                yield View("stopped", tuple(lines))
            else:
                yield self._result(code, answer, tuple(lines))

    def stop(self) -> None:
        """End the process, and with it what it measures with."""
        if self._process is not None and self.busy:
            self._stopped = self._process
            self._process.terminate()

    def _result(self, code: int, answer: IO[bytes], lines: tuple[str, ...]) -> View:
        if code:
            return View("failed", lines)
        try:
            report = read_report(answer.read(), "the report")
        except InputError as error:
            return View("failed", (*lines, str(error)))
        if report is None:
            return View("failed", (*lines, "the machine's report cannot be read"))
        self.shown = True
        return View("ended", lines, report)


def build_machine(
    turn: gr.Button, look: Sequence[str] = LOOK, measure: Sequence[str] = MEASURE
) -> None:
    """Lay the page out where the caller is; `turn` is the button that leads to it and back."""
    with gr.Column(elem_id="tp-machine"):
        with gr.Row():
            again = gr.Button("Measure again", size="sm", min_width=120)
            stop = gr.Button("Stop", size="sm", min_width=120, interactive=False)
            copy = gr.Button("Copy report", size="sm", min_width=120, elem_id="tp-copy")
        status = gr.HTML(padding=False)
        report = gr.HTML(padding=False)
        markdown = gr.Textbox(visible="hidden", show_label=False)
    examination = gr.State(Examination())
    outputs = [status, report, markdown, again, stop]

    def open_page(mine: Examination) -> Iterator[tuple[Any, ...]]:
        if mine.shown or mine.busy:  # the same button leads back, too
            yield tuple(gr.skip() for _ in outputs)
            return
        yield from map(_updates, mine.run(look))

    def measure_again(mine: Examination) -> Iterator[tuple[Any, ...]]:
        yield from map(_updates, mine.run(measure))

    events: dict[str, Any] = {
        "inputs": [examination],
        "outputs": outputs,
        "show_progress": "hidden",
        "concurrency_limit": None,
        "api_visibility": "undocumented",
    }
    turn.click(None, js=TURN, api_visibility="private")
    turn.click(open_page, api_name="machine", **events)
    again.click(measure_again, api_name="measure", **events)
    # Not queued: it must reach the process while the measuring event is still running.
    stop.click(Examination.stop, [examination], None, queue=False, api_name="stop_measuring")
    copy.click(None, [markdown], None, js=COPY, api_visibility="private")


def _updates(view: View) -> tuple[Any, ...]:
    """A view as values of (status, report, markdown, measure again, stop)."""
    running = view.phase == "running"
    buttons = (gr.update(interactive=not running), gr.update(interactive=running))
    if view.report is None:
        return status(view), gr.skip(), gr.skip(), *buttons
    return status(view), report_body(view.report), report_markdown(view.report), *buttons


def status(view: View) -> str:
    """What is going on, as HTML."""
    if view.phase == "ended":
        return ""
    if view.phase == "failed":
        return notice(view.lines[-1] if view.lines else "looking at the machine failed")
    if view.phase == "stopped":
        return '<p class="tp-progress">Stopped.</p>'
    shown = view.lines[-LINES_SHOWN:] or ("Looking at the machine…",)
    return f'<p class="tp-progress" role="status">{"<br>".join(map(escape, shown))}</p>'


def _end(process: subprocess.Popen[bytes]) -> None:
    """Leave no process behind, also where the browser left first."""
    if process.poll() is None:
        # Not Ctrl+C's signal, to which a child of a shell's background job may be deaf. On Windows
        # this kills, and the measuring children see their input end.
        process.terminate()
        try:
            process.wait(5)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
    if process.stderr is not None:
        process.stderr.close()

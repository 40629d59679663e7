"""One-line HTML for what happens: an answer's numbers, a problem, the engine's health.

Pure: values in, HTML out, every foreign word escaped. Knows nothing of Gradio or of the page.
"""

from __future__ import annotations

from html import escape

from local_tp.core import FinishReason
from local_tp.engine.engine import Health
from local_tp.engine.generation import Timings


def notice(text: str) -> str:
    """A problem, in the words of its error."""
    line = " ".join(text.split())
    return f'<div class="tp-notice" role="alert">{escape(line[:1].upper() + line[1:])}</div>'


def status_line(timings: Timings, context: int, reason: FinishReason | None) -> str:
    """Speed, time to the first token, tokens in and out, and how full the context is."""
    used = timings.prompt_tokens + timings.completion_tokens
    facts = [_speed(timings, reason)]
    if timings.first_token is not None:
        facts.append(f"first token {timings.first_token:.2f} s")
    facts.append(f"{timings.prompt_tokens:,} in")
    facts.append(f"{timings.completion_tokens:,} out")
    if ending := _ending(reason, used, context):
        facts.append(ending)
    listed = "".join(f"<span>{fact}</span>" for fact in facts if fact)
    return f'<div class="tp-status">{listed}{context_meter(used, context)}</div>'


def context_meter(used: int, context: int) -> str:
    """How much of the context is taken, as words and a bar."""
    share = min(used / context, 1.0)
    level = " tp-high" if share >= 0.9 else ""
    return (
        f'<span class="tp-context">context {used:,} of {context:,} ({share:.0%})'
        f'<span class="tp-meter{level}" aria-hidden="true">'
        f'<i style="width:{share:.1%}"></i></span></span>'
    )


def health_line(health: Health) -> str:
    """The engine's state, its living workers, and its requests."""
    alive = sum(worker.alive for worker in health.workers)
    words = [escape(health.state), f"{alive} of {len(health.workers)} workers"]
    if health.running:
        words.append(f"{health.running} answering")
    if health.waiting:
        words.append(f"{health.waiting} waiting")
    if not health.ok and health.detail:
        words.append(escape(" ".join(health.detail.split())))
    kind = "tp-good" if health.ok else "tp-bad"
    return (
        f'<div class="tp-health {kind}" role="status">'
        f'<i class="tp-dot" aria-hidden="true"></i><span>{" · ".join(words)}</span></div>'
    )


def _speed(timings: Timings, reason: FinishReason | None) -> str:
    if timings.decode_tps is not None:
        return f"<b>{timings.decode_tps:.1f} tokens/s</b>"
    if timings.first_token is None and reason is None:
        return "<b>reading the prompt…</b>"
    return ""


def _ending(reason: FinishReason | None, used: int, context: int) -> str:
    if reason == "cancelled":
        return "stopped"
    if reason == "length" and used >= context:
        return "the context is full: start a new chat"
    if reason == "length":
        return "cut at max tokens: raise it for longer answers"
    return ""

"""The chat page: components, and which event leads to which.

A client of an engine; what an event does is in `chat`. Knows nothing of workers or HTTP routes.
All state is the tab's own (`gr.State`), no request leaves this machine, and every event may run
for several tabs at once.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from dataclasses import replace
from html import escape
from pathlib import Path
from typing import Any

import gradio as gr
from fastapi import FastAPI

from local_tp.engine.engine import Engine
from ui import chat
from ui.chat import Conversation, Exchange, Frame, Request, Session
from ui.controls import Controls, build_controls
from ui.literal import SCRIPT as LITERAL
from ui.literal import typed
from ui.machine import STYLE as MACHINE_STYLE
from ui.machine import build_machine
from ui.plan_card import plan_card
from ui.policy import LocalOnly
from ui.presets import Preset
from ui.status import context_meter, health_line

HEALTH_SECONDS = 3.0
SEND, STOP = "Send", "Stop"
# Typing can start at once, except where focus would raise an on-screen keyboard.
FOCUS = """() => {
  if (matchMedia("(pointer: fine)").matches)
    document.querySelector("#tp-box textarea")?.focus({ preventScroll: true });
}"""
STYLE = Path(__file__).with_name("theme.css")


def mount(app: FastAPI, engine: Engine, presets: Sequence[Preset], path: str = "/") -> FastAPI:
    """Serve the page from `app` at `path`; mount it after the routes it must not hide.

    Call it where no event loop runs. Every response of `app` then carries the page's policy.
    """
    # Gradio opens event loops and never closes them, unless one is running while it builds.
    return asyncio.run(_mounted(app, engine, presets, path))


async def _mounted(app: FastAPI, engine: Engine, presets: Sequence[Preset], path: str) -> FastAPI:
    served: FastAPI = gr.mount_gradio_app(
        app,
        build_page(engine, presets),
        path=path,
        theme=theme(),
        css=MACHINE_STYLE,
        css_paths=STYLE,
        footer_links=[],
        run_history=False,
        ssr_mode=False,
        enable_monitoring=False,
    )
    served.add_middleware(LocalOnly)
    return served


def theme() -> gr.themes.Base:
    """Quiet colours and the system's own fonts, so that nothing is fetched from elsewhere."""
    return gr.themes.Default(
        primary_hue=gr.themes.colors.teal,
        secondary_hue=gr.themes.colors.slate,
        neutral_hue=gr.themes.colors.slate,
        radius_size=gr.themes.sizes.radius_lg,
        font=("system-ui", "-apple-system", "Segoe UI", "sans-serif"),
        font_mono=("ui-monospace", "Consolas", "monospace"),
    ).set(
        chatbot_text_size="15px",
        body_text_color_subdued="*neutral_500",
        block_info_text_color="*neutral_500",
    )


def build_page(engine: Engine, presets: Sequence[Preset]) -> gr.Blocks:
    """The page as Blocks, for `mount` or for a test."""
    page: gr.Blocks = gr.Blocks(analytics_enabled=False, title=f"{engine.model} · local_tp")
    with page:
        with gr.Row(elem_id="tp-header"):
            name = escape(engine.model)
            gr.HTML(f'<h1 title="{name}">{name}</h1>', elem_id="tp-title", padding=False)
            health = gr.HTML(
                lambda: health_line(engine.health()), elem_id="tp-state", padding=False
            )
            new = gr.Button("New chat", size="sm", elem_id="tp-new", min_width=90)
            turn = gr.Button("Machine", size="sm", elem_id="tp-turn", min_width=90)
        with gr.Row(elem_id="tp-talk"):
            with gr.Column(scale=3, min_width=560, elem_id="tp-main"):
                chatbot, status, box = _conversation(engine)
            with gr.Column(scale=1, min_width=340, elem_id="tp-side"):
                controls = build_controls(presets, engine.context)
                with gr.Accordion("Plan", open=True):
                    card = gr.HTML(lambda: _card(engine), padding=False)
        build_machine(turn)
        ended = _wire_chat(engine, chatbot, status, box, new, controls)
        _wire_health(engine, health, card, ended)
        for script in (FOCUS, LITERAL):
            page.load(None, js=script, api_visibility="private")
    return page


def _conversation(engine: Engine) -> tuple[gr.Chatbot, gr.HTML, gr.Textbox]:
    chatbot = gr.Chatbot(
        label="Conversation",
        show_label=False,
        elem_id="tp-chat",
        editable="user",
        buttons=["copy"],
        layout="bubble",
        placeholder="Ask something. Nothing you type leaves this computer.",
        feedback_options=None,
    )
    status = gr.HTML(_idle(engine), elem_id="tp-status", padding=False)
    box = gr.Textbox(
        label="Message",
        show_label=False,
        placeholder="Message",
        lines=1,
        max_lines=8,
        submit_btn=SEND,
        elem_id="tp-box",
    )
    return chatbot, status, box


def _wire_chat(
    engine: Engine,
    chatbot: gr.Chatbot,
    status: gr.HTML,
    box: gr.Textbox,
    new: gr.Button,
    controls: Controls,
) -> list[Any]:
    """Lead the chat's events to `chat`; the events that end with an answer are returned."""
    session, conversation = gr.State(Session()), gr.State(())
    shared = [session, conversation, *controls.inputs]
    outputs = [chatbot, conversation, status, box]

    async def send(
        text: str, mine: Session, turns: Conversation, *values: Any
    ) -> AsyncIterator[tuple[Any, ...]]:
        if not text.strip():
            yield gr.skip(), gr.skip(), gr.skip(), gr.skip()
            return
        asked = (*turns, Exchange(text))
        request = Request(asked, *controls.read(values), fallback=turns, draft=text)
        async for frame in chat.answer(engine, mine, request):
            yield _updates(replace(frame, draft="") if frame.phase == "started" else frame)

    async def retry(
        event: gr.RetryData, mine: Session, turns: Conversation, *values: Any
    ) -> AsyncIterator[tuple[Any, ...]]:
        asked = chat.retried(turns, _index(event))
        request = Request(asked, *controls.read(values), fallback=turns)
        async for frame in chat.answer(engine, mine, request):
            yield _updates(frame)

    async def edit(
        event: gr.EditData, mine: Session, turns: Conversation, *values: Any
    ) -> AsyncIterator[tuple[Any, ...]]:
        text = typed(event.value)
        asked = chat.edited(turns, _index(event), text)
        request = Request(asked, *controls.read(values), fallback=turns, draft=text)
        async for frame in chat.answer(engine, mine, request):
            yield _updates(frame)

    async def undo(event: gr.UndoData, mine: Session, turns: Conversation) -> tuple[Any, ...]:
        await mine.replace()
        kept, question = chat.undone(turns, _index(event))
        return _updates(Frame("ended", kept, _idle(engine), question))

    async def clear(mine: Session) -> tuple[Any, ...]:
        await mine.replace()
        return _updates(Frame("ended", (), _idle(engine)))

    streaming: dict[str, Any] = {
        "outputs": outputs,
        "show_progress": "hidden",
        "concurrency_limit": None,
        "api_visibility": "undocumented",
    }
    ended = [
        box.submit(send, [box, *shared], api_name="send", **streaming),
        chatbot.retry(retry, shared, api_name="retry", **streaming),
        chatbot.edit(edit, shared, api_name="edit", **streaming),
    ]
    chatbot.undo(undo, [session, conversation], api_name="undo", **streaming)
    new.click(clear, [session], api_name="clear", **streaming)
    chatbot.clear(clear, [session], api_name="clear_icon", **streaming)
    # Not queued: it must reach the engine while the answer's own event is still running.
    box.stop(Session.stop, [session], None, queue=False, api_name="stop", show_progress="hidden")
    return ended


def _wire_health(engine: Engine, health: gr.HTML, card: gr.HTML, ended: Sequence[Any]) -> None:
    """Keep both up to date: now and then, and as soon as an answer has `ended`."""
    seen = gr.State(())

    def refresh(before: tuple[str, ...]) -> tuple[Any, Any, Any]:
        now = (health_line(engine.health()), _card(engine))
        if now == before:
            return gr.skip(), gr.skip(), gr.skip()
        return now, *now

    for happens in (gr.Timer(HEALTH_SECONDS).tick, *(event.then for event in ended)):
        happens(refresh, [seen], [seen, health, card], queue=False, show_progress="hidden")


def _updates(frame: Frame) -> tuple[Any, ...]:
    """A frame as values of (chatbot, conversation, status, box)."""
    box: dict[str, Any] = {} if frame.draft is None else {"value": frame.draft}
    if frame.phase == "started":
        box |= {"submit_btn": False, "stop_btn": STOP}
    elif frame.phase == "ended":
        box |= {"submit_btn": SEND, "stop_btn": False}
    update = gr.update(**box) if box else gr.skip()
    return chat.shown(frame.conversation), frame.conversation, frame.status, update


def _index(event: gr.RetryData | gr.EditData | gr.UndoData) -> int:
    return event.index if isinstance(event.index, int) else event.index[0]


def _idle(engine: Engine) -> str:
    return f'<div class="tp-status">{context_meter(0, engine.context)}</div>'


def _card(engine: Engine) -> str:
    return plan_card(engine.plan, engine.measured, engine.health().workers)

"""The command that serves people and programs: the chat page and the API on one port."""

from __future__ import annotations

import argparse
import threading
import webbrowser
from dataclasses import replace
from typing import Any

from local_tp import settings
from local_tp.cli import options, session
from local_tp.cli.plan import with_changes

PORT = 7860


def add_commands(commands: Any) -> None:
    parser = commands.add_parser("serve", help="the chat page and the OpenAI-compatible API")
    options.add_model(parser)
    group = parser.add_argument_group("server")
    group.add_argument("--host", default="127.0.0.1", help="0.0.0.0 lets other machines in")
    group.add_argument("--port", type=int, default=PORT, help=f"0 takes any (default: {PORT})")
    group.add_argument(
        "--browser",
        action=argparse.BooleanOptionalAction,
        default=False,
        help="open the page in a browser when it is ready",
    )
    parser.set_defaults(run=run_serve)


def run_serve(parsed: argparse.Namespace) -> int:
    from local_tp.api.server import bind, create_app, serve, url

    listener = bind(parsed.host, parsed.port)
    try:
        # Gradio takes seconds to import; a port in use is said before.
        from ui.page import mount
        from ui.presets import read_presets

        planned = session.plan(parsed)
        planned = replace(planned, plan=with_changes(planned.decided))
        presets = read_presets(settings.presets() / "sampling.toml")
        with session.running(planned, session.complain) as (engine, _):
            app = mount(create_app(engine), engine, presets)
            address = url(listener)
            session.say(f"{engine.model} is ready: chat at {address}, API at {address}/v1")
            session.say("Ctrl+C stops it.")
            if parsed.browser:
                threading.Thread(target=webbrowser.open, args=(address,), daemon=True).start()
            serve(app, listener, engine.stop)
    finally:
        listener.close()
    return 0

"""The settings beside the conversation: system prompt, preset, and each sampling option.

Knows nothing of engines. Choosing a preset sets every option; moving an option by hand says that
the preset is no longer what counts. Whatever stands in a field, `read` makes of it something that
an engine takes: a slip in a setting never keeps a question from being sent.
"""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import gradio as gr

from local_tp.core import Sampling
from ui.presets import LIMITS, WHOLE, Preset

CUSTOM = "Custom"
LARGEST_SEED = 2**63 - 1
CUSTOM_DESCRIPTION = "Your own settings."


@dataclass(frozen=True, slots=True)
class Controls:
    """The components whose values go with every question, in the order `read` expects."""

    inputs: tuple[Any, ...]

    def read(self, values: Sequence[Any]) -> tuple[str, Sampling, int]:
        """(system prompt, sampling, most tokens of an answer) from the components' values."""
        system, temperature, top_p, top_k, min_p, repetition, max_tokens, seed = values
        sampling = Sampling(
            temperature=float(temperature),
            top_p=float(top_p),
            top_k=int(top_k),
            min_p=float(min_p),
            repetition_penalty=float(repetition),
            seed=seed_of(seed),
        )
        return system or "", sampling, int(max_tokens)


def build_controls(presets: Sequence[Preset], context: int) -> Controls:
    """Lay the settings out where the caller is, starting from the first preset."""
    by_name = {preset.name: preset for preset in presets}
    first = presets[0]
    preset = gr.Dropdown(
        [*by_name, CUSTOM], value=first.name, label="Sampling", info=first.description
    )
    with gr.Accordion("Settings", open=False):
        system = gr.Textbox(
            label="System prompt",
            placeholder="How the model should behave, for the whole chat",
            lines=3,
            max_lines=10,
        )
        options = _sliders(first, context)
        # Text, because a browser makes an empty number 0, which is a seed.
        seed = gr.Textbox(
            label="Seed",
            info="The same number gives the same answer. Empty or -1: another each time.",
            placeholder="random",
            max_lines=1,
        )

    def choose(name: str) -> tuple[Any, ...]:
        if name == CUSTOM:
            return gr.update(info=CUSTOM_DESCRIPTION), *(gr.skip() for _ in options)
        chosen = by_name[name]
        return gr.update(info=chosen.description), *preset_values(chosen, context)

    quick: dict[str, Any] = {
        "queue": False,
        "show_progress": "hidden",
        "api_visibility": "private",
    }
    preset.input(choose, [preset], [preset, *options], **quick)
    for option in options:
        option.input(
            lambda: gr.update(value=CUSTOM, info=CUSTOM_DESCRIPTION), None, preset, **quick
        )
    return Controls((system, *options, seed))


def seed_of(text: str | None) -> int | None:
    """The seed in a field; empty, negative, or not a whole number is none: random."""
    digits = re.fullmatch(r"\s*\+?([0-9]{1,100})\s*", text or "")
    return min(int(digits[1]), LARGEST_SEED) if digits else None


def within(value: object, low: float, high: float, otherwise: float, whole: bool) -> float:
    """A field's number as its option can have it; `otherwise` where there is none."""
    try:
        number = float(value) if isinstance(value, int | float | str) else math.nan
    except (ValueError, OverflowError):
        number = math.nan
    if math.isnan(number):
        number = otherwise
    number = min(max(number, low), high)
    return round(number) if whole else number


def preset_values(preset: Preset, context: int) -> tuple[float, ...]:
    """A preset as the sliders' values; an answer cannot be longer than the context."""
    s = preset.sampling
    limit = min(preset.max_tokens, context)
    return s.temperature, s.top_p, s.top_k, s.min_p, s.repetition_penalty, limit


def _sliders(first: Preset, context: int) -> list[gr.Slider]:
    described = (
        ("temperature", "Temperature", 0.05, "0 always takes the likeliest token."),
        ("top_p", "Top-p", 0.01, "Keep the likeliest tokens up to this share. 1: off."),
        ("top_k", "Top-k", 1, "Keep so many of the likeliest tokens. 0: off."),
        ("min_p", "Min-p", 0.01, "Drop tokens below this share of the likeliest. 0: off."),
        ("repetition_penalty", "Repetition penalty", 0.01, "Above 1 avoids repeats. 1: off."),
        ("max_tokens", "Max tokens", 1, "The longest an answer may be."),
    )
    sliders = []
    for (option, label, step, info), value in zip(
        described, preset_values(first, context), strict=True
    ):
        low, high = LIMITS[option]
        if option == "max_tokens":
            high = min(high, context)
        slider = gr.Slider(low, high, value, step=step, label=label, info=info)
        # Gradio's own answers a number out of bounds with an error, and the question is not sent.
        slider.preprocess = partial(  # type: ignore[method-assign]
            within, low=low, high=high, otherwise=value, whole=option in WHOLE
        )
        sliders.append(slider)
    return sliders

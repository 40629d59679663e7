"""Options that several commands share, each defined once, and the goal that they make.

Knows nothing of models or plans but their files. An option that is not given is `None`, so that a
saved plan, and then the planner, can say it.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from dataclasses import replace
from typing import TypeVar, get_args

from local_tp.cli.saved import Saved, devices_of
from local_tp.core import (
    Device,
    Dtype,
    Goal,
    KvFormat,
    Objective,
    Offload,
    Rig,
    Sampling,
    Split,
)
from local_tp.errors import InputError
from local_tp.hardware.devices import default_devices, resolve_devices
from local_tp.plan.predict import worker_threads

T = TypeVar("T")
MIB = 1024 * 1024
MOST_THREADS = 256


def add_model(
    parser: argparse.ArgumentParser, positional: bool = False, streams: int = Goal().streams
) -> None:
    """Which model, on which devices, cut how. Defaults are those of `Goal` but for `streams`."""
    parser.set_defaults(usual_streams=streams)
    group = parser.add_argument_group("model")
    if positional:
        group.add_argument("name", nargs="?", metavar="MODEL", help="the same as --model")
    group.add_argument(
        "--model",
        metavar="NAME|PATH",
        help="a GGUF file, a Hugging Face folder, or a name from `local-tp models` "
        "(default: starter, fetched on first use)",
    )
    group = parser.add_argument_group(
        "placement", "whatever is left out the planner chooses, and says why"
    )
    group.add_argument(
        "--objective",
        choices=get_args(Objective),
        help="what counts: one user's waiting (chat), everybody's tokens together (serve), the "
        "longest context that fits (context), the best format at a speed (quality); default: chat",
    )
    group.add_argument(
        "--floor",
        type=float,
        metavar="TOKENS/S",
        help="the speed that --objective quality must keep (default: 10)",
    )
    group.add_argument(
        "--devices",
        metavar="A,B,…",
        help="devices by name from `local-tp probe`, one worker each; one may appear several "
        "times, as in cpu,cpu",
    )
    group.add_argument(
        "--split", choices=("auto", *get_args(Split)), default="auto", help="how to cut the model"
    )
    group.add_argument(
        "--shares",
        metavar="3,2,1",
        help="how much each device takes, as a ratio in the order of --devices",
    )
    group.add_argument(
        "--offload",
        choices=get_args(Offload),
        help="what does not fit on the cards: computed on the processor (cpu), copied to a card "
        "for each step (stream), refused (none), or whichever is faster (auto, the default)",
    )
    group.add_argument(
        "--reserve",
        action="append",
        default=[],
        metavar="DEVICE=MiB",
        help="memory to leave free on a device; may be given several times",
    )
    group.add_argument(
        "--context", type=int, metavar="TOKENS", help="most tokens of one conversation"
    )
    group.add_argument(
        "--streams", type=int, metavar="N", help=f"requests at once (default: {streams})"
    )
    group.add_argument(
        "--format",
        dest="dtype",
        type=_dtype,
        metavar="{as-stored,float32,bfloat16,float16,int8,stored}",
        help="of weights: as-stored, the default, keeps quantized ones packed where the device "
        "can; the others convert everything to that type; stored (plan only) is exactly the "
        "file's, also where this version has no kernel for it",
    )
    group.add_argument("--dtype", dest="dtype", type=_dtype, help=argparse.SUPPRESS)  # its old name
    group.add_argument(
        "--kv-format",
        choices=get_args(KvFormat),
        help="of what is remembered of a text (default: what the devices are fastest in)",
    )
    group.add_argument(
        "--placement",
        metavar="FILE",
        help="a plan from `local-tp plan --save`, or placements that you wrote; options beside it "
        "go before what it says",
    )
    group.add_argument(
        "--threads",
        type=int,
        metavar="N",
        help="threads of each CPU worker (default: the cores, shared out)",
    )


def add_json(parser: argparse.ArgumentParser, default: bool | str = False) -> None:
    parser.add_argument(
        "--json", action="store_true", default=default, help="print JSON on standard output"
    )


def add_sampling(parser: argparse.ArgumentParser) -> None:
    """How to choose tokens, and when to stop."""
    group = parser.add_argument_group("sampling")
    defaults = Sampling()
    group.add_argument("--temperature", type=float, default=0.7, help="0 is greedy (default: 0.7)")
    group.add_argument("--top-k", type=int, default=defaults.top_k, help="0 is off")
    group.add_argument("--top-p", type=float, default=0.95, help="1 is off (default: 0.95)")
    group.add_argument("--min-p", type=float, default=defaults.min_p, help="0 is off")
    group.add_argument("--repetition-penalty", type=float, default=defaults.repetition_penalty)
    group.add_argument("--presence-penalty", type=float, default=defaults.presence_penalty)
    group.add_argument("--frequency-penalty", type=float, default=defaults.frequency_penalty)
    group.add_argument("--seed", type=int, help="the same seed gives the same text")
    group.add_argument("--max-tokens", type=int, metavar="N", help="most tokens of an answer")
    group.add_argument("--stop", action="append", default=[], metavar="TEXT", help="stop there")


def sampling(parsed: argparse.Namespace) -> Sampling:
    """The sampling that the options ask for. Raises `InputError` for values out of range.

    That goes for when to stop, too, so that it is said before a worker starts.
    """
    checks = (
        ("--temperature", parsed.temperature, 0.0, 100.0),
        ("--top-k", parsed.top_k, 0, 1 << 31),
        ("--top-p", parsed.top_p, 0.0, 1.0),
        ("--min-p", parsed.min_p, 0.0, 1.0),
        ("--repetition-penalty", parsed.repetition_penalty, 0.01, 100.0),
        ("--presence-penalty", parsed.presence_penalty, -100.0, 100.0),
        ("--frequency-penalty", parsed.frequency_penalty, -100.0, 100.0),
    )
    for name, value, least, most in checks:
        if not least <= value <= most:
            raise InputError(f"{name} {value} is out of range: give {least} to {most}")
    if parsed.max_tokens is not None and parsed.max_tokens < 1:
        raise InputError(f"--max-tokens {parsed.max_tokens} answers nothing: give 1 or more")
    if "" in parsed.stop:
        raise InputError("an empty --stop would stop every answer at once: leave it out")
    return Sampling(
        temperature=parsed.temperature,
        top_k=parsed.top_k,
        top_p=parsed.top_p,
        min_p=parsed.min_p,
        repetition_penalty=parsed.repetition_penalty,
        presence_penalty=parsed.presence_penalty,
        frequency_penalty=parsed.frequency_penalty,
        seed=parsed.seed,
    )


def goal(parsed: argparse.Namespace, rig: Rig, saved: Saved | None = None) -> Goal:
    """The goal that the options ask for, with device names resolved.

    What a saved plan says stands where no option does. Raises `InputError` for what no planner
    can do.
    """
    base = saved.goal if saved else Goal(streams=parsed.usual_streams)
    objective = _given(parsed.objective, base.objective)
    longest = parsed.objective == "context"  # asked for now: what a saved plan got is no limit
    devices = _devices(parsed, rig, saved)
    split: Split | None = None if parsed.split == "auto" else parsed.split
    if split == "single" and not devices and default_devices(rig)[0] == "cpu":
        devices = ("cpu",)
    made = replace(
        base,
        devices=devices,
        split=split,
        context=_given(parsed.context, None if longest else base.context),
        streams=_given(parsed.streams, base.streams),
        dtype=_given(parsed.dtype, base.dtype),
        kv_format=_given(parsed.kv_format, base.kv_format),
        reserve=base.reserve | _reserve(parsed.reserve, rig),
        objective=objective,
        floor=_given(parsed.floor, base.floor),
        offload=_given(parsed.offload, base.offload),
        shares=() if parsed.shares is None else _shares(parsed.shares),
    )
    _check(made, parsed)
    return made


def _check(made: Goal, parsed: argparse.Namespace) -> None:
    if made.streams < 1:
        raise InputError(f"--streams {made.streams} serves nobody: give 1 or more")
    if parsed.floor is not None and made.objective != "quality":
        raise InputError("--floor is the speed that --objective quality keeps: add that option")
    if made.floor is not None and not 0 < made.floor < float("inf"):
        raise InputError(f"--floor {made.floor} is no speed: give tokens a second, as in 10")
    if parsed.shares is None:
        return
    if not made.devices:
        raise InputError("--shares is in the order of --devices: add that option")
    if len(made.shares) != len(made.devices):
        raise InputError(
            f"--shares has {len(made.shares)} numbers for {len(made.devices)} devices: give one "
            "for each"
        )


def _devices(parsed: argparse.Namespace, rig: Rig, saved: Saved | None) -> tuple[str, ...]:
    """Ids of the devices that a person or a saved plan named; none leave it to the planner."""
    if saved is not None:
        if parsed.devices is not None or parsed.split != "auto" or parsed.shares is not None:
            raise InputError(
                "--placement says devices, split and shares itself: leave out the others"
            )
        return tuple(device.id for device in devices_of(saved, rig))[: len(saved.placements)]
    if parsed.devices is None:
        return ()
    return tuple(device.id for device in resolve_devices(parsed.devices.split(","), rig))


def _given(option: T | None, otherwise: T) -> T:
    return otherwise if option is None else option


def _dtype(word: str) -> Dtype:
    """A format by the name that people give it. Raises `ValueError`, which argparse explains."""
    names: dict[str, Dtype] = {"as-stored": "auto", **{name: name for name in get_args(Dtype)}}
    if word not in names:
        raise argparse.ArgumentTypeError(
            f"{word!r} is no format: choose from as-stored, float32, bfloat16, float16, int8, "
            "stored"
        )
    return names[word]


def _shares(text: str) -> tuple[float, ...]:
    try:
        shares = tuple(float(part) for part in text.split(","))
    except ValueError:
        shares = ()
    if not shares or not all(0 <= share < float("inf") for share in shares) or not sum(shares):
        raise InputError(f"--shares {text}: write a ratio, as in 3,2,1")
    return shares


def threads(parsed: argparse.Namespace, ranks: Sequence[Device], cores: int) -> int:
    """Threads for each CPU worker: as many as a plan counts on, unless a person says."""
    if parsed.threads is not None:
        if not 1 <= parsed.threads <= MOST_THREADS:
            raise InputError(
                f"--threads {parsed.threads} is out of range: give 1 to {MOST_THREADS}"
            )
        return int(parsed.threads)
    return worker_threads(cores, sum(device.kind == "cpu" for device in ranks))


def _reserve(entries: list[str], rig: Rig) -> dict[str, int]:
    reserve = {}
    for entry in entries:
        name, _, amount = entry.partition("=")
        if not amount.isdecimal():
            raise InputError(f"--reserve {entry}: write DEVICE=MiB, as in cpu=2048")
        (device,) = resolve_devices([name], rig)
        reserve[device.id] = int(amount) * MIB
    return reserve

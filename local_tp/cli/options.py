"""Options that several commands share, each defined once, and the goal that they make."""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import get_args

from local_tp import codec
from local_tp.core import Device, Dtype, Goal, Placement, Rig, Sampling, Split
from local_tp.errors import InputError, PlanError
from local_tp.hardware.devices import default_devices, resolve_devices

MIB = 1024 * 1024
MOST_THREADS = 256


def add_model(parser: argparse.ArgumentParser) -> None:
    """Which model, on which devices, cut how."""
    group = parser.add_argument_group("model and placement")
    group.add_argument(
        "--model",
        default="starter",
        metavar="NAME|PATH",
        help="a GGUF file, a Hugging Face folder, or a name from `local-tp models` "
        "(default: starter, fetched on first use)",
    )
    group.add_argument(
        "--devices",
        metavar="A,B,…",
        help="devices by name from `local-tp probe`, one worker each; one may appear several "
        "times, as in cpu,cpu (default: every NVIDIA card, else two workers on the CPU)",
    )
    group.add_argument(
        "--split",
        choices=("auto", *get_args(Split)),
        default="auto",
        help="how to cut the model (default: auto, which says why)",
    )
    group.add_argument(
        "--dtype",
        choices=get_args(Dtype),
        default="auto",
        help="auto keeps quantized weights packed and multiplies in 16 bits; the others unpack "
        "everything to that type",
    )
    group.add_argument(
        "--context", type=int, metavar="TOKENS", help="most tokens of one conversation"
    )
    group.add_argument(
        "--streams", type=int, default=4, metavar="N", help="requests at once (default: 4)"
    )
    group.add_argument(
        "--reserve",
        action="append",
        default=[],
        metavar="DEVICE=MiB",
        help="memory to leave free on a device; may be given several times",
    )
    group.add_argument(
        "--placement", metavar="FILE", help="an explicit plan as JSON, as `local-tp plan` prints it"
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


def goal(parsed: argparse.Namespace, devices: tuple[Device, ...], rig: Rig) -> Goal:
    """The goal that the options ask for, with device names resolved."""
    if parsed.streams < 1:
        raise InputError(f"--streams {parsed.streams} serves nobody: give 1 or more")
    return Goal(
        devices=tuple(device.id for device in devices),
        split=None if parsed.split == "auto" else parsed.split,
        context=parsed.context,
        streams=parsed.streams,
        dtype=parsed.dtype,
        reserve=_reserve(parsed.reserve, rig),
    )


def devices(
    parsed: argparse.Namespace, rig: Rig, placements: tuple[Placement, ...] | None
) -> tuple[Device, ...]:
    """One device a rank: those of the placement, those named, or the machine's own."""
    if placements is not None:
        if parsed.devices is not None or parsed.split != "auto":
            raise InputError("--placement says devices and split itself: leave out the other two")
        return resolve_devices([p.device for p in placements], rig)
    if parsed.devices is None:
        found = resolve_devices(default_devices(rig), rig)
        return found[:1] if parsed.split == "single" else found
    return resolve_devices(parsed.devices.split(","), rig)


def placements(parsed: argparse.Namespace) -> tuple[Placement, ...] | None:
    """The ranks that `--placement FILE` lists, or `None` without one."""
    if parsed.placement is None:
        return None
    path = Path(parsed.placement)
    try:
        data = json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise PlanError(f"cannot read the placement {path}: {error.strerror}") from error
    except (ValueError, RecursionError) as error:
        raise PlanError(
            f"{path} is not JSON ({error}): write one with `local-tp plan --json`"
        ) from error
    if isinstance(data, dict):
        data = data.get("placements", data)
    if not isinstance(data, list) or not data:
        raise PlanError(f"{path} holds no placements: write one with `local-tp plan --json`")
    return tuple(_placement(path, number, entry) for number, entry in enumerate(data))


def threads(parsed: argparse.Namespace, ranks: tuple[Device, ...], cores: int) -> int:
    """Threads for each CPU worker: the cores shared out, one at least.

    Of more than two cores one is left to everything else that runs: threads that wait for one
    another are only as fast as the one that has to share its core.
    """
    if parsed.threads is not None:
        if not 1 <= parsed.threads <= MOST_THREADS:
            raise InputError(
                f"--threads {parsed.threads} is out of range: give 1 to {MOST_THREADS}"
            )
        return int(parsed.threads)
    usable = cores - 1 if cores > 2 else cores
    return max(1, usable // max(1, sum(device.kind == "cpu" for device in ranks)))


def _placement(path: Path, number: int, entry: object) -> Placement:
    try:
        return codec.decode(Placement, entry)
    except InputError as error:
        raise PlanError(f"{path}: placements[{number}]: {error}") from error


def _reserve(entries: list[str], rig: Rig) -> dict[str, int]:
    reserve = {}
    for entry in entries:
        name, _, amount = entry.partition("=")
        if not amount.isdecimal():
            raise InputError(f"--reserve {entry}: write DEVICE=MiB, as in cpu=2048")
        (device,) = resolve_devices([name], rig)
        reserve[device.id] = int(amount) * MIB
    return reserve

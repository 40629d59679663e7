"""What would end a run that a plan's arithmetic allows: found before any process starts.

Pure: facts of a machine, a plan and the model's files in, errors as values out; nothing is read
here. Each error is one line with what to do. What can be replaced is replaced instead, and said.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

from local_tp.checkpoint.families import FAMILIES, runs
from local_tp.core import Device, Goal, KvFormat, ModelSpec, Plan, Rig, TensorInfo
from local_tp.errors import CheckpointError, DeviceError, DoesNotFit, InputError, PlanError
from local_tp.hardware.devices import short_names, why_left_out
from local_tp.hardware.rules.software import cpu_only, driver_age, no_kernels
from local_tp.plan.explain import every_placement
from local_tp.plan.layout import Parameter, parameters
from local_tp.plan.memory import host_bytes_of_plan

MIB = 1 << 20
BFLOAT16_FROM = (8, 0)  # compute capability whose units multiply bfloat16
NCCL_SHARED = 32 * MIB  # of /dev/shm a rank without a direct way: a guess on the safe side

Sizes = Mapping[str, int | None]  # bytes of each file of a model now, None where it is gone


def obstacles(
    spec: ModelSpec, rig: Rig, plan: Plan, files: Sizes, own: bool = True
) -> Iterator[InputError]:
    """Every reason why this plan cannot run on that machine now, the plainest first.

    Of a machine that is not our `own` nothing is expected to be installed yet.
    """
    used = used_devices(rig, plan)
    yield from cannot_read(spec)
    yield from files_changed(spec, files)
    yield from unusable_devices(rig, used)
    if own or rig.software.torch is not None:
        yield from software_lacks(rig, used)
    yield from formats_lack(plan, used)
    yield from host_memory_short(rig, plan)
    yield from shared_memory_short(rig, plan, used)


def replaced(goal: Goal, devices: Sequence[Device]) -> tuple[Goal, tuple[str, ...]]:
    """The goal with 16-bit formats that all these devices have, and what was replaced.

    Only what a person left open is replaced. A card of unknown capability is taken at its word.
    """
    old = [d for d in devices if _lacks_bfloat16(d)]
    if not old or goal.dtype != "auto":
        return goal, ()
    named = ", ".join(dict.fromkeys(f"{d.id} ({d.name})" for d in old))
    kv: KvFormat = goal.kv_format or "float16"
    note = f"float16 instead of bfloat16, which {named} has no units for"
    return replace(goal, dtype="float16", kv_format=kv), (note,)


def used_devices(rig: Rig, plan: Plan) -> tuple[Device, ...]:
    """The devices of a plan and its copies, each once, in rank order."""
    by_id = {device.id: device for device in rig.devices}
    ids = [p.device for p in plan.placements]
    ids += [device for copy in plan.copies for device in copy]
    return tuple(by_id[device] for device in dict.fromkeys(ids))


def cannot_read(spec: ModelSpec) -> Iterator[InputError]:
    """A family without a decoder, or a shape without weights."""
    if not runs(spec.family):
        known = ", ".join(sorted(family.name for family in FAMILIES))
        yield CheckpointError(
            f"{spec.name} is of the family {spec.family}, which this version plans and cannot run "
            f"yet: it runs {known}"
        )
    elif not spec.path:
        yield CheckpointError(
            f"{spec.name} is known here by its shape alone: download a GGUF file or a Hugging "
            "Face folder of it and name that with --model"
        )


def files_changed(spec: ModelSpec, files: Sizes) -> Iterator[InputError]:
    """A file of the model that is gone, or shorter than its header says."""
    needed: Counter[str] = Counter()
    for info in _pieces(spec):
        needed[info.file] = max(needed[info.file], info.offset + info.nbytes)
    for file, size in files.items():
        if size is None:
            yield CheckpointError(f"{file} is not there any more: name the model's new place")
        elif size < needed[file]:
            yield CheckpointError(
                f"{file} has {size:,} bytes and its header speaks of {needed[file]:,}: the file "
                "is cut short, download it again"
            )


def unusable_devices(rig: Rig, used: Sequence[Device]) -> Iterator[InputError]:
    """Devices that no worker can open."""
    for device in used:
        if why := why_left_out(device):
            yield DeviceError(f"{device.id} ({device.name}) cannot be used: {why}")
    kinds = sorted({d.kind for d in used if d.kind != "cpu"})
    if len(kinds) > 1:
        yield DeviceError(
            f"{' and '.join(kinds)} cards cannot run in one plan, since a torch is built for one "
            f"of them: name the others with --devices {_of_kind(rig, kinds[0])}"
        )


def software_lacks(rig: Rig, used: Sequence[Device]) -> Iterator[InputError]:
    """A driver, or a build of torch, that does not serve a card of the plan."""
    ids = {device.id for device in used}
    if rig.software.torch is None:
        yield DeviceError("torch is not installed: run ./start.sh once, which installs it")
        return
    for rule in (cpu_only, driver_age, no_kernels):
        for finding in rule(rig):
            if finding.severity == "error" and ids & set(finding.devices):
                yield DeviceError(
                    f"{finding.evidence}: {finding.remedy}; --devices cpu does without"
                )
                break


def formats_lack(plan: Plan, used: Sequence[Device]) -> Iterator[InputError]:
    """A format of weights or cache that a card of the plan cannot multiply."""
    for option, value in (("--format", plan.goal.dtype), ("--kv-format", plan.goal.kv_format)):
        if value != "bfloat16":
            continue
        for device in used:
            if _lacks_bfloat16(device):
                have = "{}.{}".format(*(device.capability or (0, 0)))
                yield PlanError(
                    f"{device.id} ({device.name}, compute capability {have}) has no bfloat16, "
                    f"which begins at 8.0: give {option} float16"
                )


def stored_alone(plan: Plan) -> Iterator[InputError]:
    """Weights exactly as in the file, which can be planned and is not what would run."""
    if plan.goal.dtype == "stored":
        yield PlanError(
            "--format stored is for planning: this version has no kernels for every stored "
            "format, leave it out to run"
        )


def host_memory_short(rig: Rig, plan: Plan) -> Iterator[InputError]:
    """The PC's memory while loading: what stays there, and blocks being converted."""
    processor = next((d for d in rig.devices if d.kind == "cpu"), None)
    if processor is None:
        return
    beside = host_bytes_of_plan(every_placement(plan), loading=True)
    kept = sum(p.memory.total for p in every_placement(plan) if p.device == processor.id)
    limit = rig.host.memory_limit
    have = min(processor.free, limit) if limit is not None else processor.free
    if beside + kept > have:
        over = -(-(beside + kept - have) // MIB)
        yield DoesNotFit(
            f"{processor.id} while loading",
            beside + kept,
            have,
            f"close programs that use {over:,} MiB, or use fewer workers with --devices",
        )


def shared_memory_short(rig: Rig, plan: Plan, used: Sequence[Device]) -> Iterator[InputError]:
    """NCCL keeps its buffers in /dev/shm, which containers make small."""
    have = rig.host.shared_memory
    if plan.transport != "nccl" or have is None:
        return
    need = NCCL_SHARED * len(used)
    if need > have:
        yield DoesNotFit(
            "/dev/shm",
            need,
            have,
            "start the container with --shm-size=1g or --ipc=host",
        )


def format_notes(spec: ModelSpec, rig: Rig, plan: Plan) -> Iterator[str]:
    """Which matrices take another form than a person would expect, and why."""
    if plan.goal.dtype not in ("auto", "stored"):
        return
    kinds = {device.id: device.kind for device in rig.devices}
    counts: Counter[tuple[str, str]] = Counter()
    slow: list[str] = []
    for p in plan.placements:
        held = parameters(spec, p, plan.goal.dtype, kinds[p.device])
        counts.update((_taken(found), found.reason) for found in held if found.reason)
        if packed := sum(bool(found.stored) for found in held if kinds[p.device] != "cpu"):
            slow.append(f"{packed:,} on {p.device}")
    for (form, reason), count in counts.items():
        yield f"{count:,} matrices take {form}: {reason}"
    if slow and spec.path:
        yield (
            f"packed matrices ({', '.join(slow)}) are unpacked for every product in this version: "
            "far slower than predicted"
        )


def _taken(parameter: Parameter) -> str:
    if parameter.stored:
        return "more room than in the file"
    return "8 bits" if parameter.held == "int8" else "16 bits"


def model_files(spec: ModelSpec) -> tuple[str, ...]:
    """The files that a run will read."""
    return tuple(dict.fromkeys(info.file for info in _pieces(spec) if info.file))


def _pieces(spec: ModelSpec) -> Iterator[TensorInfo]:
    """Every tensor that is stored, scales and zeros among them."""
    for info in spec.tensors.values():
        yield info
        yield from info.parts.values()


def _lacks_bfloat16(device: Device) -> bool:
    return (
        device.kind == "cuda"
        and device.capability is not None
        and device.capability < BFLOAT16_FROM
    )


def _of_kind(rig: Rig, kind: str) -> str:
    return ",".join(name for name, device in short_names(rig).items() if device.kind == kind)

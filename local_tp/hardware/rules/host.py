"""Rules on the machine around the cards: RAM, swap, containers, the model folder's disk.

Knows nothing of cards, but for how much the largest holds. A reading of zero bytes of RAM means
that it was not read.
"""

from __future__ import annotations

from collections.abc import Iterator
from math import ceil

from local_tp.core import Rig
from local_tp.facts import Finding
from local_tp.hardware.rules.advice import GIB, Advice, discrete, duration, gib, label, rate
from local_tp.hardware.rules.link_costs import MODEL_BYTES, load_seconds

LITTLE_RAM = 8 * GIB
RAM_TOLERANCE = 0.95  # firmware keeps a little of what is fitted
MEMORY_REACHES = 0.5  # of the rated speed; sound machines measure 0.6 to 0.9
CORES_TO_FILL = 2  # cores that it takes to keep a channel busy
CHANNEL_BYTES = 8  # a 64-bit channel
DESKTOP_CHANNELS = 2
ONE_CHANNEL_REACHES = 0.9  # of one channel's speed, where two are usual but not known
SLOW_DISK = 300e6
LOW_DISK = 20 * GIB
SMALL_SHARED = 1 * GIB
CORES_LEFT = 0.75

RAM_SMALL = Advice(
    "ram-small",
    "warning",
    "{ram} of RAM{beside}",
    "a model that does not fit the cards has nowhere to go, and files are read from disk again at "
    "each load",
    "add RAM, at least as much as {wanted}; until then choose models that fit the cards whole",
)
RAM_OF_WSL = Advice(
    "ram-small",
    "warning",
    "WSL2 gives Linux {ram} of the PC's RAM{beside}",
    "a model that does not fit the cards has nowhere to go, and files are read from disk again at "
    "each load",
    "WSL2 takes half of the PC's RAM unless told otherwise: if the PC has more, write "
    "`memory={least}GB` or more under [wsl2] in .wslconfig in your Windows user folder, then run "
    "`wsl --shutdown`; only if it has not, add RAM",
)
CHANNELS = Advice(
    "ram-channels-missing",
    "warning",
    "{evidence}",
    "layers and experts held in RAM are read at this speed: each token takes up to {factor:.1f} "
    "times as long on them",
    "fill the channels in pairs (the slots that the manual names first, usually the second and "
    "fourth), reseat the modules, and see that all are counted; then switch on XMP or EXPO",
)
SWAP = Advice(
    "swap-off",
    "info",
    "no swap; {ram} of RAM",
    "when RAM runs out, while a model loads for example, the system ends a program at once "
    "instead of slowing down",
    "add a swap file of 8 GB or more, or zram",
)
CORES = Advice(
    "container-cores",
    "info",
    "{limit:g} of {cores} processor cores may be used here{where}",
    "layers and experts on the processor run with {limit:g} cores",
    "raise the limit (`--cpus` for Docker), if the processor is to do part of the work",
)
MEMORY = Advice(
    "container-memory",
    "info",
    "this container or service may hold {limit} of memory{beside}",
    "a model load that goes past it is ended by the system without a message",
    "raise the limit (`--memory` for Docker) to at least the size of your largest model",
)
SHARED = Advice(
    "container-shared-memory",
    "warning",
    "/dev/shm holds {size} here",
    "processes that share work over it stop with 'No space left on device' or a bus error",
    "start the container with `--shm-size=8g` or `--ipc=host`",
)
DISK_SLOW = Advice(
    "disk-slow",
    "warning",
    "the model folder's disk reads {speed}",
    "20 GB of weights load in {load}; an SSD of 3 GB/s takes {best}",
    "move the models to an NVMe drive and set LOCAL_TP_MODELS to the folder",
)
DISK_FULL = Advice(
    "disk-nearly-full",
    "warning",
    "{free} are free on the model folder's disk",
    "a 32B model of 4 bits takes about {model} and cannot be fetched",
    "delete models you no longer use, or set LOCAL_TP_MODELS to a folder on another disk",
)


def ram_small(rig: Rig) -> Iterator[Finding]:
    """Less RAM than any model needs, or than the largest card holds."""
    largest = max(discrete(rig), key=lambda card: card.total, default=None)
    if not rig.ram:
        return
    if largest and rig.ram < RAM_TOLERANCE * largest.total:
        beside = f" beside {label(largest)} with {gib(largest.total)}"
        wanted, least = f"the card's {gib(largest.total)}", largest.total
    elif rig.ram < RAM_TOLERANCE * LITTLE_RAM:
        beside, wanted, least = "", gib(LITTLE_RAM), LITTLE_RAM
    else:
        return
    advice = RAM_OF_WSL if rig.host.wsl else RAM_SMALL
    yield advice.finding(
        [], ram=gib(rig.ram), beside=beside, wanted=wanted, least=ceil(least / GIB)
    )


def channels(rig: Rig) -> Iterator[Finding]:
    """RAM far below its rating, or modules on one channel. Guests see no modules."""
    host = rig.host
    if host.virtual_machine or host.wsl:
        return
    measured, speed, count = host.memory_bandwidth, host.memory_speed, host.memory_channels
    one = speed * 1e6 * CHANNEL_BYTES if speed else None
    fast = measured is not None and one is not None and measured > one
    if count == 1 and host.sockets in (None, 1) and rig.cores > 1 and not fast:
        at = f" at {rate(one)}" if one else ""
        yield CHANNELS.finding([], evidence=f"one memory channel is in use{at}", factor=2)
        return
    expected = count or DESKTOP_CHANNELS
    if one is None or not measured or rig.cores < CORES_TO_FILL * expected:
        return
    rated = expected * one
    reaches = MEMORY_REACHES if count else ONE_CHANNEL_REACHES / 2
    if measured < reaches * rated:
        evidence = (
            f"RAM moves {rate(measured)}; {expected} channels at {speed} MT/s are rated "
            f"{rate(rated)}"
        )
        yield CHANNELS.finding([], evidence=evidence, factor=rated / measured)


def swap_off(rig: Rig) -> Iterator[Finding]:
    """No swap. A container has none of its own, so it says nothing there."""
    if rig.host.swap == 0 and not rig.host.container and rig.ram:
        yield SWAP.finding([], ram=gib(rig.ram))


def container_limits(rig: Rig) -> Iterator[Finding]:
    """Cores, memory and shared memory that a container or service withholds."""
    host = rig.host
    where = f" ({host.container})" if host.container else ""
    cores = host.logical_cores or host.physical_cores
    if host.core_limit and cores and host.core_limit < CORES_LEFT * cores:
        yield CORES.finding([], limit=host.core_limit, cores=cores, where=where)
    largest = max((card.total for card in discrete(rig)), default=0)
    if host.memory_limit is not None:
        below = host.memory_limit < max(largest, LITTLE_RAM)
        beside = f", the largest card {gib(largest)}" if largest else ""
        yield MEMORY.finding(
            [], "warning" if below else "info", limit=gib(host.memory_limit), beside=beside
        )
    if host.shared_memory is not None and host.shared_memory < SMALL_SHARED and host.container:
        yield SHARED.finding([], size=gib(host.shared_memory))


def disk(rig: Rig) -> Iterator[Finding]:
    """A model folder that is slow to read or has no room for a model."""
    speed, free = rig.host.disk_read, rig.host.disk_free
    if speed and speed < SLOW_DISK:
        yield DISK_SLOW.finding(
            [],
            speed=rate(speed),
            load=duration(load_seconds(speed)),
            best=duration(load_seconds(3e9)),
        )
    if free is not None and free < LOW_DISK:
        yield DISK_FULL.finding([], free=gib(free), model=gib(MODEL_BYTES))

"""A model from the hub into the person's own model folder: choose, make sure of room, fetch, check.

Knows nothing of terminals: it reports frozen facts. Nothing is fetched that the hub's own cache
has whole, and nothing at all where the disk has no room for the rest.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from local_tp import settings
from local_tp.checkpoint.hub.choice import Choice, choose
from local_tp.checkpoint.hub.client import Hub
from local_tp.checkpoint.hub.download import Wanted, download, is_whole, there
from local_tp.checkpoint.hub.found import size_text
from local_tp.checkpoint.hub.hub_cache import snapshot
from local_tp.checkpoint.hub.listing import Repository, repository
from local_tp.checkpoint.hub.names import Reference
from local_tp.errors import CheckpointError

SPARE = 64 << 20  # that a disk keeps for everybody else


@dataclass(frozen=True, slots=True)
class Progress:
    """`done` and `total` are bytes of the whole model; `fetched` are those of this call."""

    file: str
    done: int
    total: int
    fetched: int


@dataclass(frozen=True, slots=True)
class Pulled:
    """Where the model lies; `fresh` is whether anything had to be fetched."""

    path: Path
    nbytes: int
    fresh: bool


Chosen = Callable[[Repository, Choice], None]
Report = Callable[[Progress], None]


def pull(
    hub: Hub, reference: Reference, chosen: Chosen, report: Report, ask: bool = False
) -> Pulled:
    """Fetches the model that `reference` means.

    `chosen` hears once what it is, `report` how far it is, at every block; what either raises ends
    it and leaves what has arrived for the next call. Raises `CheckpointError`.
    """
    found = repository(hub, reference)
    choice = choose(found, ask)
    chosen(found, choice)
    cached = _in_cache(found, choice)
    if cached is not None:
        return Pulled(cached, choice.nbytes, fresh=False)
    folder = settings.models() / reference.owner / reference.name
    wanted = [
        Wanted(
            file,
            found.address(file),
            folder.joinpath(*file.path.parts),
            f"{reference.repository}: {file.path}",
        )
        for file in choice.files
    ]
    path = folder if choice.label is None else wanted[0].target
    try:
        if all(is_whole(one) for one in wanted):
            return Pulled(path, choice.nbytes, fresh=False)
        _check_room(folder, choice.nbytes, sum(there(one) for one in wanted), reference)
        _fetch(hub, wanted, choice.nbytes, report)
    except OSError as error:
        raise CheckpointError(
            f"cannot write {error.filename or folder} ({error.strerror or error}): free space "
            "there or set LOCAL_TP_MODELS to another folder, and start again"
        ) from error
    return Pulled(path, choice.nbytes, fresh=True)


def _fetch(hub: Hub, wanted: list[Wanted], total: int, report: Report) -> None:
    have, fetched, file = sum(there(one) for one in wanted), 0, ""

    def arrived(count: int) -> None:
        nonlocal fetched
        fetched += count
        report(Progress(file, min(have + fetched, total), total, max(0, fetched)))

    for one in wanted:
        file = str(one.file.path)
        arrived(0)
        download(hub, one, arrived)


def _in_cache(found: Repository, choice: Choice) -> Path | None:
    """The model in the hub's own cache, where that has all of it in just this version."""
    folder = snapshot(settings.hub_cache(), found.reference, found.commit)
    files = [folder.joinpath(*file.path.parts) for file in choice.files]
    for file, path in zip(choice.files, files, strict=True):
        try:
            if path.stat().st_size != file.nbytes:
                return None
        except OSError:  # it is not there
            return None
    return folder if choice.label is None else files[0]


def _check_room(folder: Path, total: int, have: int, reference: Reference) -> None:
    """Refuses what the disk has no room for. The models' folder need not exist yet."""
    place = folder
    while not place.exists():
        place = place.parent
    free, need = shutil.disk_usage(place).free, total - have + SPARE
    if free < need:
        raise CheckpointError(
            f"{reference} needs {size_text(total - have)} more on the disk of {place} and "
            f"{size_text(free)} are free: free {size_text(need - free)} there, or set "
            "LOCAL_TP_MODELS to a folder on another disk"
        )

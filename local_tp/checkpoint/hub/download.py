"""One file from the hub to the disk: resumed where it stopped, and named only once it is right.

Knows nothing of models. What has arrived lies beside its place as a `.part` that only one process
writes at a time; a file has its final name only when size and checksum agree.
"""

from __future__ import annotations

import hashlib
import os
import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO

from filelock import FileLock, Timeout

from local_tp.checkpoint.hub.client import TRIES, Answer, Hub, Interrupted
from local_tp.checkpoint.hub.listing import RemoteFile
from local_tp.checkpoint.hub.names import LOCK, PART
from local_tp.errors import CheckpointError

if TYPE_CHECKING:
    from hashlib import _Hash as Hash

LARGEST_REQUEST = 1 << 35  # the hub's network sends no more than 50 GB in one answer
_BLOCK = 1 << 20
_SMALL = 1 << 22
_RANGE = re.compile(r"bytes (\d{1,15})-(\d{1,15})/(\d{1,15}|\*)")

Arrived = Callable[[int], None]  # bytes that came; fewer than none where some were thrown away


@dataclass(frozen=True, slots=True)
class Wanted:
    """A file, its address on the hub, where it is to lie, and how errors call it."""

    file: RemoteFile
    address: str
    target: Path
    what: str

    @property
    def part(self) -> Path:
        """Where it lies until it is whole. Another version of it has another name."""
        mark = self.file.digest[:12] or "new"
        return self.target.with_name(f"{self.target.name}.{mark}{PART}")


def is_whole(wanted: Wanted) -> bool:
    """Whether the file is there already: by its size, and where it is small by its checksum."""
    file, target = wanted.file, wanted.target
    if not target.is_file() or target.stat().st_size != file.nbytes:
        return False
    if file.nbytes > _SMALL or not file.digest:
        return True  # it was given its name when its checksum was right
    digest = _digest(file)
    digest.update(target.read_bytes())
    return digest.hexdigest() == file.digest


def there(wanted: Wanted) -> int:
    """The bytes that need not be fetched again."""
    if is_whole(wanted):
        return wanted.file.nbytes
    try:
        return min(wanted.part.stat().st_size, wanted.file.nbytes)
    except FileNotFoundError:
        return 0


def download(hub: Hub, wanted: Wanted, arrived: Arrived) -> None:
    """Fetches what is missing of one file and checks all of it.

    Whatever interrupts it, Ctrl+C too, leaves a part that the next call goes on with. Raises
    `CheckpointError`; `OSError` passes through.
    """
    wanted.target.parent.mkdir(parents=True, exist_ok=True)
    lock = FileLock(wanted.part.with_name(wanted.part.name + LOCK))
    try:
        lock.acquire(timeout=0)
    except Timeout as error:
        raise CheckpointError(
            f"another process is fetching {wanted.what}: wait until it is done"
        ) from error
    try:
        if not is_whole(wanted):  # another process may have been faster
            _fetch_checked(hub, wanted, arrived)
    finally:
        lock.release()
        Path(lock.lock_file).unlink(missing_ok=True)


def _fetch_checked(hub: Hub, wanted: Wanted, arrived: Arrived) -> None:
    """A resumed file whose checksum is wrong is fetched once more, from its beginning."""
    resumed = wanted.part.exists()
    with wanted.part.open("a+b") as part:
        right = _fetched(hub, wanted, part, arrived)
        if not right and resumed:
            _empty(part, arrived)
            right = _fetched(hub, wanted, part, arrived)
        part.flush()
        os.fsync(part.fileno())
    if not right:
        wanted.part.unlink()
        raise CheckpointError(
            f"{wanted.what} arrived with another checksum than the hub states: start again, and "
            "if it happens again do not trust that copy"
        )
    wanted.part.replace(wanted.target)


def _fetched(hub: Hub, wanted: Wanted, part: BinaryIO, arrived: Arrived) -> bool:
    """Fills the part and says whether its checksum is right."""
    digest = _digest(wanted.file)
    part.seek(0, os.SEEK_END)
    if part.tell() > wanted.file.nbytes:
        _empty(part, arrived)
    _hash_beginning(part, digest)
    tried = restarts = 0
    while (position := part.seek(0, os.SEEK_END)) < wanted.file.nbytes:
        try:
            _receive(hub, wanted, part, digest, arrived)
            if part.tell() == position:
                raise Interrupted("it sends nothing")
        except _FromTheBeginning as error:
            restarts += 1
            if restarts == TRIES:
                why = Interrupted("it cannot go on with a part")
                raise hub.gave_up(why, wanted.what) from error
            _empty(part, arrived)
            digest = _digest(wanted.file)
        except Interrupted as error:
            tried = 0 if part.seek(0, os.SEEK_END) > position else tried + 1
            if tried == TRIES:
                raise hub.gave_up(error, wanted.what) from error
            hub.pause(tried, error)
    stated = wanted.file.digest
    return not stated or digest.hexdigest() == stated


class _FromTheBeginning(Exception):
    """The server sends the whole file and not the rest of it."""


def _receive(hub: Hub, wanted: Wanted, part: BinaryIO, digest: Hash, arrived: Arrived) -> None:
    """Appends what one answer brings."""
    position, size = part.tell(), wanted.file.nbytes
    end = min(size, position + LARGEST_REQUEST)
    whole = position == 0 and end == size
    span = None if whole else f"bytes={position}-{end - 1}"
    with hub.opened(wanted.address, wanted.what, span) as answer:
        _check_answer(wanted, answer, position, span is not None)
        for block in answer.body:
            position += len(block)
            if position > size:
                raise CheckpointError(_lies(wanted, f"more than {size:,}"))
            part.write(block)
            digest.update(block)
            arrived(len(block))


def _check_answer(wanted: Wanted, answer: Answer, position: int, ranged: bool) -> None:
    """Refuses a size that is not the listed one, before a byte of it is written."""
    size = wanted.file.nbytes
    stated: int | None = None
    if answer.status == 206:
        match = _RANGE.fullmatch(answer.headers.get("Content-Range", ""))
        if match is None or int(match[1]) != position:
            raise CheckpointError(f"the server sends another part of {wanted.what} than was asked")
        stated = None if match[3] == "*" else int(match[3])
    elif ranged and position:
        raise _FromTheBeginning
    else:
        length = answer.headers.get("Content-Length", "")
        stated = int(length) if length.isdecimal() and len(length) < 16 else None
    if stated is not None and stated != size:
        raise CheckpointError(_lies(wanted, f"{stated:,}"))


def _lies(wanted: Wanted, stated: str) -> str:
    return (
        f"{wanted.what} has {wanted.file.nbytes:,} bytes in the listing and {stated} when it is "
        "sent: it is refused"
    )


def _digest(file: RemoteFile) -> Hash:
    """SHA-256, or git's checksum of a blob: SHA-1 (or SHA-256) over its size and content."""
    if file.sha256 is not None or file.blob is None:
        return hashlib.sha256()
    new = hashlib.sha1 if len(file.blob) == 40 else hashlib.sha256
    return new(b"blob %d\0" % file.nbytes)


def _hash_beginning(part: BinaryIO, digest: Hash) -> None:
    part.seek(0)
    while block := part.read(_BLOCK):
        digest.update(block)


def _empty(part: BinaryIO, arrived: Arrived) -> None:
    arrived(-part.seek(0, os.SEEK_END))
    part.truncate(0)

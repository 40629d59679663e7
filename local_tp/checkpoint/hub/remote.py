"""A model of the hub as a folder whose headers are real and whose weights are holes.

Knows nothing of what is in a header. Only the beginnings of files are fetched, by range; what reads
a model from disk then reads one that is not here. Fetched bytes are bounded for each file.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import BinaryIO

from local_tp.checkpoint.gguf_header import header_of
from local_tp.checkpoint.hub.choice import Choice
from local_tp.checkpoint.hub.client import Hub, Interrupted
from local_tp.checkpoint.hub.inspection import LARGEST_SAFETENSORS_HEADER
from local_tp.checkpoint.hub.listing import RemoteFile, Repository
from local_tp.checkpoint.hub.names import INDEX
from local_tp.errors import CheckpointError

LARGEST_GGUF_HEADER = 1 << 26
_FIRST, _LARGEST_REQUEST = 1 << 17, 1 << 22
_AT_ONCE = 6
_SMALL = {
    "config.json": 1 << 20,
    "tokenizer_config.json": 1 << 24,
    "chat_template.jinja": 1 << 20,
    "chat_template.json": 1 << 20,
    INDEX: 1 << 24,
}


@contextmanager
def skeleton(hub: Hub, found: Repository, choice: Choice) -> Iterator[Path]:
    """The path of a model that is as good as the real one for reading its headers.

    It is gone when the block ends. Raises `CheckpointError`.
    """
    with TemporaryDirectory(prefix="local-tp-") as made:
        folder = Path(made) / found.reference.name
        folder.mkdir()
        with ThreadPoolExecutor(_AT_ONCE) as pool:
            jobs = [pool.submit(_write, hub, found, folder, file) for file in choice.files]
            try:
                for job in jobs:
                    job.result()
            except OSError as error:
                raise CheckpointError(
                    f"cannot write {error.filename or folder} ({error.strerror or error}): free "
                    "space for temporary files"
                ) from error
            finally:
                for job in jobs:
                    job.cancel()
        yield folder if choice.label is None else folder.joinpath(*choice.files[0].path.parts)


def _write(hub: Hub, found: Repository, folder: Path, file: RemoteFile) -> None:
    """One file: whole where it is small and needed, its header where it holds weights."""
    name, target = file.path.name, folder.joinpath(*file.path.parts)
    what = f"{found.reference.repository}: {file.path}"
    if file.path.suffix in (".gguf", ".safetensors"):
        target.parent.mkdir(parents=True, exist_ok=True)
        with target.open("w+b") as kept:
            beginning = _Beginning(hub, found.address(file), file.nbytes, what, kept)
            if file.path.suffix == ".gguf":
                header_of(beginning, what, file.nbytes)
            else:
                _safetensors_header(beginning, what, file.nbytes)
            _stretch(kept, file.nbytes)
    elif name in _SMALL:
        data, _ = hub.bytes(found.address(file), _SMALL[name], what)
        target.write_bytes(data)


def _safetensors_header(beginning: _Beginning, what: str, size: int) -> None:
    length = int.from_bytes(beginning.read(8), "little")
    if not 2 <= length <= min(LARGEST_SAFETENSORS_HEADER, size - 8):
        raise CheckpointError(f"{what} claims a header of {length:,} bytes: it is refused")
    beginning.read(length)


class _Beginning:
    """Reads a remote file forward, fetching in growing requests, and keeps what came in a file."""

    def __init__(self, hub: Hub, address: str, size: int, what: str, kept: BinaryIO) -> None:
        self._hub, self._address, self._size, self._what = hub, address, size, what
        self._kept, self._fetched, self._position = kept, 0, 0
        self._request = _FIRST

    def read(self, count: int, /) -> bytes:
        """The next `count` bytes, or those there are."""
        end = min(self._position + count, self._size)
        if end > LARGEST_GGUF_HEADER:
            raise CheckpointError(
                f"{self._what} has a header of more than {LARGEST_GGUF_HEADER:,} bytes: it is "
                "refused"
            )
        while self._fetched < end:
            stop = min(max(end, self._fetched + self._request), self._size)
            self._hub.patiently(partial(self._fetch, stop), self._what)
            self._request = min(2 * self._request, _LARGEST_REQUEST)
        self._kept.seek(self._position)
        data = self._kept.read(end - self._position)
        self._position = end
        return data

    def _fetch(self, stop: int) -> None:
        span = f"bytes={self._fetched}-{stop - 1}"
        with self._hub.opened(self._address, self._what, span) as answer:
            if answer.status != 206:
                raise CheckpointError(
                    f"{self._what} can only be had whole from {self._hub.endpoint}: fetch it with "
                    "`local-tp models pull` and inspect it then"
                )
            stated = answer.headers.get("Content-Range", "")
            if stated != f"bytes {self._fetched}-{stop - 1}/{self._size}":
                raise CheckpointError(
                    f"{self._what} has {self._size:,} bytes in the listing and the server sends "
                    f"{stated or 'another part'!r}: it is refused"
                )
            data = bytearray()
            for block in answer.body:
                data += block
                if len(data) > stop - self._fetched:
                    raise CheckpointError(f"{self._what} is sent longer than asked: it is refused")
        if len(data) < stop - self._fetched:
            raise Interrupted("it ends too early")
        self._kept.seek(self._fetched)
        self._kept.write(data)
        self._fetched = stop


def _stretch(file: BinaryIO, size: int) -> None:
    """Makes a file as long as the real one, without taking disk for what is not written."""
    if sys.platform == "win32":  # its files have no holes unless they are asked to
        import ctypes
        import msvcrt

        kernel = ctypes.WinDLL("kernel32")
        handle = ctypes.c_void_p(msvcrt.get_osfhandle(file.fileno()))
        set_sparse, returned = 0x900C4, ctypes.c_ulong()
        kernel.DeviceIoControl(handle, set_sparse, None, 0, None, 0, ctypes.byref(returned), None)
    file.truncate(size)

"""What the hub says of a repository: its commit, licence and files, with sizes and checksums.

Knows nothing of which files make up a model. Answers are bounded in bytes, pages and files, and
every value is checked; what is not a file that a model could need is left out at once.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import PurePosixPath
from urllib.parse import quote

import httpx

from local_tp.checkpoint.fields import Fields, shown
from local_tp.checkpoint.hub.client import Hub
from local_tp.checkpoint.hub.names import WEIGHTS, Reference, one_line, safe_path
from local_tp.errors import CheckpointError

PICKLES = (".bin", ".pt", ".pth", ".ckpt", ".pkl", ".pickle", ".h5", ".msgpack")
LARGEST_FILE = 1 << 42
_BESIDE = (".json", ".jinja", ".model", ".tiktoken", ".md")
_LARGEST_ANSWER = 1 << 23
_MOST_PAGES = 40
_MOST_FILES = 20_000
_COMMIT = re.compile(r"[0-9a-f]{40}|[0-9a-f]{64}")
_SHA256 = re.compile(r"[0-9a-f]{64}")
_NEXT = re.compile(r'<([^<>]+)>\s*;\s*rel="?next"?')


@dataclass(frozen=True, slots=True)
class RemoteFile:
    """A file of a repository: `sha256` for large ones, git's own `blob` checksum for small ones."""

    path: PurePosixPath
    nbytes: int
    sha256: str | None = None
    blob: str | None = None

    @property
    def digest(self) -> str:
        """What tells its content from any other's, or nothing."""
        return self.sha256 or self.blob or ""


@dataclass(frozen=True, slots=True)
class Repository:
    """A repository at one commit. `pickles` are weights that are never fetched."""

    reference: Reference
    commit: str
    licence: str | None
    gated: bool
    files: tuple[RemoteFile, ...]
    pickles: tuple[str, ...] = ()

    def address(self, file: RemoteFile) -> str:
        """The path of a file's content on the hub."""
        where = f"/{self.reference.repository}/resolve/{self.commit}"
        return f"{where}/{quote(str(file.path))}"


def repository(hub: Hub, reference: Reference) -> Repository:
    """Asks for a repository and all its files. Raises `CheckpointError`."""
    name = reference.repository
    answer, _ = hub.json(f"/api/models/{name}/revision/main", _LARGEST_ANSWER, name)
    if not isinstance(answer, dict):
        raise CheckpointError(f"{hub.endpoint} does not say what {name} is: check HF_ENDPOINT")
    info = Fields(f"what the hub says of {name}", answer)
    commit = info.text("sha") or ""
    if _COMMIT.fullmatch(commit) is None:
        raise info.wrong("sha", "the name of a commit")
    files, pickles = [], []
    for entry in _entries(hub, name, commit):
        path = entry.text("path") or ""
        if path.lower().endswith(PICKLES):
            pickles.append(path)
        elif _wanted(path):
            files.append(_file(entry, path))
    return Repository(
        reference,
        commit,
        _licence(info),
        answer.get("gated") not in (None, False),
        tuple(files),
        tuple(pickles),
    )


def _wanted(path: str) -> bool:
    """Weights anywhere; what lies beside them only at the top, and nothing hidden."""
    if path.startswith(".") and "/" not in path:
        return False
    return path.endswith(WEIGHTS) or (path.endswith(_BESIDE) and "/" not in path)


def _file(entry: Fields, path: str) -> RemoteFile:
    safe = safe_path(path, entry.source)
    large = entry.inner("lfs")
    nbytes = _size(large or entry)
    sha256 = None
    if large is not None:
        sha256 = (large.text("oid") or "").removeprefix("sha256:")
        if _SHA256.fullmatch(sha256) is None:
            raise large.wrong("oid", "a SHA-256")
        return RemoteFile(safe, nbytes, sha256)
    blob = entry.text("oid")
    if blob is not None and _COMMIT.fullmatch(blob) is None:
        raise entry.wrong("oid", "a checksum of git's")
    return RemoteFile(safe, nbytes, None, blob)


def _size(entry: Fields) -> int:
    size = entry.get("size")
    if type(size) is not int or not 0 <= size <= LARGEST_FILE:
        raise entry.wrong("size", f"bytes, at most {LARGEST_FILE:,}")
    return size


def _entries(hub: Hub, name: str, commit: str) -> Iterator[Fields]:
    """Every file of the tree, page by page."""
    following: str | None = f"/api/models/{name}/tree/{commit}?recursive=true"
    source = f"the listing of {name}"
    seen, count = set(), 0
    while following is not None:
        seen.add(following)
        page, headers = hub.json(following, _LARGEST_ANSWER, name)
        if not isinstance(page, list):
            raise CheckpointError(f"{source} is no list: check HF_ENDPOINT, or try again later")
        count += len(page)
        following = _following(hub, headers, source)
        if count > _MOST_FILES or len(seen) == _MOST_PAGES or following in seen:
            raise CheckpointError(
                f"{source} does not end after {count:,} files: it is refused; fetch the files "
                "that you want another way"
            )
        for entry in page:
            if not isinstance(entry, dict):
                raise CheckpointError(f"{source} has {shown(entry)} where a file belongs")
            if entry.get("type") == "file":
                yield Fields(source, entry)


def _following(hub: Hub, headers: httpx.Headers, source: str) -> str | None:
    """The next page's address, which must be one of the hub's own."""
    match = _NEXT.search(headers.get("Link", ""))
    if match is None:
        return None
    try:
        url = httpx.URL(hub.endpoint).join(match[1])
    except httpx.InvalidURL as error:
        raise CheckpointError(f"{source} goes on at an address that is none") from error
    if not hub.is_own(url):
        raise CheckpointError(f"{source} goes on at {url.host}, another place: it is refused")
    return str(url)


def _licence(info: Fields) -> str | None:
    """As the model card states it, or a tag of the repository."""
    card = info.get("cardData")
    stated = card.get("license") if isinstance(card, dict) else None
    if isinstance(stated, list):
        stated = ", ".join(str(entry) for entry in stated[:4])
    if isinstance(stated, str) and stated:
        return one_line(stated)
    tags = info.get("tags")
    for tag in tags if isinstance(tags, list) else ():
        if isinstance(tag, str) and tag.startswith("license:"):
            return one_line(tag.removeprefix("license:"))
    return None

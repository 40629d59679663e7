"""What is told about a machine: the rig, what was found wrong, and what was not understood.

Knows nothing of terminals, pages or files. `scrub` is what stands between a machine and the
public: after it, no value of the report names a person, a host or one particular card.
"""

from __future__ import annotations

import dataclasses
import getpass
import re
import socket
from collections.abc import Callable, Collection
from dataclasses import dataclass
from typing import TypeVar

from local_tp.core import Rig
from local_tp.facts import Finding, Process, Severity
from local_tp.hardware.devices import short_names

SEVERITIES: tuple[Severity, ...] = ("error", "warning", "info")
# Read as a whole, these are fields in which a sentence may name somebody.
PROSE = frozenset({"unknown", "unread", "evidence", "cost", "remedy", "os", "command_line"})
# Names so common that removing them would take words of the report along.
COMMON = frozenset(
    {"admin", "amd", "computer", "cuda", "debian", "desktop", "fedora", "gpu", "home", "host"}
    | {"intel", "laptop", "linux", "localhost", "machine", "nvidia", "owner", "root", "server"}
    | {"ubuntu", "user", "windows", "workstation"}
)
# Kernel parameters that say something about cards; all others may name disks and hosts.
KERNEL_PARAMETERS = re.compile(
    r"iommu|acs|pci|nvidia|nouveau|amdgpu|radeon|i915|\bxe\b|vfio|hugepage|numa|isolcpus|nohz"
    r"|mitigations|nomodeset|swiotlb|\bmem=|kvm|lockdown"
)
UUID = re.compile(
    r"\b(?:(?:GPU|MIG)-)?[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}\b", re.IGNORECASE
)
REMOVED: tuple[tuple[re.Pattern[str], str], ...] = (
    (
        re.compile(
            r"(?i)(?<![a-z])((?:serial|s/n)(?:[ _-]?(?:number|no\.?|num))?"
            r"(?:[\"']?\s*[:=>]\s*[\"']?|\s+(?=[\w-]*\d)))[\w-]+"
        ),
        r"\1(removed)",
    ),
    (re.compile(r"(?i)(?<![a-z])(unique[ _-]?id[\"']?\s*[:=]\s*[\"']?)\w+"), r"\1(removed)"),
    (
        re.compile(r"(?i)(?<![a-z])((?:token|secret|password|api_?key)\s*[:=]\s*)\S+"),
        r"\1(removed)",
    ),
    (re.compile(r"\bhf_[A-Za-z0-9]{6,}"), "(removed)"),
    (re.compile(r"(?i)(/(?:home|Users)/)[^/\s:\"']+"), r"\1(removed)"),
    (re.compile(r"(?i)(\\{1,4}Users\\{1,4})(?:[^\\:\"']+(?=\\)|[^\\\s:\"']+)"), r"\1(removed)"),
    (re.compile(r"[\w.+-]+@(?:[A-Za-z][\w.-]*|\d{1,3}(?:\.\d{1,3}){3})"), "(removed)"),
    (re.compile(r"(?i)\b(?:[0-9a-f]{2}:){5}[0-9a-f]{2}\b"), "(removed)"),
    (
        re.compile(r"(?i)(?<![a-z])((?:host|node|computer)[ _]?name\s*[:=]\s*)\S+"),
        r"\1(removed)",
    ),
    (re.compile(r"(?i)(?<![a-z])((?:user(?:[ _]?name)?|logname)\s*[:=]\s*)\S+"), r"\1(removed)"),
    # The host in a line of the system log, of NCCL's log and of uname.
    (
        re.compile(r"([A-Z][a-z]{2} [ \d]\d \d\d:\d\d:\d\d )\S+(?= [\w.-]+(?:\[\d+\])?:)"),
        r"\1(removed)",
    ),
    (
        re.compile(r"(\dT\d\d:\d\d:\d\d\S{0,16} )\S+(?= [\w.-]+(?:\[\d+\])?:)"),
        r"\1(removed)",
    ),
    (re.compile(r"(?<![\w.-])[\w.-]{1,64}(?=:\d+:\d+ \[\d+\] NCCL )"), "(removed)"),
    (re.compile(r"(\bLinux )[A-Za-z][\w.-]*(?= \d+\.\d+\.\d+[\w.]*-)"), r"\1(removed)"),
)

# A line that nobody understood may say anything: of its text, only the name of a tool is told.
QUOTED = re.compile(r"(\blines? \d+(?: to \d+)?: (?:not understood|columns without a header)): ")
TOOLS = frozenset(
    {"amd-smi", "collect_env", "dmesg", "free", "journalctl", "lscpu", "lspci", "lsmod", "nccl"}
    | {"nvcc", "nvidia-smi", "nvtop", "pip", "python", "python3", "rocm-smi", "rocminfo", "torch"}
    | {"uname", "vulkaninfo", "xpu-smi"}
)

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Report:
    """A machine and its diagnosis. `unread` are lines of pasted text that nobody understood."""

    rig: Rig
    findings: tuple[Finding, ...] = ()
    unread: tuple[str, ...] = ()


def worst_first(findings: tuple[Finding, ...]) -> tuple[Finding, ...]:
    """Errors, then warnings, then the rest; in their own order within each."""
    return tuple(sorted(findings, key=lambda finding: SEVERITIES.index(finding.severity)))


def device_labels(rig: Rig) -> dict[str, str]:
    """What to call each device id: its short name, and its full one where they differ."""
    return {
        device.id: name if device.kind == "cpu" else f"{name} ({device.name})"
        for name, device in short_names(rig).items()
    }


def summary(report: Report) -> str:
    """One line: how many findings of which severity. Without cards, there is none to be well."""
    words = {"error": "error", "warning": "warning", "info": "note"}
    counted = [
        f"{count} {words[severity]}{'' if count == 1 else 's'}"
        for severity in SEVERITIES
        if (count := sum(f.severity == severity for f in report.findings))
    ]
    if counted:
        return ", ".join(counted)
    cards = any(device.kind != "cpu" for device in report.rig.devices)
    return (
        "nothing wrong was found"
        if cards
        else "no graphics card was found, and nothing wrong with the rest"
    )


def printable(text: str) -> str:
    """`text` on one line, without control characters: pasted text may hold terminal escapes."""
    return "".join(c if c.isprintable() else " " for c in text)


# ------------------------------------------------------------------- what must not be told


def own_names() -> tuple[str, ...]:
    """The names of this host and of the person at it, to be removed from its own report."""
    host = socket.gethostname()
    try:
        user = getpass.getuser()
    except (OSError, KeyError, ImportError):  # a user without an entry, as in some containers
        user = ""
    return tuple(dict.fromkeys(name for name in (host, host.partition(".")[0], user) if name))


def scrub(report: Report, names: Collection[str] = ()) -> Report:
    """The report without UUIDs, serial numbers, host and user names, and paths of programs.

    Of a line that was not understood, its number is told and not its text. `names` are further
    words to remove. A UUID in a sentence or an id becomes `uuid-1`, the same one everywhere, so
    that the report still says what belongs together.
    """
    numbered: dict[str, str] = {}

    def anonymous(text: str) -> str:
        text = UUID.sub(
            lambda m: numbered.setdefault(m[0].lower(), f"uuid-{len(numbered) + 1}"), text
        )
        for pattern, replacement in REMOVED:
            text = pattern.sub(replacement, text)
        return text

    private = [n for n in names if len(n) > 2 and n.lower() not in COMMON]
    listed = "|".join(map(re.escape, sorted(private, key=len, reverse=True)))
    named = re.compile(rf"(?<![\w.-])(?:{listed})(?![\w-])", re.IGNORECASE) if private else None

    def nameless(text: str) -> str:
        return named.sub("(removed)", anonymous(text)) if named else anonymous(text)

    devices = tuple(dataclasses.replace(device, uuid=None) for device in report.rig.devices)
    bare = dataclasses.replace(
        report,
        rig=dataclasses.replace(report.rig, devices=devices),
        unread=tuple(map(_unquoted, report.unread)),
    )
    return _rewritten(bare, anonymous, nameless)


def _unquoted(unread: str) -> str:
    """What was not understood, without the text that it quotes."""
    match = QUOTED.search(unread)
    if not match:
        return unread
    first = unread[match.end() :].lstrip("'\"").partition(" ")[0].rstrip("'\":")
    said = unread[: match.end(1)]
    return f"{said}: {first} …" if first in TOOLS else said


def _rewritten(value: T, plain: Callable[[str], str], prose: Callable[[str], str]) -> T:
    """`value` with every text in it rewritten, in all its fields, tuples and values."""
    rewritten: object = value
    if isinstance(value, str):
        rewritten = plain(value)
    elif isinstance(value, tuple):
        rewritten = tuple(_rewritten(item, plain, prose) for item in value)
    elif isinstance(value, Process):
        bare = None if value.name is None else re.split(r"[/\\]", value.name)[-1]
        rewritten = dataclasses.replace(value, name=None if bare is None else prose(bare))
    elif dataclasses.is_dataclass(value) and not isinstance(value, type):
        changed = {}
        for field in dataclasses.fields(value):
            held = getattr(value, field.name)
            if field.name == "command_line" and held is not None:
                held = " ".join(w for w in held.split() if KERNEL_PARAMETERS.search(w))
            rewrite = prose if field.name in PROSE else plain
            changed[field.name] = _rewritten(held, rewrite, prose)
        rewritten = dataclasses.replace(value, **changed)
    return rewritten  # type: ignore[return-value]

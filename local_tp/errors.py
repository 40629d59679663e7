"""Every error that local_tp raises on purpose, one tree.

LocalTpError                    one line that says what to do
├── InputError                  what was asked for cannot be done; exit code 2
│   ├── CheckpointError         a model file is missing, damaged, or of an unknown kind
│   ├── DeviceError             a device that does not exist or cannot be used
│   ├── PlanError               a split, share or placement that is not possible
│   │   └── DoesNotFit          device, need, have and the setting to change
│   ├── TemplateError           the chat template is absent or fails
│   ├── PromptTooLong           need, have
│   └── PortInUse               host and port
├── WorkerError                 a worker process failed; exit code 1
│   ├── WorkerFault             it raised: its traceback comes along
│   ├── WorkerDied              it is gone: exit code and last log lines
│   └── ModelGone               it cannot read the model file any more; exit code 2
├── CollectiveTimeout           ranks waited for one another too long
└── Cancelled                   the person stopped it; exit code 130
"""

from __future__ import annotations


class LocalTpError(Exception):
    """The root. `str(error)` is one line for a person; `exit_code` is a contract."""

    exit_code = 1


class InputError(LocalTpError):
    exit_code = 2


class CheckpointError(InputError):
    pass


class DeviceError(InputError):
    pass


class PlanError(InputError):
    pass


class DoesNotFit(PlanError):
    """`need` and `have` in bytes; `remedy` is a sentence with the setting and the amount.

    `terms` are what would lie there, the largest first; `settings` all that would make it fit.
    """

    def __init__(
        self,
        device: str,
        need: int,
        have: int,
        remedy: str,
        terms: tuple[tuple[str, int], ...] = (),
        settings: tuple[str, ...] = (),
    ) -> None:
        mib = 1024 * 1024
        super().__init__(
            f"{device} needs {-(-need // mib):,} MiB and has {have // mib:,} MiB free: {remedy}"
        )
        self.device, self.need, self.have, self.remedy = device, need, have, remedy
        self.terms, self.settings = terms, settings


class TemplateError(InputError):
    pass


class PromptTooLong(InputError):
    """`need` and `have` in tokens; `most` is the model's own limit, where it is known."""

    def __init__(self, need: int, have: int, what: str = "prompt", most: int | None = None) -> None:
        remedy = f"shorten it by {need - have:,} tokens"
        if most is None or need <= most:
            remedy += f", or start with --context {need} or more"
        super().__init__(f"the {what} has {need:,} tokens and the context holds {have:,}: {remedy}")
        self.need, self.have = need, have


class PortInUse(InputError):
    def __init__(self, host: str, port: int) -> None:
        super().__init__(
            f"port {port} on {host} is in use: choose another with --port, or --port 0 for any"
        )
        self.host, self.port = host, port


class WorkerError(LocalTpError):
    """`rank` and `device` name the worker."""

    def __init__(self, message: str, rank: int, device: str) -> None:
        super().__init__(message)
        self.rank, self.device = rank, device


class WorkerFault(WorkerError):
    """A worker raised; `traceback` is its own, whole."""

    def __init__(self, rank: int, device: str, summary: str, traceback: str) -> None:
        super().__init__(f"worker {rank} on {device} failed: {summary}", rank, device)
        self.traceback = traceback


class WorkerDied(WorkerError):
    """A worker is gone; `log` holds its last lines."""

    def __init__(self, rank: int, device: str, exit_code: int | None, log: str) -> None:
        how = (
            f"signal {-exit_code}"
            if exit_code is not None and exit_code < 0
            else f"exit code {exit_code}"
        )
        lines = log.strip().splitlines() or ["it wrote nothing"]
        fatal = [line for line in lines if line.startswith("Fatal Python error")]
        said = (fatal or lines)[-1]
        super().__init__(
            f"worker {rank} on {device} died ({how}): {said}; start local-tp again", rank, device
        )
        self.code, self.log = exit_code, log


class ModelGone(WorkerError):
    """A file that was there when its header was read cannot be read any more."""

    exit_code = 2

    def __init__(self, rank: int, device: str, why: str) -> None:
        super().__init__(
            f"worker {rank} on {device} cannot read the model ({why}): check that the file is "
            "still there and start again",
            rank,
            device,
        )


class CollectiveTimeout(LocalTpError):
    pass


class Cancelled(LocalTpError):
    exit_code = 130

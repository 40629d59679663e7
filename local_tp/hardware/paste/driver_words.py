"""What tools print instead of an answer, and what is then the matter with the driver.

Knows nothing of cards. Each saying becomes a fault, a line in our own words, or both: what a tool
wrote is never handed on, for it may name people and machines.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import NamedTuple

from local_tp.facts import DriverFault


class Saying(NamedTuple):
    """Words of a tool, the fault that they tell of, and what they mean."""

    words: re.Pattern[str]
    fault: DriverFault | None
    means: str | None = None


def _say(words: str, fault: DriverFault | None, means: str | None = None) -> Saying:
    return Saying(re.compile(words, re.IGNORECASE), fault, means)


# The first that fits a line counts.
SAYINGS: tuple[Saying, ...] = (
    _say(
        r"couldn'?t communicate with the NVIDIA driver|NVIDIA driver is not loaded", "not-running"
    ),
    _say(r"(?:NVML|driver).{0,40}: (?:NVIDIA )?Driver Not Loaded", "not-running"),
    _say(
        r"Driver/library version mismatch|RM has detected an NVML/RM version mismatch", "mismatch"
    ),
    _say(r"couldn'?t find libnvidia-ml|NVML Shared Library Not Found", "library-missing"),
    _say(r"libnvidia-ml\.so.{0,60}(?:cannot open|no such file)", "library-missing"),
    _say(
        r"nvidia-smi: (?:command )?not found|command not found: nvidia-smi"
        r"|nvidia-smi'? is not recognized|Command 'nvidia-smi' not found"
        r"|nvidia-smi: No such file|nvidia-smi: Befehl nicht gefunden"
        r"|nvidia-smi\"? ist entweder falsch geschrieben|nvidia-smi'? \u4e0d\u662f",
        "library-missing",
        "nvidia-smi: it was not found, as where NVIDIA's driver is not installed",
    ),
    _say(
        r"(?:initialize NVML|NVML).{0,20}: Insufficient Permissions"
        r"|NVIDIA-SMI has failed because you (?:are not|do not have)",
        "no-permission",
        "nvidia-smi: this user may not open the card's device files",
    ),
    _say(
        r"GPU access blocked by the operating system",
        "unknown-error",
        "nvidia-smi: NVML does not start; the operating system blocks its access to the card",
    ),
    _say(
        r"initialize NVML: Unknown Error",
        "unknown-error",
        "nvidia-smi: NVML does not start; in a container, its access to the card was lost",
    ),
    _say(r"initialize NVML: GPU is lost", None, "nvidia-smi: NVML: GPU is lost"),
    _say(r"Failed to initialize NVML", "unknown-error", "nvidia-smi: NVML does not start"),
    _say(r"\bNo devices were found", None, "nvidia-smi: no devices were found"),
    _say(
        r"amdgpu not found in modules|amdgpu/initstate: No such file|ROCk module is NOT loaded"
        r"|amdgpu is not loaded|AMDSMI_STATUS_DRIVER_NOT_LOADED"
        r"|amdgpu(?: driver)? not (?:loaded|found|initialized)"
        r"|Unable to detect any GPU devices, check amdgpu",
        "amdgpu-missing",
        "AMD's tools: the kernel module amdgpu is not loaded",
    ),
    _say(
        r"/dev/kfd.{0,20}: No such file",
        "amdgpu-missing",
        "AMD's tools: there is no /dev/kfd, so that amdgpu is not loaded or was given no card",
    ),
    _say(
        r"/dev/kfd.{0,20}: Permission denied|is not member of \"?(?:render|video)\"? group"
        r"|AMDSMI_STATUS_NO_PERM",
        "no-permission",
        "AMD's tools: this user may not open /dev/kfd",
    ),
    _say(
        r"rsmi_init\(\) failed|ROCm SMI returned 8 |AMDSMI_STATUS_(?:NOT_INIT|INIT_ERROR)"
        r"|hsa_init Failed|hsa api call failure",
        "unknown-error",
        "AMD's tools: they do not start, as where no supported card or driver is found",
    ),
    _say(
        r"(?:rocm-smi|amd-smi|rocminfo): (?:command )?not found"
        r"|command not found: (?:rocm-smi|amd-smi|rocminfo)",
        None,
        "AMD's tools: not installed",
    ),
)
# One of these, in small letters, stands in whatever the sayings fit: cheaper to look for.
_HINTS = (
    "nvidia driver", "driver not loaded", "mismatch", "libnvidia-ml", "nvml", "not found",
    "nicht gefunden", "not recognized", "no such file", "entweder", "\u4e0d\u662f", "has failed",
    "gpu access blocked", "no devices were found", "amdgpu", "rock module", "amdsmi_", "kfd",
    "not member of", "rsmi_init", "rocm smi returned", "hsa_init", "hsa api",
)  # fmt: skip


def said(line: str) -> Saying | None:
    """What a line says of a driver that does not answer."""
    text = line[:1000].replace("\u2019", "'").replace("\ufffd", "'")
    lower = text.lower()
    if not any(hint in lower for hint in _HINTS):
        return None
    return next((saying for saying in SAYINGS if saying.words.search(text)), None)


def fault(sayings: Sequence[Saying]) -> DriverFault | None:
    """The fault of several sayings: the most telling one, an unknown error last."""
    faults = [saying.fault for saying in sayings if saying.fault]
    return next((name for name in faults if name != "unknown-error"), next(iter(faults), None))

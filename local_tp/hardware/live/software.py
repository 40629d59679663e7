"""Versions that must fit the cards: driver, CUDA, torch and what it was built with.

Knows nothing of the cards. torch is never imported: its version is in its package's metadata, and
its CUDA in a line of its own `version.py`.
"""

from __future__ import annotations

import importlib.metadata
import re
from pathlib import Path

from local_tp.facts import SoftwareFacts
from local_tp.hardware.live.nvidia import Nvidia, module_version
from local_tp.hardware.live.pci import read_text

_NCCL = ("nvidia-nccl-cu13", "nvidia-nccl-cu12")


def read_software(nvidia: Nvidia, root: Path = Path("/")) -> SoftwareFacts:
    """Driver versions as NVML told them; torch as it is installed beside this program."""
    module = module_version(root)
    torch = _version("torch")
    return SoftwareFacts(
        driver=nvidia.driver,
        cuda_driver=nvidia.cuda,
        cuda_module=None if module == nvidia.driver else module,
        driver_fault=nvidia.fault,
        torch=torch,
        torch_cuda=_torch_cuda(torch) if torch else None,
        nccl=_nccl(),
    )


def _version(package: str) -> str | None:
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return None


def _torch_cuda(version: str) -> str | None:
    """The CUDA that torch was built with, None for a build without."""
    if match := re.search(r"\+cu(\d+)(\d)$", version):
        return f"{match.group(1)}.{match.group(2)}"
    if "+" in version:  # +cpu, +rocm7.2, +xpu
        return None
    place = importlib.metadata.distribution("torch").locate_file("torch/version.py")
    text = read_text(Path(str(place))) or ""
    match = re.search(r"^cuda\b[^=]*= '([\d.]+)'", text, re.MULTILINE)
    return match and match.group(1)


def _nccl() -> str | None:
    """The NCCL that torch loads, a package of its own on Linux."""
    return next((found for name in _NCCL if (found := _version(name))), None)

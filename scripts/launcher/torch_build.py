"""Which build of PyTorch this machine wants, and why, in words.

Knows nothing of pip or of the environment, and never imports torch. `choose` is pure; reading the
machine never raises and never takes longer than its time limits.
"""

from __future__ import annotations

import http.client
import os
import queue
import re
import shutil
import ssl
import subprocess
import threading
import urllib.request
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

INDEX = "https://download.pytorch.org/whl"
CUDA_13_DRIVER = 580  # the first driver branch that runs CUDA 13
CUDA_12_DRIVER = 525  # the first that runs CUDA 12.6 under CUDA's minor-version compatibility
TURING = (7, 5)  # CUDA 13 builds hold no code for older cards
BLACKWELL = (10, 0)  # the CUDA 12.6 build holds no code for these and newer
ROCM_CARD = 4 * 1024**3  # bytes; less is a processor's own graphics, which ROCm does not serve

PROC_VERSION = "proc/driver/nvidia/version"
PROC_CARDS = "proc/driver/nvidia/gpus"
WSL_FOLDER = "usr/lib/wsl/lib"
WSL_DRIVER = f"{WSL_FOLDER}/libcuda.so.1"
WINDOWS_DRIVER = "System32/nvcuda.dll"


@dataclass(frozen=True, slots=True)
class Hardware:
    """What decides the build. `driver` is NVIDIA's branch (580), None when it cannot be read."""

    system: str  # as sys.platform
    nvidia: bool = False
    driver: int | None = None
    capabilities: tuple[tuple[int, int], ...] = ()
    rocm: bool = False


@dataclass(frozen=True, slots=True)
class Build:
    """A build: `tag` is its local version, `index` where it lies (None: the ordinary registry)."""

    tag: str
    index: str | None
    why: str


def choose(hardware: Hardware) -> Build:
    """The build that drives this hardware."""
    if hardware.system == "darwin":
        return Build("cpu", None, "the macOS build")
    if hardware.nvidia:
        return _choose_cuda(hardware)
    if hardware.rocm:
        return _build("rocm7.2", "the ROCm 7.2 build, for the AMD card")
    why = "the CPU build: no NVIDIA driver and no ROCm card was found"
    # The ordinary registry's build for Windows is this same one.
    return Build("cpu", None, why) if hardware.system == "win32" else _build("cpu", why)


def _choose_cuda(hardware: Hardware) -> Build:
    driver, cards = hardware.driver, hardware.capabilities
    old = any(card < TURING for card in cards)
    new = any(card >= BLACKWELL for card in cards)
    if driver is None:
        return _build(
            "cu130",
            "the CUDA 13 build: an NVIDIA driver is there but does not tell its version; "
            f"it must be {CUDA_13_DRIVER} or later",
        )
    if driver < CUDA_12_DRIVER:
        return Build(
            "cpu",
            None if hardware.system == "win32" else f"{INDEX}/cpu",
            f"the CPU build: NVIDIA driver {driver} is too old for any current CUDA build; "
            f"update it to {CUDA_13_DRIVER} or later and start again",
        )
    if driver < CUDA_13_DRIVER:
        update = f"; these cards need driver {CUDA_13_DRIVER} or later: update it" if new else ""
        return _build("cu126", f"the CUDA 12.6 build, for NVIDIA driver {driver}{update}")
    if old and not new:
        return _build("cu126", "the CUDA 12.6 build: a card here is older than the RTX 20 series")
    lost = "; cards older than the RTX 20 series cannot be used beside RTX 50 cards" if old else ""
    return _build("cu130", f"the CUDA 13 build, for NVIDIA driver {driver}{lost}")


def _build(tag: str, why: str) -> Build:
    return Build(tag, f"{INDEX}/{tag}", why)


def ordinary_registry_note(build: Build, system: str) -> str:
    """What it means that `build` must come from the ordinary registry instead of its own index."""
    said = f"PyTorch's own index ({INDEX}) cannot be used now, so the ordinary registry's build"
    later = "to try again later, delete the folder .venv and start"
    if build.tag == "cpu":
        return f"{said} is taken: it may be a larger download, and runs the same"
    if system == "win32" or build.tag.startswith("rocm"):
        return f"{said} is taken, which on this system runs on the CPU only; {later}"
    if build.tag == "cu126":
        return (
            f"{said} is taken, which is for CUDA 13: it needs driver {CUDA_13_DRIVER} or later "
            f"and an RTX 20 card or newer, and uses the CPU otherwise; {later}"
        )
    return f"{said} is taken, which on Linux is a CUDA build too"


# ------------------------------------------------------------------------- reading the machine


def system_root(system: str) -> Path:
    """The folder under which drivers leave their marks."""
    return Path(os.environ.get("SYSTEMROOT", r"C:\Windows")) if system == "win32" else Path("/")


def signature(root: Path) -> str:
    """A cheap text that changes when a driver or a card comes or goes: file reads only."""
    marks = [_first_line(root / PROC_VERSION), *_names(root / PROC_CARDS)]
    for driver in (WSL_DRIVER, WINDOWS_DRIVER):
        if (root / driver).is_file():
            marks.append(f"{driver} {(root / driver).stat().st_size}")
    if rocm_present(root):
        marks.append("rocm")
    return "; ".join(mark for mark in marks if mark)


def read_hardware(system: str, root: Path, query: Callable[[Path], str] | None = None) -> Hardware:
    """This machine. `query` returns what nvidia-smi says of driver version and compute cards."""
    answer = (query or _query_nvidia)(root)
    marks = (PROC_VERSION, WSL_DRIVER, WINDOWS_DRIVER)
    nvidia = bool(answer) or any((root / mark).exists() for mark in marks)
    driver = driver_branch(answer) or driver_branch(_first_line(root / PROC_VERSION))
    rocm = system == "linux" and rocm_present(root)
    return Hardware(system, nvidia, driver, compute_capabilities(answer), rocm)


def driver_branch(text: str) -> int | None:
    """580 out of "580.95.05, 12.0" or of the kernel module's version line."""
    found = re.search(r"(?<![\d.])(\d{3})\.\d+", text)
    return int(found[1]) if found else None


def compute_capabilities(answer: str) -> tuple[tuple[int, int], ...]:
    """((8, 6), (12, 0)) out of lines "580.95.05, 8.6"; cards that do not say are left out."""
    return tuple((int(a), int(b)) for a, b in re.findall(r",\s*(\d+)\.(\d+)\s*$", answer, re.M))


def rocm_present(root: Path) -> bool:
    """ROCm is installed, or the kernel serves compute on an AMD card with memory of its own."""
    if (root / "opt/rocm").exists():
        return True
    cards = (root / "sys/class/drm").glob("card*/device/mem_info_vram_total")
    sizes = [_first_line(card) for card in cards]
    return (root / "dev/kfd").exists() and any(
        size.isdigit() and int(size) >= ROCM_CARD for size in sizes
    )


def _query_nvidia(root: Path) -> str:
    places = os.pathsep.join(
        [os.environ.get("PATH", ""), str(root / WSL_FOLDER), str(root / "System32")]
    )
    command = shutil.which("nvidia-smi", path=places)
    if command is None:
        return ""
    question = ["--query-gpu=driver_version,compute_cap", "--format=csv,noheader"]
    try:
        done = subprocess.run(
            [command, *question], capture_output=True, text=True, timeout=20, check=False
        )
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return done.stdout if done.returncode == 0 else ""


def _first_line(path: Path) -> str:
    try:
        with path.open(encoding="utf-8", errors="replace") as file:
            return file.readline().strip()
    except OSError:
        return ""


def _names(folder: Path) -> list[str]:
    try:
        return sorted(os.listdir(folder))
    except OSError:
        return []


def answers(url: str, seconds: float = 3.0) -> bool:
    """Whether `url` answers within `seconds` in all, name look-up included."""
    heard: queue.SimpleQueue[bool] = queue.SimpleQueue()
    # A thread, because a name look-up takes no time limit of its own.
    threading.Thread(target=lambda: heard.put(_ask(url, seconds)), daemon=True).start()
    try:
        return heard.get(timeout=seconds)
    except queue.Empty:
        return False


def _ask(url: str, seconds: float) -> bool:
    # The answer is only a hint and nothing is taken from it: pip, which has certificates of its
    # own where a bare system has none, verifies whatever is downloaded.
    context = ssl.create_default_context()
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    request = urllib.request.Request(url, method="HEAD")
    try:
        with urllib.request.urlopen(request, timeout=seconds, context=context) as response:
            return bool(response.status == 200)
    except (OSError, http.client.HTTPException):
        return False

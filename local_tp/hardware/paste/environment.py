"""`collect_env` of PyTorch or vLLM, `lscpu`, `free` and `uname`: the machine around the cards.

Knows nothing of links. Lines of the form `name: value`, known by their names alone, so that any
part of the output will do.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field

from local_tp.facts import CardFacts, HostFacts, SoftwareFacts
from local_tp.hardware.paste import pci_names
from local_tp.hardware.paste.sighting import Card, Kind, Sighting
from local_tp.hardware.paste.text import Line
from local_tp.hardware.paste.values import known, number, whole

_ENTRY = re.compile(r"\s*([A-Za-z][\w ().#/-]{1,48}?)\s*:(?:\s+(\S.{0,4000}))?\s*\Z")
_GPU = re.compile(r"\s*GPU (\d{1,3}): (\S.{0,120})")
_PACKAGE = re.compile(r"\s*\[(?:pip3?|conda)\]\s+(\S{1,60}?)(?:==|\s+)(\S{1,40})")
_MEMORY = re.compile(r"\s*(Mem|Swap):\s+([\d.]{1,16}\S{0,2})((?:\s+[\d.]{1,16}\S{0,2}){1,5})\s*\Z")
_UNAME = re.compile(r"Linux \S{1,80} (\d+\.\d+\S{0,80}) ")
_FREE_HEADER = re.compile(r"\s+total\s+used\s+free\s+shared")
_NAMES = frozenset(
    {
        "PyTorch version", "Is debug build", "CUDA used to build PyTorch",
        "ROCM used to build PyTorch", "OS", "GCC version", "Clang version", "CMake version",
        "Libc version", "Python version", "Python platform", "Is CUDA available",
        "CUDA runtime version", "CUDA_MODULE_LOADING set to", "GPU models and configuration",
        "Nvidia driver version", "cuDNN version", "HIP runtime version", "MIOpen runtime version",
        "Is XNNPACK available", "CPU", "Architecture", "CPU op-mode(s)", "Address sizes",
        "Byte Order", "CPU(s)", "On-line CPU(s) list", "Vendor ID", "Model name", "CPU family",
        "Model", "Thread(s) per core", "Core(s) per socket", "Socket(s)", "Stepping", "CPU max MHz",
        "CPU min MHz", "BogoMIPS", "Flags", "Virtualization", "Hypervisor vendor",
        "Virtualization type", "L1d cache", "L1i cache", "L2 cache", "L3 cache", "NUMA node(s)",
        "Versions of relevant libraries", "ROCM Version", "vLLM Version", "vLLM Build Flags",
        "GPU Topology", "CPU(s) scaling MHz", "Frequency boost", "Core(s) per cluster",
        "Cluster(s)", "Is XPU available", "Neuron SDK Version",
    }
)  # fmt: skip
_FAMILIES = re.compile(r"\s*(?:NUMA node\d{1,3} CPU\(s\)|Vulnerability [\w -]{2,40}):")
_TITLE = re.compile(
    r"Collecting environment information|\s*={10,}\s*\Z|INFO \d\d-\d\d|WARNING \d\d-\d\d"
    r"|\s*(?:System Info|PyTorch Info|Python Environment|CUDA / GPU Info|CPU Info|vLLM Info"
    r"|Versions of relevant libraries|Environment Variables)\s*\Z|CUDA runtime path|\s*/usr/\S+\Z"
    r"|(?:CUDA|NVIDIA|NCCL|VLLM|TORCH|LD)_\w+=|Could not collect|GPU Topology:"
)
_INSTRUCTIONS = (
    "avx2", "f16c", "avx512f", "avx_vnni", "avx512_vnni", "avx512_bf16", "amx_int8", "amx_bf16",
)  # fmt: skip
_UNITS = {"": 1024, "B": 1, "K": 1024, "M": 1024**2, "G": 1024**3, "T": 1024**4}


def _starts(line: str) -> bool:
    match = _ENTRY.match(line)
    return bool(
        (match and match[1] in _NAMES and not line.startswith("    Model"))
        or _PACKAGE.match(line)
        or _MEMORY.match(line)
        or _FREE_HEADER.match(line)
        or _UNAME.match(line)
        or "Collecting environment information" in line
    )


def _continues(line: str) -> bool:
    return bool(_starts(line) or _GPU.match(line) or _FAMILIES.match(line) or _TITLE.match(line))


@dataclass(slots=True)
class _Reading:
    values: dict[str, str] = field(default_factory=dict)
    cards: dict[int, Card] = field(default_factory=dict)
    packages: dict[str, str] = field(default_factory=dict)
    memory: dict[str, tuple[int, ...]] = field(default_factory=dict)
    kernel: str = ""


def parse(lines: Sequence[Line]) -> Sighting:
    """Versions, the processor and its memory, and cards by name."""
    reading = _Reading()
    for line in lines:
        _line(line.text, reading)
    values = reading.values
    ram, swap = reading.memory.get("Mem", ()), reading.memory.get("Swap", ())
    sockets, each = whole(values.get("Socket(s)")), whole(values.get("Core(s) per socket"))
    return Sighting(
        "collect_env",
        cards=tuple(reading.cards.values()),
        ram=ram[0] if ram else None,
        available_ram=ram[-1] if len(ram) >= 6 else None,
        cores=sockets * each if sockets and each else None,
        os=known(values.get("OS")),
        host=_host(reading, sockets, each, swap),
        software=_software(reading),
    )


def _line(text: str, reading: _Reading) -> None:
    if match := _GPU.match(text):
        name = match[2].split(" (UUID")[0].strip()
        facts = CardFacts(vendor=pci_names.vendor(name))
        number = int(match[1])
        reading.cards.setdefault(number, Card(number=number, name=name, facts=facts))
    elif match := _PACKAGE.match(text):
        reading.packages.setdefault(match[1], match[2])
    elif match := _MEMORY.match(text):
        reading.memory.setdefault(match[1], _amounts(match[2] + match[3]))
    elif match := _UNAME.match(text):
        reading.kernel = reading.kernel or match[1]
    elif (match := _ENTRY.match(text)) and match[2]:
        reading.values.setdefault(match[1].strip(), match[2].strip())


def _amounts(text: str) -> tuple[int, ...]:
    """The figures of a line of `free`: KiB where no unit is told."""
    found = []
    for word in text.split():
        match = re.fullmatch(r"([\d.]{1,16})([BKMGT]?)i?", word)
        value = number(match[1]) if match else None
        if match and value is not None:
            found.append(int(value * _UNITS[match[2]]))
    return tuple(found)


def _host(
    reading: _Reading, sockets: int | None, each: int | None, swap: tuple[int, ...]
) -> HostFacts:
    values = reading.values
    flags = set((values.get("Flags") or "").split())
    system = f"{values.get('Python platform', '')} {reading.kernel}"
    wsl = "microsoft" in system.lower() if system.strip() else None
    hypervisor = known(values.get("Hypervisor vendor"))
    return HostFacts(
        processor=known(values.get("Model name")),
        architecture=known(values.get("Architecture")),
        sockets=sockets,
        physical_cores=sockets * each if sockets and each else None,
        logical_cores=whole(values.get("CPU(s)")),
        instructions=tuple(name for name in _INSTRUCTIONS if name in flags),
        swap=swap[0] if swap else None,
        numa_nodes=whole(values.get("NUMA node(s)")),
        wsl=wsl,
        virtual_machine=None if wsl else hypervisor,
        laptop=True
        if any("Laptop GPU" in (card.name or "") for card in reading.cards.values())
        else None,
    )


def _software(reading: _Reading) -> SoftwareFacts:
    values, packages = reading.values, reading.packages
    cuda, rocm = (known(values.get(f"{name} used to build PyTorch")) for name in ("CUDA", "ROCM"))
    nccl = next((v for name, v in packages.items() if name.startswith("nvidia-nccl")), None)
    driver = known(values.get("Nvidia driver version"))
    return SoftwareFacts(
        driver=driver.split()[0] if driver else None,
        torch=known(values.get("PyTorch version")) or packages.get("torch"),
        torch_cuda=cuda or rocm,
        nccl=nccl,
    )


KIND = Kind("collect_env", _starts, _continues, parse)

"""`collect_env` of PyTorch or vLLM, `lscpu`, `free` and `uname`: the machine around the cards.

Knows nothing of links. Lines of the form `name: value`, known by their names alone, so that any
part of the output will do.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from local_tp.facts import CardFacts, HostFacts, SoftwareFacts
from local_tp.hardware.paste import pci_names
from local_tp.hardware.paste.sighting import Card, Kind, Sighting
from local_tp.hardware.paste.text import Line
from local_tp.hardware.paste.values import known, number, whole

_ENTRY = re.compile(r"\s*([A-Za-z][\w ().#/-]{1,48}?)\s*:(?:\s+(\S.{0,4000}))?\s*\Z")
_GPU = re.compile(r"\s*(?:GPU models and configuration\s*:\s*)?GPU (\d{1,3}): (\S.{0,120})")
_ONE_GPU = re.compile(r"\s*GPU models and configuration\s*:\s*(\S.{0,120})")
_TARGET = re.compile(r"\s*\((gfx\w{3,6})[^)]{0,40}\)")
_WINDOWS = re.compile(
    r"(Name|Manufacturer|Family|Architecture|ProcessorType|DeviceID|CurrentClockSpeed"
    r"|MaxClockSpeed|L2CacheSize|L2CacheSpeed|Revision)=(.{0,120})\Z"
)
_OF_PROCESSOR = re.compile(
    r"(?:Name|Manufacturer|Family|ProcessorType|DeviceID|CurrentClockSpeed|MaxClockSpeed"
    r"|L2CacheSize|L2CacheSpeed|Revision): "
)
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
        "Cluster(s)", "NVIDIA-SMI version", "NVML version", "DRIVER version", "KMD version",
        "CUDA UMD version", "Is XPU available", "Neuron SDK Version", "Caching allocator config",
    }
)  # fmt: skip
_FAMILIES = re.compile(r"\s*(?:NUMA node\d{1,3} CPU\(s\)|Vulnerability [\w -]{2,40}):")
_TITLE = re.compile(
    r"Collecting environment information|\s*={10,}\s*\Z|INFO \d\d-\d\d|WARNING \d\d-\d\d"
    r"|\s*(?:System Info|PyTorch Info|Python Environment|CUDA / GPU Info|CPU Info|vLLM Info"
    r"|Versions of relevant libraries|Environment Variables)\s*\Z|CUDA runtime path|\s*/usr/\S+\Z"
    r"|Could not collect|GPU Topology:|\s*CUDA Archs: "
)
# Variables of the environment: passed over, whatever they hold.
_VARIABLE = re.compile(
    r"(?:CUDA|CUDNN|NVIDIA|NCCL|VLLM|TORCH|TORCHINDUCTOR|PYTORCH|LD|HF|HIP|ROCM?|OMP|MKL|MAX|LOCAL"
    r"|HUGGING_FACE|KMP|GLOO|TRITON|XLA|CUBLAS|TOKENIZERS|TRANSFORMERS|ROCR|HSA)_\w*="
    r"|\s+Environment Variables\s*\Z"
)
_INSTRUCTIONS = (
    "avx2", "f16c", "avx512f", "avx_vnni", "avx512_vnni", "avx512_bf16", "amx_int8", "amx_bf16",
)  # fmt: skip
# A PC has so many bytes of memory, whatever unit `free` was asked for.
_LEAST_RAM, _MOST_RAM = 512 * 1024**2, 4 * 1024**4
_OF_WINDOWS = {"Name": "Model name", "Architecture": "Architecture of Windows"}
# What Windows calls processors' architectures by.
_ARCHITECTURES = {"9": "x86_64", "12": "aarch64"}
_UNITS = {"B": 1, "K": 1024, "M": 1024**2, "G": 1024**3, "T": 1024**4}


def _starts(line: str) -> bool:
    match = _ENTRY.match(line)
    return bool(
        (match and match[1] in _NAMES and not line.startswith("    Model"))
        or _PACKAGE.match(line)
        or _MEMORY.match(line)
        or _FREE_HEADER.match(line)
        or _UNAME.match(line)
        or _VARIABLE.match(line)
        or _WINDOWS.match(line)
        or "Collecting environment information" in line
    )


def _continues(line: str) -> bool:
    return bool(
        _starts(line)
        or _OF_PROCESSOR.match(line)
        or _GPU.match(line)
        or _FAMILIES.match(line)
        or _TITLE.match(line)
    )


@dataclass(slots=True)
class _Reading:
    values: dict[str, str] = field(default_factory=dict)
    cards: dict[int, Card] = field(default_factory=dict)
    packages: dict[str, str] = field(default_factory=dict)
    memory: dict[str, tuple[int, ...]] = field(default_factory=dict)
    kernel: str = ""
    unit: int = 1024  # of what `free` prints


def parse(lines: Sequence[Line]) -> Sighting:
    """Versions, the processor and its memory, and cards by name."""
    reading = _Reading()
    for line in lines:
        _line(line.text, reading)
    values = reading.values
    cards = list(reading.cards.values())
    if _on_windows(values):
        cards = [_under_windows(card) for card in cards]
    ram, swap = reading.memory.get("Mem", ()), reading.memory.get("Swap", ())
    each = whole(values.get("Core(s) per socket"))
    sockets = whole(values.get("Socket(s)")) or _one_socket(values, each)
    return Sighting(
        "collect_env",
        cards=tuple(cards),
        ram=ram[0] if ram else None,
        available_ram=ram[-1] if len(ram) >= 6 else None,
        cores=sockets * each if sockets and each else None,
        os=known(values.get("OS")),
        host=_host(reading, sockets, each, swap),
        software=_software(reading),
    )


def _line(text: str, reading: _Reading) -> None:
    if match := _GPU.match(text):
        number = int(match[1])
        reading.cards.setdefault(number, _card(number, match[2]))
    elif (match := _ONE_GPU.match(text)) and pci_names.vendor(match[1]):
        reading.cards.setdefault(0, _card(0, match[1]))
    elif match := _WINDOWS.match(text):
        reading.values.setdefault(_OF_WINDOWS.get(match[1], match[1]), match[2])
    elif match := _PACKAGE.match(text):
        reading.packages.setdefault(match[1], match[2])
    elif match := _MEMORY.match(text):
        reading.memory.setdefault(match[1], _amounts(match[2] + match[3], reading))
    elif match := _UNAME.match(text):
        reading.kernel = reading.kernel or match[1]
    elif (match := _ENTRY.match(text)) and match[2]:
        reading.values.setdefault(match[1].strip(), match[2].strip())


def _card(number: int, told: str) -> Card:
    name = told.split(" (UUID")[0].strip()
    target = _TARGET.search(name)
    name = _TARGET.sub("", name).strip()
    vendor = pci_names.vendor(told)
    return Card(
        number=number,
        name=name,
        facts=CardFacts(vendor=vendor, architecture=target[1] if target else None),
    )


def _one_socket(values: Mapping[str, str], each: int | None) -> int | None:
    """1 where the processors are just those of one socket; None where they may be of more."""
    threads, logical = whole(values.get("Thread(s) per core")), whole(values.get("CPU(s)"))
    return 1 if threads and each and logical == threads * each else None


def _on_windows(values: Mapping[str, str]) -> bool:
    return "Windows" in values.get("OS", "")


def _under_windows(card: Card) -> Card:
    """The card with its driver model where it has but one: cards for games have no TCC."""
    if card.facts.vendor != "nvidia" or "GeForce" not in (card.name or ""):
        return card
    return replace(card, facts=replace(card.facts, driver_model="WDDM"))


def _amounts(text: str, reading: _Reading) -> tuple[int, ...]:
    """The figures of a line of `free`: without units, in that which fits the line of the memory."""
    found = []
    first = text.split()[0]
    if "Mem" not in reading.memory and first.isdecimal():
        fitting = (u for u in (1024, 1024**2, 1024**3, 1) if _fits(int(first) * u))
        reading.unit = next(fitting, 1024)
    for word in text.split():
        match = re.fullmatch(r"([\d.]{1,16})([BKMGT]?)i?", word)
        value = number(match[1]) if match else None
        if match and value is not None:
            found.append(int(value * (_UNITS[match[2]] if match[2] else reading.unit)))
    return tuple(found)


def _fits(amount: int) -> bool:
    return _LEAST_RAM <= amount < _MOST_RAM


def _host(
    reading: _Reading, sockets: int | None, each: int | None, swap: tuple[int, ...]
) -> HostFacts:
    values = reading.values
    flags = set((values.get("Flags") or "").split())
    system = f"{values.get('Python platform', '')} {reading.kernel}"
    wsl = "microsoft" in system.lower() if system.strip() else None
    windows = _on_windows(values)
    architecture = known(values.get("Architecture") or values.get("Architecture of Windows"))
    hypervisor = known(values.get("Hypervisor vendor"))
    return HostFacts(
        processor=known(values.get("Model name"))
        or (known(values.get("Name")) if windows else None),
        architecture=_ARCHITECTURES.get(architecture or "", architecture),
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
    names = ("Nvidia driver version", "KMD version", "DRIVER version")
    told = [text for name in names if (text := known(values.get(name)))]
    driver = next((text for text in told if text[:1].isdecimal()), None)
    return SoftwareFacts(
        driver=driver.split()[0] if driver else None,
        torch=known(values.get("PyTorch version")) or packages.get("torch"),
        torch_cuda=cuda or rocm,
        nccl=nccl,
    )


KIND = Kind("collect_env", _starts, _continues, parse)

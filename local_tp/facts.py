"""What a machine says of itself beyond what a plan needs: the evidence behind a diagnosis.

Frozen values: bytes, watts, megahertz, degrees Celsius. `None` everywhere means that it
is not known, which is never the same as no. Part of a `Rig`, so it goes through JSON.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Vendor = Literal["nvidia", "amd", "intel", "apple"]
DriverModel = Literal["WDDM", "TCC", "MCDM"]
P2pStatus = Literal[
    "ok", "chipset", "gpu", "topology", "disabled", "not-supported", "unknown"
]  # nvidia-smi's OK, CNS, GNS, TNS, DR, NS, U
Path = Literal["self", "nvlink", "internal", "PIX", "PXB", "PHB", "NODE", "SYS"]
Verdict = Literal["good", "broken", "hangs", "unsupported", "failed"]
DriverFault = Literal[
    "not-running",
    "mismatch",
    "library-missing",
    "unknown-error",  # NVML: Unknown Error
    "no-permission",  # NVML: Insufficient Permissions
    "amdgpu-missing",  # AMD cards on the bus, and no driver that holds them
]
StartFault = Literal[
    "no-address",  # its BARs were given no room in the PC's address space
    "needs-open",  # NVIDIA's open kernel modules, and the others are loaded
    "needs-closed",  # NVIDIA's proprietary kernel modules, and the open ones are loaded
    "failed",  # for a reason that the driver does not tell
]
Severity = Literal["error", "warning", "info"]


@dataclass(frozen=True, slots=True)
class Process:
    """Somebody's use of a card's memory. `name` is a bare program name, never a path."""

    pid: int | None = None
    name: str | None = None
    used: int | None = None


@dataclass(frozen=True, slots=True)
class NvLink:
    """One NVLink port: whether it is up, and the bus id at its other end."""

    index: int
    up: bool | None = None
    generation: int | None = None
    peer: str | None = None
    bandwidth: float | None = None  # bytes a second, one way


@dataclass(frozen=True, slots=True)
class PcieReading:
    """PCI Express generation and lanes at one moment or at most."""

    generation: int | None = None
    width: int | None = None


@dataclass(frozen=True, slots=True)
class CardFacts:
    """What a card says of itself. `index` is its driver's own number, never an identity."""

    vendor: Vendor | None = None
    index: int | None = None
    architecture: str | None = None  # ampere, ada, blackwell, gfx1100, …
    used: int | None = None
    hidden: int | None = None  # reserved by driver or firmware, in no "used" figure
    processes: tuple[Process, ...] = ()
    bar1_total: int | None = None
    bar1_used: int | None = None
    pcie_loaded: PcieReading | None = None  # while copying
    pcie_card: PcieReading | None = None  # what the card could do in the best slot
    pcie_slot: PcieReading | None = None  # what the slot or bridge above can do
    replays: int | None = None  # PCIe replay counter
    link_errors: int | None = None  # corrected PCIe errors that were seen; 1: at least one
    power_draw: float | None = None
    power_limit: float | None = None
    power_default: float | None = None
    power_max: float | None = None
    clock: int | None = None
    clock_max: int | None = None
    memory_clock: int | None = None
    memory_clock_max: int | None = None
    throttle: tuple[str, ...] = ()  # reasons active when read, in words
    temperature: int | None = None
    temperature_limit: int | None = None  # where it slows down
    utilization: int | None = None  # percent, when read
    ecc: bool | None = None
    ecc_uncorrected: int | None = None
    remap_pending: bool | None = None  # memory rows that are only replaced after a reset
    mig: bool | None = None
    slice_of: str | None = None  # bus id of the card that a MIG slice is a part of
    profile: str | None = None  # the slice's size in the driver's words, such as 1g.10gb
    compute_mode: str | None = None
    persistence: bool | None = None  # the driver stays loaded while nobody uses the card
    driver_model: DriverModel | None = None
    driver_in_use: str | None = None  # the kernel driver that holds it: nvidia, vfio-pci, …
    start_fault: StartFault | None = None  # why its driver could not start it
    performance_state: str | None = None
    nvlinks: tuple[NvLink, ...] = ()
    numa: int | None = None
    integrated: bool | None = None  # shares the host's memory
    external: bool | None = None  # behind Thunderbolt, USB4 or OCuLink
    chipset: bool | None = None  # its slot hangs off the chipset, whose uplink it shares
    virtual: bool | None = None
    lost: bool = False
    xids: tuple[int, ...] = ()  # NVIDIA's fault numbers in the kernel log
    copy_to: float | None = None  # host to device, pinned, bytes a second
    copy_from: float | None = None
    matmul: tuple[tuple[str, float], ...] = ()  # (dtype, measured operations a second)
    cores: int | None = None  # of the processor, that workers may use
    core_bandwidth: float | None = None  # bytes a second by one of them alone


@dataclass(frozen=True, slots=True)
class PairFacts:
    """What is known of the way between two devices."""

    path: Path | None = None  # common ancestor, in nvidia-smi's words
    nvlinks: int | None = None
    read: P2pStatus | None = None
    write: P2pStatus | None = None
    atomics: P2pStatus | None = None
    forth: float | None = None  # bytes a second from a to b
    back: float | None = None
    both: float | None = None
    staged: float | None = None  # bytes a second one way with peer-to-peer off
    staged_both: float | None = None  # the same, both ways at once
    verdict: Verdict | None = None  # after data was checked at the destination


@dataclass(frozen=True, slots=True)
class Collective:
    """A timed all-reduce. `correct` is whether the sums were checked and right."""

    transport: str
    ranks: int
    nbytes: int
    seconds: float
    correct: bool | None = None
    devices: tuple[str, ...] = ()  # where the ranks ran, in rank order


@dataclass(frozen=True, slots=True)
class HostFacts:
    """The machine around the cards."""

    processor: str | None = None
    architecture: str | None = None  # x86_64, aarch64, …
    sockets: int | None = None
    physical_cores: int | None = None
    logical_cores: int | None = None
    efficiency_cores: int | None = None
    core_limit: float | None = None  # cores that a container may use
    instructions: tuple[
        str, ...
    ] = ()  # of avx2, f16c, avx512f, avx512_vnni, avx512_bf16, amx_int8, …
    memory_limit: int | None = None  # bytes that a container may use
    memory_bandwidth: float | None = None  # bytes a second, measured
    memory_bandwidth_one: float | None = None  # the same, by one core alone
    memory_channels: int | None = None  # populated
    memory_speed: int | None = None  # mega-transfers a second, as configured
    swap: int | None = None
    numa_nodes: int | None = None
    iommu: Literal["off", "passthrough", "on"] | None = None
    acs: bool | None = None  # access control that sends peer traffic through the root
    command_line: str | None = None
    wsl: bool | None = None
    container: str | None = None  # its kind
    virtual_machine: str | None = None  # the hypervisor
    laptop: bool | None = None
    secure_boot: bool | None = None
    shared_memory: int | None = None  # bytes that /dev/shm may hold
    disk_free: int | None = None
    disk_read: float | None = None  # bytes a second
    matmul: tuple[tuple[str, float], ...] = ()


@dataclass(frozen=True, slots=True)
class SoftwareFacts:
    """Versions that must fit the hardware."""

    driver: str | None = None
    cuda_driver: str | None = None  # the newest CUDA that the driver can run
    cuda_module: str | None = None  # kernel module, where it differs from the library
    driver_fault: DriverFault | None = None  # why a driver does not answer
    torch: str | None = None
    torch_cuda: str | None = None
    torch_architectures: tuple[str, ...] = ()  # sm_86, gfx1100, …
    nccl: str | None = None


@dataclass(frozen=True, slots=True)
class Finding:
    """Something wrong or worth knowing: the very values, what it costs, what to do."""

    id: str
    severity: Severity
    devices: tuple[str, ...]
    evidence: str
    cost: str
    remedy: str

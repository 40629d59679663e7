"""What Linux says of the machine around the cards, from files in `/proc`, `/sys` and `/run`.

Knows nothing of psutil or of other systems. Each function reads one fact; None means that the
files do not tell it, and a file that may not be read is as good as absent.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Literal

from local_tp.hardware.live.pci import read_text

# In the order in which they appeared: x86-64, then 64-bit ARM.
INSTRUCTIONS = (
    *("avx", "f16c", "fma", "avx2", "avx512f", "avx512bw", "avx512_vnni", "avx512_bf16"),
    *("avx512_fp16", "avx_vnni", "avx_vnni_int8", "amx_tile", "amx_bf16", "amx_int8", "amx_fp16"),
    *("asimd", "asimddp", "sve", "i8mm", "bf16", "sve2"),
)
# Of a kernel command line only these words matter here; others may name disks and people.
_KERNEL_WORDS = re.compile(
    r"(?:intel_|amd_)?iommu(?:[=.].*)?|pcie?[_=].*|pci|nvidia.*|nouveau.*|amdgpu.*|i915.*|xe\..*"
    r"|vfio.*|modprobe\.blacklist=.*|module_blacklist=.*|rd\.driver\..*|mem=.*|numa.*"
    r"|(?:default_)?hugepages.*|transparent_hugepage=.*|mitigations=.*|isolcpus=.*|nomodeset"
)
_HYPERVISORS = (
    ("vmware", "VMware"),
    ("virtualbox", "VirtualBox"),
    ("innotek", "VirtualBox"),
    ("xen", "Xen"),
    ("amazon", "Amazon EC2"),
    ("google", "Google Compute Engine"),
    ("parallels", "Parallels"),
    ("bhyve", "bhyve"),
    ("microsoft", "Hyper-V"),
    ("qemu", "KVM"),
    ("kvm", "KVM"),
)
UNKNOWN_HYPERVISOR = "of an unknown kind"
_LAPTOP_CHASSIS = frozenset({"8", "9", "10", "11", "14", "30", "31", "32"})  # SMBIOS 3, type 3
_CONTAINERS = ("docker", "kubepods", "libpod", "podman", "lxc", "containerd", "nspawn")
_SECURE_BOOT = "sys/firmware/efi/efivars/SecureBoot-8be4df61-93ca-11d2-aa0d-00e098032b8c"


def instructions(root: Path) -> tuple[str, ...]:
    """The vector and matrix instruction sets that this program cares for."""
    text = read_text(root / "proc/cpuinfo") or ""
    match = re.search(r"^(?:flags|Features)\s*:(.*)$", text, re.MULTILINE)
    have = set(match.group(1).split()) if match else set()
    return tuple(name for name in INSTRUCTIONS if name in have)


def sockets(root: Path) -> int | None:
    return len({read_text(cpu / "topology/physical_package_id") for cpu in _cpus(root)}) or None


def physical_cores(root: Path) -> int | None:
    """Cores of the whole machine; threads of one core count once."""
    shared = (read_text(cpu / "topology/core_cpus_list") for cpu in _cpus(root))
    return len({siblings for siblings in shared if siblings}) or None


def logical_cores(root: Path) -> int | None:
    return sum(1 for _ in _cpus(root)) or None


def efficiency_cores(root: Path) -> int | None:
    """Small cores: Intel lists them apart, ARM gives each core a share of the largest."""
    if cores := read_text(root / "sys/devices/cpu_atom/cpus"):
        return _how_many(cores)
    capacities = [read_text(cpu / "cpu_capacity") for cpu in _cpus(root)]
    known = [int(text) for text in capacities if text and text.isdecimal()]
    if known:
        return sum(capacity < max(known) for capacity in known)
    return 0 if (root / "sys/devices/cpu_core").exists() else None


def swap(root: Path) -> int | None:
    """Bytes of swap, in use or not."""
    match = re.search(r"^SwapTotal:\s*(\d+) kB", read_text(root / "proc/meminfo") or "", re.M)
    return int(match.group(1)) * 1024 if match else None


def numa_nodes(root: Path) -> int | None:
    return len(list((root / "sys/devices/system/node").glob("node[0-9]*"))) or None


def iommu(root: Path) -> Literal["off", "passthrough", "on"] | None:
    """Whether devices' addresses are translated: what the cards' own groups say decides."""
    units = root / "sys/class/iommu"
    if not units.is_dir():
        return None
    if not any(units.iterdir()):
        return "off"
    groups = root / "sys/kernel/iommu_groups"
    kinds = {kind for path in groups.glob("*/type") if (kind := read_text(path))}
    if kinds:
        return "passthrough" if kinds == {"identity"} else "on"
    words = (read_text(root / "proc/cmdline") or "").split()
    return "passthrough" if {"iommu=pt", "iommu.passthrough=1"} & set(words) else "on"


def command_line(root: Path) -> str | None:
    """The words of the kernel command line that concern cards, memory and buses."""
    if (text := read_text(root / "proc/cmdline")) is None:
        return None
    return " ".join(word for word in text.split() if _KERNEL_WORDS.fullmatch(word))


def is_wsl(root: Path) -> bool | None:
    release = read_text(root / "proc/sys/kernel/osrelease")
    return None if release is None else "microsoft" in release.lower()


def container(root: Path) -> str | None:
    """The kind of container that this process runs in."""
    if named := read_text(root / "run/systemd/container"):
        return named
    if (root / "run/.containerenv").exists():
        return "podman"
    if (root / ".dockerenv").exists():
        return "docker"
    environment = read_text(root / "proc/1/environ") or ""
    if match := re.search(r"(?:^|\0)container=([\w-]+)", environment):
        return match.group(1)
    groups = read_text(root / "proc/1/cgroup") or ""
    return next((kind for kind in _CONTAINERS if kind in groups), None)


def virtual_machine(root: Path) -> str | None:
    """The hypervisor below this system, None on bare metal. WSL is told by `is_wsl`."""
    if is_wsl(root):
        return None
    identity = root / "sys/class/dmi/id"
    names = ("sys_vendor", "product_name", "bios_vendor")
    said = " ".join(read_text(identity / name) or "" for name in names).lower()
    flags = re.search(r"^flags\s*:.*\bhypervisor\b", read_text(root / "proc/cpuinfo") or "", re.M)
    if kind := read_text(root / "sys/hypervisor/type"):
        return "Xen" if kind == "xen" else kind
    if not flags and "qemu" not in said:  # ARM has no such flag
        return None
    # Microsoft and Google make real machines too, but those have no hypervisor flag.
    return next((name for word, name in _HYPERVISORS if word in said), UNKNOWN_HYPERVISOR)


def is_laptop(root: Path) -> bool | None:
    """By the kind of case, or by a battery that is not a mouse's."""
    for supply in (root / "sys/class/power_supply").glob("*"):
        if read_text(supply / "type") == "Battery" and read_text(supply / "scope") != "Device":
            return True
    chassis = read_text(root / "sys/class/dmi/id/chassis_type")
    return None if chassis is None else chassis in _LAPTOP_CHASSIS


def secure_boot(root: Path) -> bool | None:
    """Whether only signed kernel modules load; a machine started without UEFI has no such thing."""
    try:
        return (root / _SECURE_BOOT).read_bytes()[4:5] == b"\1"  # after four bytes of attributes
    except OSError:
        firmware = root / "sys/firmware"
        return False if firmware.is_dir() and not (firmware / "efi").exists() else None


def _how_many(listed: str) -> int:
    """How many numbers a list such as `0-3,8` holds; none where it is no such list."""
    count = 0
    for part in listed.split(","):
        first, _, last = part.strip().partition("-")
        if not first.isdecimal() or (last and not last.isdecimal()):
            return 0
        count += max(0, int(last or first) - int(first) + 1)
    return count


def _cpus(root: Path) -> Iterator[Path]:
    """The folder of each logical core that is in use."""
    for path in sorted((root / "sys/devices/system/cpu").glob("cpu[0-9]*")):
        if (path / "topology").is_dir():
            yield path

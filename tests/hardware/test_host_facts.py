"""The machine around the cards: files of other people's systems written to disk, and this one's."""

from __future__ import annotations

import importlib.metadata
import struct
import sys
from pathlib import Path

import psutil
import pytest
from fake_bus import add_bridge, add_function, write

from local_tp.facts import HostFacts
from local_tp.hardware.live import linux_facts
from local_tp.hardware.live.host_facts import read_host_facts
from local_tp.hardware.live.memory_modules import Modules, parse_modules
from local_tp.hardware.live.nvidia import Nvidia
from local_tp.hardware.live.pci_access import redirects_peers
from local_tp.hardware.live.software import read_software
from local_tp.hardware.probe import probe

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="files as Linux writes them")
GIB = 1024**3
CPUS = "sys/devices/system/cpu"


def add_cores(root: Path, siblings: list[str], packages: list[str]) -> None:
    for number, (shared, package) in enumerate(zip(siblings, packages, strict=True)):
        topology = f"{CPUS}/cpu{number}/topology"
        write(root, {f"{topology}/core_cpus_list": shared})
        write(root, {f"{topology}/physical_package_id": package})


def facts(root: Path) -> HostFacts:
    unknown: list[str] = []
    found = read_host_facts(root, "A Processor", unknown)
    assert unknown == []
    return found


def test_a_desktop_with_small_cores(tmp_path: Path) -> None:
    add_cores(tmp_path, ["0-1", "0-1", "2-3", "2-3", "4", "5"], ["0"] * 6)
    flags = "fpu sse2 avx f16c fma avx2 avx_vnni"
    write(
        tmp_path,
        {
            "proc/cpuinfo": f"processor\t: 0\nflags\t\t: {flags}\n",
            "proc/meminfo": "MemTotal:       1 kB\nSwapTotal:       8388608 kB",
            "proc/cmdline": "BOOT_IMAGE=/vmlinuz root=UUID=12-34 quiet iommu=pt amd_iommu=on "
            "pcie_aspm=off user=somebody nvidia-drm.modeset=1",
            "proc/sys/kernel/osrelease": "6.8.0-45-generic",
            "sys/devices/cpu_core/cpus": "0-3",
            "sys/devices/cpu_atom/cpus": "4-5",
            "sys/devices/system/node/node0/cpulist": "0-5",
            "sys/class/dmi/id/chassis_type": "3",
            "sys/class/power_supply/hidpp_battery_0/type": "Battery",
            "sys/class/power_supply/hidpp_battery_0/scope": "Device",
            "sys/class/iommu/ivhd0/devices": "",
            "sys/kernel/iommu_groups/0/type": "identity",
            "sys/firmware/acpi/x": "",
        },
    )
    found = facts(tmp_path)
    assert (found.physical_cores, found.logical_cores, found.efficiency_cores) == (4, 6, 2)
    assert (found.sockets, found.numa_nodes, found.swap) == (1, 1, 8 * GIB)
    assert found.instructions == ("avx", "f16c", "fma", "avx2", "avx_vnni")
    assert found.command_line == "iommu=pt amd_iommu=on pcie_aspm=off nvidia-drm.modeset=1"
    assert (found.wsl, found.container, found.virtual_machine) == (False, None, None)
    assert (found.laptop, found.secure_boot, found.iommu) == (False, False, "passthrough")
    assert (found.processor, found.memory_limit, found.core_limit) == ("A Processor", None, None)


def test_two_sockets(tmp_path: Path) -> None:
    add_cores(tmp_path, ["0,4", "1,5", "2,6", "3,7"] * 2, ["0", "0", "1", "1"] * 2)
    write(tmp_path, {f"sys/devices/system/node/node{n}/cpulist": "" for n in (0, 1)})
    found = facts(tmp_path)
    assert (found.sockets, found.physical_cores, found.logical_cores) == (2, 4, 8)
    assert found.numa_nodes == 2


def test_arm_gives_each_core_a_share_of_the_largest(tmp_path: Path) -> None:
    add_cores(tmp_path, ["0", "1", "2"], ["0"] * 3)
    write(tmp_path, {f"{CPUS}/cpu{n}/cpu_capacity": str(c) for n, c in enumerate((381, 1024, 381))})
    write(tmp_path, {"proc/cpuinfo": "Features\t: fp asimd asimddp sve i8mm bf16"})
    assert facts(tmp_path).efficiency_cores == 2
    assert facts(tmp_path).instructions == ("asimd", "asimddp", "sve", "i8mm", "bf16")


def test_nothing_readable_is_nothing_known(tmp_path: Path) -> None:
    found = facts(tmp_path)
    for name in HostFacts.__dataclass_fields__:
        if name not in ("processor", "architecture", "disk_free"):
            assert getattr(found, name) in (None, ()), name


@pytest.mark.parametrize("content", [b"", b"\xff\xfe\0", b"-1-,:\n:::\n", b"9" * 5000])
def test_damaged_files_stop_nothing(tmp_path: Path, content: bytes) -> None:
    add_cores(tmp_path, ["0"], ["0"])
    add_function(tmp_path, "0000:00:01.0/0000:01:00.0", "0x1002", "0x744c", "amdgpu")
    names = "cpuinfo meminfo cmdline sys/kernel/osrelease self/cgroup self/mountinfo 1/environ"
    node = "sys/class/kfd/kfd/topology/nodes/0"
    others = [f"{node}/properties", "sys/devices/cpu_atom/cpus", "sys/class/iommu/x/y"]
    others += ["sys/class/dmi/id/chassis_type", "sys/kernel/iommu_groups/0/type"]
    write(tmp_path, dict.fromkeys([*(f"proc/{name}" for name in names.split(" ")), *others], ""))
    for path in tmp_path.rglob("*"):
        if path.is_file() and path.name not in ("vendor", "device", "class"):
            path.write_bytes(content)
    rig = probe(tmp_path)
    assert [device.kind for device in rig.devices] == ["rocm", "cpu"]
    assert all("\n" not in line for line in rig.unknown)


def test_wsl_is_no_other_virtual_machine(tmp_path: Path) -> None:
    write(tmp_path, {"proc/sys/kernel/osrelease": "5.15.153.1-microsoft-standard-WSL2"})
    write(tmp_path, {"proc/cpuinfo": "flags\t: avx2 hypervisor"})
    assert (facts(tmp_path).wsl, facts(tmp_path).virtual_machine) == (True, None)


@pytest.mark.parametrize(
    ("vendor", "product", "flags", "kind"),
    [
        ("QEMU", "Standard PC (Q35 + ICH9, 2009)", "hypervisor", "KVM"),
        ("VMware, Inc.", "VMware7,1", "hypervisor", "VMware"),
        ("innotek GmbH", "VirtualBox", "hypervisor", "VirtualBox"),
        ("Microsoft Corporation", "Virtual Machine", "hypervisor", "Hyper-V"),
        ("Microsoft Corporation", "Surface Laptop 5", "", None),
        ("Amazon EC2", "g5.xlarge", "hypervisor", "Amazon EC2"),
        ("ASUS", "System Product Name", "", None),
        ("", "", "hypervisor", "of an unknown kind"),
    ],
)
def test_hypervisors(
    tmp_path: Path, vendor: str, product: str, flags: str, kind: str | None
) -> None:
    identity = "sys/class/dmi/id"
    write(tmp_path, {f"{identity}/sys_vendor": vendor, f"{identity}/product_name": product})
    write(tmp_path, {"proc/cpuinfo": f"flags\t\t: avx {flags}"})
    assert facts(tmp_path).virtual_machine == kind


@pytest.mark.parametrize(
    ("files", "kind"),
    [
        ({".dockerenv": ""}, "docker"),
        ({"run/.containerenv": "", ".dockerenv": ""}, "podman"),
        ({"run/systemd/container": "systemd-nspawn"}, "systemd-nspawn"),
        ({"proc/1/environ": "PATH=/bin\0container=lxc\0TERM=x"}, "lxc"),
        ({"proc/1/cgroup": "0::/kubepods/besteffort/pod1"}, "kubepods"),
        ({"proc/1/cgroup": "0::/init.scope"}, None),
    ],
)
def test_containers(tmp_path: Path, files: dict[str, str], kind: str | None) -> None:
    assert facts(write(tmp_path, files)).container == kind


@pytest.mark.parametrize(
    ("files", "laptop"),
    [
        ({"sys/class/dmi/id/chassis_type": "10"}, True),
        ({"sys/class/power_supply/BAT0/type": "Battery"}, True),
        ({"sys/class/power_supply/AC/type": "Mains"}, None),
    ],
)
def test_laptops(tmp_path: Path, files: dict[str, str], laptop: bool | None) -> None:
    assert facts(write(tmp_path, files)).laptop is laptop


@pytest.mark.parametrize(("byte", "state"), [(b"\1", True), (b"\0", False)])
def test_secure_boot_is_the_fifth_byte(tmp_path: Path, byte: bytes, state: bool) -> None:
    variable = tmp_path / linux_facts._SECURE_BOOT
    variable.parent.mkdir(parents=True)
    variable.write_bytes(b"\6\0\0\0" + byte)
    assert facts(tmp_path).secure_boot is state


@pytest.mark.parametrize(
    ("kinds", "words", "state"),
    [
        (["DMA-FQ", "identity"], "iommu=pt", "on"),
        (["identity"], "", "passthrough"),
        ([], "quiet iommu=pt", "passthrough"),
        ([], "quiet", "on"),
    ],
)
def test_the_iommus_groups_say_more_than_its_switch(
    tmp_path: Path, kinds: list[str], words: str, state: str
) -> None:
    write(tmp_path, {"sys/class/iommu/dmar0/x": "", "proc/cmdline": words})
    groups = "sys/kernel/iommu_groups"
    write(tmp_path, {f"{groups}/{number}/type": kind for number, kind in enumerate(kinds)})
    assert facts(tmp_path).iommu == state


def test_an_iommu_that_is_not_there_is_off(tmp_path: Path) -> None:
    (tmp_path / "sys/class/iommu").mkdir(parents=True)
    assert facts(tmp_path).iommu == "off"


def extended(control: int | None) -> bytes:
    """A configuration space of 4 KiB: an error capability, and access control behind it."""
    space = bytearray(4096)
    struct.pack_into("<I", space, 0x100, 0x0001 | 1 << 16 | 0x148 << 20)
    if control is not None:
        struct.pack_into("<IHH", space, 0x148, 0x000D | 1 << 16, 0x1F, control)
    return bytes(space)


@pytest.mark.parametrize(
    ("space", "answer"),
    [
        (extended(0x1D), True),  # redirects requests and completions
        (extended(0x01), False),
        (extended(None), False),
        (extended(0x1D)[:64], None),  # all that one who is no administrator sees
        (b"", None),
    ],
)
def test_access_control_of_the_bridge_above_a_card(
    tmp_path: Path, space: bytes, answer: bool | None
) -> None:
    add_bridge(tmp_path, "0000:00:01.0", "0x1022", "0x14db", "16.0", "16")
    add_function(tmp_path, "0000:00:01.0/0000:01:00.0", "0x10de", "0x2204", "nvidia")
    (tmp_path / "sys/devices/pci0000:00/0000:00:01.0/config").write_bytes(space)
    assert redirects_peers(tmp_path) is answer


MODULE = (
    "Handle 0x{n:04x}, DMI type 17, 92 bytes\nMemory Device\n\tTotal Width: 64 bits\n"
    "\tSize: {size}\n\tLocator: {place}\n\tBank Locator: {bank}\n\tSpeed: 6000 MT/s\n"
    "\tConfigured Memory Speed: {speed}\n"
)


@pytest.mark.parametrize(
    ("modules", "expected"),
    [
        (
            [("16 GB", "DIMM 0", f"P0 CHANNEL {letter}", "4800 MT/s") for letter in "AB"]
            + [("No Module Installed", "DIMM 1", "P0 CHANNEL A", "Unknown")],
            Modules(2, 4800),
        ),
        (
            [("16384 MB", place, "BANK 0", "3200 MT/s") for place in ("DIMM_A1", "DIMM_A2")],
            Modules(1, 3200),
        ),
        (
            [("8 GB", f"Controller{n}-ChannelA-DIMM0", f"BANK {n}", "5600 MT/s") for n in (0, 1)],
            Modules(2, 5600),
        ),
        (
            [("8 GB", "Slot", "here", "3600 MT/s"), ("8 GB", "B", "", "3200 MT/s")],
            Modules(None, 3200),
        ),
        ([], Modules(None, None)),
    ],
)
def test_memory_modules(modules: list[tuple[str, str, str, str]], expected: Modules) -> None:
    blocks = [
        MODULE.format(n=n, size=size, place=place, bank=bank, speed=speed)
        for n, (size, place, bank, speed) in enumerate(modules)
    ]
    assert parse_modules("# dmidecode 3.4\n\n" + "\n".join(blocks)) == expected


def test_this_machine_answers_as_psutil_does() -> None:
    found = facts(Path("/"))
    assert found.logical_cores == psutil.cpu_count()
    assert found.physical_cores == psutil.cpu_count(logical=False)
    assert found.swap == psutil.swap_memory().total
    assert found.disk_free
    assert found.disk_free > 0
    if found.memory_limit is not None:
        assert found.memory_limit < psutil.virtual_memory().total


def test_software_is_read_without_loading_it(tmp_path: Path) -> None:
    kernel = "NVRM version: NVIDIA UNIX x86_64 Kernel Module  535.54.03  Tue Jun  6 2023"
    write(tmp_path, {"proc/driver/nvidia/version": kernel})
    same = read_software(Nvidia(driver="535.54.03", cuda="12.2"), tmp_path)
    assert (same.driver, same.cuda_driver, same.cuda_module) == ("535.54.03", "12.2", None)
    assert same.torch == importlib.metadata.version("torch")
    newer = read_software(Nvidia(fault="mismatch"), tmp_path)
    assert (newer.driver, newer.cuda_module, newer.driver_fault) == (None, "535.54.03", "mismatch")
    assert read_software(Nvidia(), tmp_path / "nowhere").cuda_module is None


@pytest.mark.parametrize(
    ("version", "text", "cuda"),
    [
        ("2.13.0+cu130", "", "13.0"),
        ("2.7.1+cu118", "", "11.8"),
        ("2.13.0+cpu", "cuda = '13.0'", None),
        ("2.13.0", "__version__ = '2.13.0'\ncuda: Optional[str] = '13.0'\n", "13.0"),
        ("2.13.0", "cuda: Optional[str] = None\n", None),
        (None, "", None),
    ],
)
def test_the_cuda_that_torch_was_built_with(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    version: str | None,
    text: str,
    cuda: str | None,
) -> None:
    """Installed packages in a folder of their own, as an installer writes them."""
    monkeypatch.setattr(sys, "path", [str(tmp_path)])
    if version:
        metadata = f"Metadata-Version: 2.1\nName: torch\nVersion: {version}"
        write(tmp_path, {f"torch-{version}.dist-info/METADATA": metadata, "torch/version.py": text})
    write(
        tmp_path,
        {"nvidia_nccl_cu13-2.29.7.dist-info/METADATA": "Name: nvidia-nccl-cu13\nVersion: 2.29.7"},
    )
    found = read_software(Nvidia(), tmp_path / "nowhere")
    assert (found.torch, found.torch_cuda, found.nccl) == (version, cuda, "2.29.7")

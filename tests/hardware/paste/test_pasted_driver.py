"""What tools print when a driver does not answer: a fault, in words, with a remedy."""

from __future__ import annotations

import pytest
from pasted_text import found, read

from local_tp.facts import DriverFault
from local_tp.hardware.diagnose import diagnose

KFD = "Unable to open /dev/kfd read-write: "
FAULTS: list[tuple[str, DriverFault, str]] = [
    (
        "NVIDIA-SMI has failed because it couldn't communicate with the NVIDIA driver. Make sure "
        "that the latest NVIDIA driver is installed and running.",
        "not-running",
        "driver-not-running",
    ),
    (
        "NVIDIA-SMI has failed because it couldn\ufffdt communicate with the NVIDIA driver.",
        "not-running",
        "driver-not-running",
    ),
    ("Failed to initialize NVML: Driver Not Loaded", "not-running", "driver-not-running"),
    (
        "Failed to initialize NVML: Driver/library version mismatch\nNVML library version: 550.120",
        "mismatch",
        "driver-mismatch",
    ),
    (
        "NVIDIA-SMI couldn't find libnvidia-ml.so library in your system. Please make sure that the"
        " NVIDIA Display Driver is properly installed and present in your system.",
        "library-missing",
        "driver-library-missing",
    ),
    ("bash: nvidia-smi: command not found", "library-missing", "driver-library-missing"),
    ("zsh: command not found: nvidia-smi", "library-missing", "driver-library-missing"),
    (
        "'nvidia-smi' is not recognized as an internal or external command,",
        "library-missing",
        "driver-library-missing",
    ),
    ("Failed to initialize NVML: Unknown Error", "unknown-error", "driver-unknown-error"),
    (
        "Failed to initialize NVML: GPU access blocked by the operating system\n"
        "Failed to properly shut down NVML: GPU access blocked by the operating system",
        "unknown-error",
        "driver-unknown-error",
    ),
    ("Failed to initialize NVML: Timeout", "unknown-error", "driver-unknown-error"),
    (
        "Failed to initialize NVML: Insufficient Permissions",
        "no-permission",
        "driver-no-permission",
    ),
    (
        "NVIDIA-SMI has failed because you are not:\n\ta) running as an administrator or",
        "no-permission",
        "driver-no-permission",
    ),
    (f"ROCk module is loaded\n{KFD}Permission denied", "no-permission", "driver-no-permission"),
    (f"{KFD}No such file or directory", "amdgpu-missing", "driver-amdgpu-missing"),
    (
        "ROCk module is NOT loaded, possibly no GPU devices",
        "amdgpu-missing",
        "driver-amdgpu-missing",
    ),
    (
        "cat: /sys/module/amdgpu/initstate: No such file or directory\n"
        "ERROR:root:Driver not initialized (amdgpu not found in modules)",
        "amdgpu-missing",
        "driver-amdgpu-missing",
    ),
    (
        "amdsmi_exception.AmdSmiLibraryException: Error code:\n\t34 | "
        "AMDSMI_STATUS_DRIVER_NOT_LOADED - Driver not loaded",
        "amdgpu-missing",
        "driver-amdgpu-missing",
    ),
    (
        "rsmi_init() failed\nROCm SMI returned 8 (the expected value is 0)",
        "unknown-error",
        "driver-unknown-error",
    ),
]


@pytest.mark.parametrize(("text", "fault", "id"), FAULTS)
def test_a_driver_that_does_not_answer_is_a_fault_with_a_remedy(
    text: str, fault: DriverFault, id: str
) -> None:
    pasted = read(f"$ nvidia-smi\n{text}\n")
    assert pasted.rig.software.driver_fault == fault
    assert [(f.severity, f.id) for f in diagnose(pasted.rig)] == [("error", id)]


def test_a_driver_that_lost_its_only_card_is_a_lost_card() -> None:
    pasted = read("Failed to initialize NVML: GPU is lost\n")
    assert pasted.rig.software.driver_fault is None
    assert found(pasted.rig) == {"gpu-lost": ()}


def test_a_known_fault_counts_before_an_unknown_one() -> None:
    text = "rsmi_init() failed\nDriver not initialized (amdgpu not found in modules)\n"
    assert read(text).rig.software.driver_fault == "amdgpu-missing"


def test_nobodys_name_is_handed_on() -> None:
    said = f'{KFD}Permission denied\nberta is not member of "render" group, the default DRM access'
    pasted = read(said)
    assert pasted.rig.unknown == ("AMD's tools: this user may not open /dev/kfd",)
    assert "berta" not in f"{pasted.unread} {diagnose(pasted.rig)}"


def test_a_fault_beside_the_bus_list_keeps_the_card() -> None:
    rig = read(
        "No devices were found\n",
        "41:00.0 VGA compatible controller [0300]: NVIDIA Corporation Device [10de:2bb1] (rev a1)\n"
        "41:00.1 Audio device [0403]: NVIDIA Corporation Device [10de:22e8] (rev a1)\n",
    ).rig
    (card,) = rig.devices
    assert card.name == "NVIDIA RTX PRO 6000 Blackwell Workstation Edition"
    assert found(rig) == {"driver-sees-no-card": ("0000:41:00.0",)}

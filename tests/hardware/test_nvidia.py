"""The cards read from a real shared library that answers as NVML does, in a process of its own."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from local_tp.codec import decode
from local_tp.core import Device, Link, Pcie, Rig
from local_tp.hardware.nvidia import Nvidia

MIB = 1024**2
GIB = 1024**3
Ask = Callable[..., str]
Probe = Callable[..., Nvidia]

PROGRAM = """
import json, sys
from pathlib import Path
from local_tp.codec import encode
from local_tp.hardware.{module} import {function}
print(json.dumps(encode({function}(Path(sys.argv[1])))))
assert "torch" not in sys.modules
"""

RTX_3060 = Device(
    id="0000:0a:00.0",
    kind="cuda",
    name="NVIDIA GeForce RTX 3060",
    total=12 * GIB,
    free=11 * GIB,
    reserve=1024 * MIB,
    capability=(8, 6),
    pcie=Pcie(generation=3, width=4, max_generation=4, max_width=16),
    display=True,
    uuid="GPU-3060",
)
RTX_5060_TI = Device(
    id="0000:41:00.0",
    kind="cuda",
    name="NVIDIA GeForce RTX 5060 Ti",
    total=16 * GIB,
    free=16642998272,
    reserve=512 * MIB,
    capability=(12, 0),
    pcie=Pcie(generation=1, width=8, max_generation=5, max_width=8),
    display=False,
    uuid="GPU-5060",
)


@pytest.fixture(scope="session")
def stub(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder that holds the stub library."""
    folder = tmp_path_factory.mktemp("nvml")
    source = Path(__file__).with_name("nvml_stub.c")
    library = folder / "libnvidia-ml.so.1"
    subprocess.run(
        ["gcc", "-shared", "-fPIC", "-Wall", "-Wextra", "-Werror", "-o", library, source],
        check=True,
    )
    return folder


@pytest.fixture
def ask(stub: Path, tmp_path: Path) -> Ask:
    """Runs one function of the package, in a process that finds the stub as its only NVML."""

    def run(
        program: str, cards: int = 2, fail: str = "", nvlink: str | None = None, at: Path = stub
    ) -> str:
        environment = os.environ | {
            "LD_LIBRARY_PATH": str(at),
            "NVML_STUB_CARDS": str(cards),
            "NVML_STUB_FAIL": fail,
        }
        if nvlink is not None:
            environment["NVML_STUB_NVLINK"] = nvlink
        done = subprocess.run(
            [sys.executable, "-c", program, str(tmp_path)],
            env=environment,
            cwd=Path(__file__).parents[2],
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        return done.stdout

    return run


@pytest.fixture
def probe_with(ask: Ask) -> Probe:
    """Reads the stub's cards: `probe_with(cards=2, fail="call:card:code")`."""
    program = PROGRAM.format(module="nvidia", function="read_nvidia")
    return lambda **options: decode(Nvidia, json.loads(ask(program, **options)))


def test_two_mismatched_cards_in_slot_order(probe_with: Probe) -> None:
    found = probe_with(cards=2)
    assert found.devices == (RTX_3060, RTX_5060_TI)
    assert found.driver == "580.65.06"
    assert found.unknown == ()
    # The stub says that peer-to-peer works; nobody has checked.
    assert found.links == (Link("0000:0a:00.0", "0000:41:00.0", "host", verified=False),)


def test_the_whole_probe_puts_the_cards_before_the_processor(ask: Ask) -> None:
    program = PROGRAM.format(module="probe", function="probe")
    rig = decode(Rig, json.loads(ask(program, cards=2, fail="nvmlDeviceGetUUID:0:3")))
    assert [device.id for device in rig.devices] == ["0000:0a:00.0", "0000:41:00.0", "cpu"]
    assert rig.devices[0] == RTX_3060
    assert (rig.driver, len(rig.links)) == ("580.65.06", 1)
    assert "0000:41:00.0: UUID: Not Supported" in rig.unknown


def test_one_card_has_no_links(probe_with: Probe) -> None:
    found = probe_with(cards=1)
    assert found.devices == (RTX_5060_TI,)
    assert found.links == ()


def test_a_driver_without_cards(probe_with: Probe) -> None:
    found = probe_with(cards=0)
    assert found.devices == ()
    assert (found.driver, found.unknown) == ("580.65.06", ())


def test_active_nvlink_between_two_cards(probe_with: Probe) -> None:
    found = probe_with(nvlink="1")
    assert found.links == (Link("0000:0a:00.0", "0000:41:00.0", "nvlink", verified=False),)


def test_nvlink_to_something_else_joins_no_cards(probe_with: Probe) -> None:
    found = probe_with(nvlink="2")
    assert [link.kind for link in found.links] == ["host"]
    assert found.unknown == ("0000:41:00.0: its NVLink leads to 0000:ff:00.0, no card read here",)


@pytest.mark.parametrize(
    ("call", "code", "words"),
    [
        ("nvmlDeviceGetHandleByIndex_v2", 15, "NVIDIA card 0 in the driver's order: left out"),
        ("nvmlDeviceGetMemoryInfo", 15, "0000:41:00.0: left out, because the driver says: GPU is"),
        ("nvmlDeviceGetUUID", 15, "0000:41:00.0: left out, because the driver says: GPU is lost"),
        ("nvmlDeviceGetNvLinkState", 15, "0000:41:00.0: left out, because the driver says: GPU is"),
        ("nvmlDeviceGetName", 16, "0000:41:00.0: left out, because the driver says: GPU requires"),
    ],
)
def test_a_lost_card_is_left_out_and_said(
    probe_with: Probe, call: str, code: int, words: str
) -> None:
    found = probe_with(fail=f"{call}:0:{code}")
    assert found.devices == (RTX_3060,)
    assert len(found.unknown) == 1
    assert found.unknown[0].startswith(words)


def test_a_card_of_unknown_memory_is_left_out(probe_with: Probe) -> None:
    found = probe_with(fail="nvmlDeviceGetMemoryInfo:1:3")
    assert found.devices == (RTX_5060_TI,)
    assert found.unknown == (
        "0000:0a:00.0: memory: Not Supported",
        "0000:0a:00.0: left out, because its memory is not known",
    )


@pytest.mark.parametrize(
    ("call", "label", "field"),
    [
        ("nvmlDeviceGetCudaComputeCapability", "compute capability", "capability"),
        ("nvmlDeviceGetUUID", "UUID", "uuid"),
    ],
)
def test_a_field_not_supported_is_unknown_and_the_rest_is_kept(
    probe_with: Probe, call: str, label: str, field: str
) -> None:
    found = probe_with(fail=f"{call}:1:3")
    device = found.devices[0]
    assert getattr(device, field) is None
    assert (device.id, device.total) == (RTX_3060.id, RTX_3060.total)
    assert found.unknown == (f"0000:0a:00.0: {label}: Not Supported",)


def test_one_pcie_value_not_supported_keeps_the_other_three(probe_with: Probe) -> None:
    found = probe_with(fail="nvmlDeviceGetMaxPcieLinkWidth:1:3,nvmlDeviceGetMaxPcieLinkWidth:0:13")
    assert found.devices[0].pcie == Pcie(generation=3, width=4, max_generation=4)
    assert found.unknown == (
        "0000:41:00.0: PCIe width at most: Function Not Found",
        "0000:0a:00.0: PCIe width at most: Not Supported",
    )


def test_a_display_that_cannot_be_asked_for_gets_the_larger_reserve(probe_with: Probe) -> None:
    found = probe_with(fail="nvmlDeviceGetDisplayMode:0:3,nvmlDeviceGetDisplayActive:0:3")
    card = found.devices[1]
    assert (card.display, card.reserve) == (None, 1024 * MIB)
    assert len(found.unknown) == 2


@pytest.mark.parametrize(
    ("code", "words"),
    [
        (9, "NVIDIA cards: the driver is installed but not loaded: restart the PC, or reinstall"),
        (18, "NVIDIA cards: the driver was updated while an older one is still loaded: restart"),
        (999, "NVIDIA cards: the driver does not answer: Unknown Error"),
    ],
)
def test_a_library_whose_driver_does_not_answer(probe_with: Probe, code: int, words: str) -> None:
    found = probe_with(fail=f"nvmlInitWithFlags:*:{code}")
    assert found.devices == ()
    assert len(found.unknown) == 1
    assert found.unknown[0].startswith(words)


def test_driver_and_count_that_cannot_be_read(probe_with: Probe) -> None:
    found = probe_with(fail="nvmlSystemGetDriverVersion:*:999,nvmlDeviceGetCount_v2:*:999")
    assert (found.driver, found.devices) == (None, ())
    assert found.unknown == (
        "NVIDIA driver version: Unknown Error",
        "number of NVIDIA cards: Unknown Error",
    )


def test_no_library_is_simply_no_card_unless_a_driver_is_loaded(
    probe_with: Probe, tmp_path: Path
) -> None:
    broken = tmp_path / "library"
    broken.mkdir()
    (broken / "libnvidia-ml.so.1").write_bytes(b"")
    assert probe_with(at=broken).unknown == ()

    (tmp_path / "proc/driver/nvidia").mkdir(parents=True)
    (line,) = probe_with(at=broken).unknown
    assert line.startswith("NVIDIA cards: the driver is loaded but its NVML library was not found")

"""Every way in which NVML fails, each made by the stub across the real C boundary."""

from __future__ import annotations

import json
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import psutil
import pytest
from nvml_machine import build_stub, read_with, run_with

from local_tp.codec import decode
from local_tp.core import Pcie, Rig
from local_tp.hardware.devices import default_devices, resolve_devices
from local_tp.hardware.live.nvidia import Progress, module_version

FIRST, SECOND = "0000:0a:00.0", "0000:41:00.0"  # NVML's numbers 1 and 0
MIB = 1024**2

# Reads the machine once for each entry, all in one process. Only a test may do so: the program
# itself never calls NVML in a process that it needs.
MANY = """
import contextlib, io, json, os, sys
from pathlib import Path
from local_tp.hardware.live import nvidia_child
for entry in json.loads(sys.argv[2]):
    os.environ["NVML_STUB_FAIL"] = entry
    said = io.StringIO()
    with contextlib.redirect_stdout(said):
        nvidia_child.main(Path(sys.argv[1]))
    print(said.getvalue().splitlines()[-1])
"""
CODES = (*range(1, 31), 777, 999)
QUIET = frozenset({2, 3, 13, 21, 22, 25, 26})  # a good card may lack a feature
LOST = frozenset({15, 16})


@pytest.fixture(scope="module")
def stub(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build_stub(tmp_path_factory.mktemp("nvml"))


def test_every_code_for_every_field_at_once(stub: Path, tmp_path: Path) -> None:
    entries = [f"all:1:{code}" for code in CODES]
    lines = run_with(stub, MANY, tmp_path, json.dumps(entries)).splitlines()
    assert len(lines) == len(CODES)
    for code, line in zip(CODES, lines, strict=True):
        found = decode(Progress, json.loads(line)).found
        first, second = found.devices
        assert (first.id, second.id, second.uuid) == (FIRST, SECOND, "GPU-5060"), code
        told = [text for text in found.unknown if text.startswith(FIRST)]
        assert told, code
        if code in LOST:
            assert (first.facts.lost, first.total) == (True, 0), code
            continue
        assert first.facts.lost is False, code
        assert (first.total, first.uuid, first.capability) == (12 * 1024 * MIB, None, None), code
        assert first.pcie == Pcie(), code
        assert "UUID" in told[0], code
        # What most cards have none of is missed aloud only where something is wrong.
        assert ("BAR1" in told[0]) == (code not in QUIET), code


FIELDS = (
    ("PcieReplayCounter", "replays", "PCIe replays"),
    ("PowerUsage", "power_draw", "power draw"),
    ("PowerManagementLimit", "power_limit", "power limit"),
    ("PowerManagementDefaultLimit", "power_default", "default power limit"),
    ("PowerManagementLimitConstraints", "power_max", "power limits"),
    ("UtilizationRates", "utilization", "utilization"),
    ("ComputeMode", "compute_mode", "compute mode"),
    ("PerformanceState", "performance_state", "performance state"),
    ("PersistenceMode", "persistence", "persistence mode"),
    ("Architecture", "architecture", "architecture"),
    ("GpuMaxPcieLinkGeneration", "pcie_card", "the card's PCIe generation"),
    ("TemperatureThreshold", "temperature_limit", "slowdown temperature"),
    ("VirtualizationMode", "virtual", "virtualization mode"),
)


@pytest.mark.parametrize("code", [3, 4, 999])
def test_one_field_costs_no_other(stub: Path, tmp_path: Path, code: int) -> None:
    entries = ["", *(f"nvmlDeviceGet{call}:1:{code}" for call, _, _ in FIELDS)]
    whole, *lines = run_with(stub, MANY, tmp_path, json.dumps(entries)).splitlines()
    healthy = json.loads(whole)["found"]["devices"][0]
    for (_, field, label), line in zip(FIELDS, lines, strict=True):
        found = json.loads(line)["found"]
        card = found["devices"][0]
        assert healthy["facts"][field] is not None
        assert card["facts"] == healthy["facts"] | {field: None}, field
        assert {**card, "facts": 0} == {**healthy, "facts": 0}, field
        words = {4: "no permission: run once as administrator to see it"}
        words[999] = "the driver reports an unknown error"
        assert found["unknown"] == ([f"{FIRST}: {label}: {words[code]}"] if code != 3 else [])


def test_a_lost_card_stays_known_and_out_of_plans(stub: Path, tmp_path: Path) -> None:
    calls = ("MemoryInfo_v2", "UUID", "NvLinkState", "Name", "PowerUsage")
    entries = [f"nvmlDeviceGet{call}:0:15" for call in calls]
    lines = run_with(stub, MANY, tmp_path, json.dumps(entries)).splitlines()
    for call, line in zip(calls, lines, strict=True):
        found = decode(Progress, json.loads(line)).found
        whole, lost = found.devices
        assert lost.name == ("NVIDIA card" if call == "Name" else "NVIDIA GeForce RTX 5060 Ti")
        assert (whole.id, whole.facts.lost) == (FIRST, False)
        assert (lost.id, lost.facts.lost, lost.facts.index, lost.free) == (SECOND, True, 0, 0)
        assert found.links == ()
        (told,) = found.unknown
        assert told.startswith(f"{SECOND}: GPU is lost: it has fallen off the bus; restart the PC")
        rig = Rig(devices=found.devices)
        assert default_devices(rig) == (FIRST,)
        assert resolve_devices(["cuda:1"], rig) == (lost,)


def test_a_card_lost_before_it_gave_its_place(stub: Path, tmp_path: Path) -> None:
    lost = "nvmlDeviceGetHandleByIndex_v2:0:15"
    found = read_with(stub, tmp_path, fail=lost)
    assert [card.id for card in found.devices] == [FIRST]
    assert found.unknown[0].startswith("NVIDIA card 0 in the driver's order: GPU is lost")

    for slot in (FIRST, SECOND):
        folder = tmp_path / "proc/driver/nvidia/gpus" / slot
        folder.mkdir(parents=True)
        (folder / "information").write_text("Model: \t\t NVIDIA GeForce RTX 5060 Ti\nIRQ:  17\n")
    card = read_with(stub, tmp_path, fail=lost).devices[1]
    assert (card.id, card.name) == (SECOND, "NVIDIA GeForce RTX 5060 Ti")
    assert card.facts.lost is True


def test_an_older_driver_has_only_the_first_memory_call(stub: Path, tmp_path: Path) -> None:
    found = read_with(stub, tmp_path, fail="nvmlDeviceGetMemoryInfo_v2:1:13")
    card = found.devices[0]
    assert (card.total, card.facts.used, card.facts.hidden) == (12288 * MIB, 1024 * MIB, None)
    assert found.unknown == ()


def test_a_card_of_unknown_memory_is_left_out(stub: Path, tmp_path: Path) -> None:
    fail = "nvmlDeviceGetMemoryInfo:1:4,nvmlDeviceGetMemoryInfo_v2:1:4"
    found = read_with(stub, tmp_path, fail=fail)
    assert [card.id for card in found.devices] == [SECOND]
    assert found.unknown == (
        f"{FIRST}: memory: no permission: run once as administrator to see it",
        f"{FIRST}: left out, because its memory is not known",
    )


def test_a_display_that_cannot_be_asked_for_gets_the_larger_reserve(
    stub: Path, tmp_path: Path
) -> None:
    fail = "nvmlDeviceGetDisplayMode:0:3,nvmlDeviceGetDisplayActive:0:3"
    found = read_with(stub, tmp_path, fail=fail)
    card = found.devices[1]
    assert (card.display, card.reserve) == (None, 1024 * MIB)
    assert found.unknown == (f"{SECOND}: display: not supported by this card or driver",)


@pytest.mark.parametrize(
    ("code", "fault", "words"),
    [
        (9, "not-running", "the driver is installed but not loaded: restart the PC"),
        (18, "mismatch", "the driver was updated while an older one is still loaded: restart"),
        (4, "no-permission", "this user may not use the driver: add the user to the group"),
        (999, "unknown-error", "the driver answers with an unknown error: restart the container"),
        (10, None, "the driver does not answer: the driver took too long"),
    ],
)
def test_a_library_whose_driver_does_not_answer(
    stub: Path, tmp_path: Path, code: int, fault: str | None, words: str
) -> None:
    found = read_with(stub, tmp_path, fail=f"nvmlInitWithFlags:*:{code}")
    assert (found.devices, found.fault) == ((), fault)
    (line,) = found.unknown
    assert line.startswith(f"NVIDIA cards: {words}")


def test_driver_and_count_that_cannot_be_read(stub: Path, tmp_path: Path) -> None:
    fail = "nvmlSystemGetDriverVersion:*:999,nvmlDeviceGetCount_v2:*:999"
    found = read_with(stub, tmp_path, fail=fail)
    assert (found.driver, found.devices, found.fault) == (None, (), "unknown-error")
    assert found.unknown == (
        "NVIDIA driver version, number of NVIDIA cards: the driver reports an unknown error",
    )


def test_a_fault_of_every_first_call_is_the_drivers(stub: Path, tmp_path: Path) -> None:
    first = "nvmlDeviceGetHandleByIndex_v2"
    found = read_with(stub, tmp_path, fail=f"{first}:0:4,{first}:1:4")
    assert (found.devices, found.fault) == ((), "no-permission")
    assert len(found.unknown) == 4
    found = read_with(stub, tmp_path, fail=f"{first}:0:4")
    assert ([card.id for card in found.devices], found.fault) == ([FIRST], None)


CARD = "0000:81:00.0"
SLICES = (
    # what fails, the devices that are left, what is told
    ("nvmlDeviceGetMaxMigDeviceCount:0:3", 1, f"{CARD}: number of MIG slices: not supported by"),
    ("nvmlDeviceGetMigDeviceHandleByIndex:0:4", 1, f"{CARD}: MIG slice 0, MIG slice 1, MIG"),
    ("nvmlDeviceGetUUID:90:4", 3, f"{CARD}/mig-0: UUID: no permission"),
    ("nvmlDeviceGetName:90:999", 3, f"{CARD}/mig-0: name: the driver reports an unknown error"),
    ("nvmlDeviceGetAttributes_v2:92:4", 3, f"{CARD}/mig-2: attributes: no permission"),
    (
        "nvmlDeviceGetMemoryInfo:92:4,nvmlDeviceGetMemoryInfo_v2:92:4",
        2,
        f"{CARD}/mig-2: memory: no permission",
    ),
)


@pytest.mark.parametrize(("fail", "left", "told"), SLICES)
def test_an_error_of_a_slice_costs_its_field_or_itself(
    stub: Path, tmp_path: Path, fail: str, left: int, told: str
) -> None:
    found = read_with(stub, tmp_path, machine="mig", fail=fail)
    assert len(found.devices) == left
    assert found.devices[0].facts.mig is True
    assert found.unknown[0].startswith(told)


def test_a_card_lost_while_its_slices_are_read(stub: Path, tmp_path: Path) -> None:
    found = read_with(stub, tmp_path, machine="mig", fail="nvmlDeviceGetUUID:92:15")
    (card,) = found.devices
    assert (card.id, card.facts.lost, card.total) == (CARD, True, 0)


def test_memory_that_cannot_be_read_is_not_the_processors(stub: Path, tmp_path: Path) -> None:
    fail = "nvmlDeviceGetMemoryInfo:0:999,nvmlDeviceGetMemoryInfo_v2:0:999"
    found = read_with(stub, tmp_path, machine="quad", fail=fail)
    assert [card.id[5:7] for card in found.devices] == ["02", "41", "42"]
    assert "0000:01:00.0: left out, because its memory is not known" in found.unknown


def test_no_library_is_simply_no_card_unless_a_driver_is_loaded(tmp_path: Path) -> None:
    broken = tmp_path / "library"
    broken.mkdir()
    (broken / "libnvidia-ml.so.1").write_bytes(b"")
    assert read_with(broken, tmp_path).unknown == ()

    (tmp_path / "proc/driver/nvidia").mkdir(parents=True)
    found = read_with(broken, tmp_path)
    assert found.fault == "library-missing"
    (line,) = found.unknown
    assert line.startswith("NVIDIA cards: the driver is loaded but its NVML library was not found")


HANGS = (
    ("nvmlInitWithFlags:*", "NVIDIA driver", 0),
    ("nvmlDeviceGetHandleByIndex_v2:0", "NVIDIA card 0 in the driver's order", 0),
    ("nvmlDeviceGetPowerUsage:1", FIRST, 1),
    ("nvmlDeviceGetP2PStatus:1", "links between NVIDIA cards", 2),
    ("nvmlShutdown:*", "NVIDIA driver", 2),
)


def test_a_call_that_hangs_costs_its_time_and_one_card(stub: Path, tmp_path: Path) -> None:
    seconds = 3.0  # enough for the child to come that far on a busy machine
    started = time.monotonic()
    with ThreadPoolExecutor() as pool:
        answers = pool.map(lambda case: read_with(stub, tmp_path, seconds, hang=case[0]), HANGS)
        for (hang, asking, cards), found in zip(HANGS, answers, strict=True):
            assert len(found.devices) == cards, hang
            assert len(found.links) == cards // 2, hang
            told = found.unknown[-1]
            assert told.startswith(f"{asking}: the driver did not answer within 3 seconds"), hang
    assert time.monotonic() - started < 15.0
    commands = [p.info["cmdline"] or () for p in psutil.process_iter(["cmdline"])]
    mine = [
        c for c in commands if "local_tp.hardware.live.nvidia_child" in c and str(tmp_path) in c
    ]
    assert mine == []


def test_a_library_that_crashes_takes_only_the_child_down(stub: Path, tmp_path: Path) -> None:
    found = read_with(stub, tmp_path, crash="nvmlDeviceGetUUID:1")
    assert [card.id for card in found.devices] == [SECOND]
    (line,) = found.unknown
    assert line == f"{FIRST}: reading ended with signal 11: nothing was said"


@pytest.mark.parametrize(
    ("text", "version"),
    [
        (
            "NVRM version: NVIDIA UNIX x86_64 Kernel Module  535.183.01  Sun May 12 2024\n"
            "GCC version:  gcc version 12.3.0 (Ubuntu 12.3.0-1ubuntu1~22.04)\n",
            "535.183.01",
        ),
        (
            "NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  580.65.06  Release",
            "580.65.06",
        ),
        ("damaged", None),
        (None, None),
    ],
)
def test_the_loaded_module_has_a_version_of_its_own(
    tmp_path: Path, text: str | None, version: str | None
) -> None:
    if text is not None:
        (tmp_path / "proc/driver/nvidia").mkdir(parents=True)
        (tmp_path / "proc/driver/nvidia/version").write_text(text)
    assert module_version(tmp_path) == version

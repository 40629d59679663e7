"""Cards read from a real shared library that answers as NVML does: whole, healthy machines."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from fake_bus import write
from nvml_machine import build_stub, read_with, run_with

from local_tp.codec import decode
from local_tp.core import Device, Link, Pcie, Rig
from local_tp.facts import CardFacts, NvLink, PairFacts, PcieReading, Process
from local_tp.hardware.catalog import with_catalog
from local_tp.hardware.devices import default_devices, resolve_devices, why_left_out
from local_tp.hardware.diagnose import diagnose
from local_tp.hardware.live.nvidia_card import bare_program

MIB = 1024**2
GIB = 1024**3

PROBE = """
import json, sys
from pathlib import Path
from local_tp.codec import encode
from local_tp.hardware.probe import probe
print(json.dumps(encode(probe(Path(sys.argv[1])))))
assert "torch" not in sys.modules
"""

CORRECTED = (  # the kernel's counters, with blanks for a link's fault and for what is advisory
    "RxErr 0\nBadTLP {0}\nBadDLLP 0\nRollover 0\nTimeout 0\nNonFatalErr {1}\nCorrIntErr 0\n"
    "HeaderOF 0\nTOTAL_ERR_COR 99"
)
BOTH = CardFacts(
    vendor="nvidia",
    processes=(
        Process(4194308, "render-4194308", 300 * MIB),
        Process(4194307, "render-4194307", 200 * MIB),
        Process(4194306, "render-4194306", 100 * MIB),
    ),
    bar1_total=256 * MIB,
    bar1_used=16 * MIB,
    replays=7,
    power_draw=25.5,
    power_limit=250.0,
    power_default=350.0,
    power_max=390.0,
    clock=210,
    clock_max=2100,
    memory_clock=405,
    memory_clock_max=9751,
    throttle=("SW Power Cap", "HW Thermal Slowdown", "reason 0x1000"),
    temperature=61,
    temperature_limit=95,
    utilization=42,
    compute_mode="Default",
    persistence=True,
    performance_state="P8",
    nvlinks=(NvLink(0, False, 3), NvLink(1, False, 3)),
    integrated=False,
    virtual=False,
)
FACTS = {name: getattr(BOTH, name) for name in CardFacts.__dataclass_fields__}


def facts(**own: object) -> CardFacts:
    return CardFacts(**(FACTS | own))  # type: ignore[arg-type]


RTX_3060 = Device(
    id="0000:0a:00.0",
    kind="cuda",
    name="NVIDIA GeForce RTX 3060",
    total=12 * GIB,
    free=11 * GIB,
    reserve=1024 * MIB,
    capability=(8, 6),
    pcie=Pcie(generation=3, width=4, max_generation=3, max_width=16),
    display=True,
    uuid="GPU-3060",
    facts=facts(
        index=1,
        architecture="ampere",
        used=824 * MIB,
        hidden=200 * MIB,
        pcie_card=PcieReading(generation=4),
    ),
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
    facts=facts(
        index=0,
        architecture="blackwell",
        used=16 * GIB - 16642998272 - 300 * MIB,
        hidden=300 * MIB,
        pcie_card=PcieReading(generation=5),
    ),
)


@pytest.fixture(scope="module")
def stub(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build_stub(tmp_path_factory.mktemp("nvml"))


def test_two_mismatched_cards_in_slot_order(stub: Path, tmp_path: Path) -> None:
    found = read_with(stub, tmp_path)
    assert found.devices == (RTX_3060, RTX_5060_TI)
    assert (found.driver, found.cuda, found.fault) == ("580.65.06", "13.0", None)
    assert found.unknown == ()
    # The stub says that peer-to-peer works; nobody has checked.
    word = PairFacts(path="PXB", nvlinks=0, read="ok", write="ok", atomics="ok")
    assert found.links == (
        Link("0000:0a:00.0", "0000:41:00.0", "host", verified=False, facts=word),
    )


def test_one_card_has_no_links(stub: Path, tmp_path: Path) -> None:
    found = read_with(stub, tmp_path, cards=1)
    assert (found.devices, found.links) == ((RTX_5060_TI,), ())


def test_a_driver_without_cards(stub: Path, tmp_path: Path) -> None:
    found = read_with(stub, tmp_path, cards=0)
    assert found.devices == ()
    assert (found.driver, found.unknown) == ("580.65.06", ())


def test_four_cards_with_two_bridges(stub: Path, tmp_path: Path) -> None:
    found = read_with(stub, tmp_path, machine="quad")
    assert [card.id for card in found.devices] == [
        f"0000:{bus}:00.0" for bus in ("01", "02", "41", "42")
    ]
    first = found.devices[0]
    assert first.facts.bar1_total == 32 * GIB
    assert first.display is False  # of the two questions, new drivers answer only one
    port = NvLink(0, True, generation=3, peer="0000:02:00.0", bandwidth=14.062e9)
    assert (first.facts.nvlinks[0], len(first.facts.nvlinks)) == (port, 4)
    assert found.unknown == ()
    kinds = {(link.a[5:7], link.b[5:7]): link for link in found.links}
    assert len(kinds) == 6
    bridged = PairFacts(path="PXB", nvlinks=4, read="ok", write="ok", atomics="not-supported")
    apart = PairFacts(path="NODE", nvlinks=0, read="chipset", write="chipset", atomics="chipset")
    assert (kinds["01", "02"].kind, kinds["01", "02"].facts) == ("nvlink", bridged)
    assert (kinds["41", "42"].kind, kinds["41", "42"].facts) == ("nvlink", bridged)
    assert (kinds["01", "41"].kind, kinds["01", "41"].facts) == ("host", apart)


def test_eight_cards_on_a_switch(stub: Path, tmp_path: Path) -> None:
    found = read_with(stub, tmp_path, machine="eight")
    assert len(found.devices) == 8
    assert len(found.links) == 28
    assert {(link.kind, link.facts.nvlinks) for link in found.links} == {("nvlink", 12)}
    assert {link.facts.path for link in found.links} == {"PXB", "NODE", "SYS"}
    card = found.devices[7].facts
    assert (card.numa, card.ecc, card.ecc_uncorrected) == (1, True, 3)
    assert (card.mig, card.compute_mode) == (False, "Exclusive_Process")
    pending = [device.facts.remap_pending for device in found.devices]
    assert pending == [number == 5 for number in range(8)]
    assert {port.peer for port in card.nvlinks} == {"switch"}
    assert found.unknown == ()


def test_slices_are_devices_and_their_card_is_left_out(stub: Path, tmp_path: Path) -> None:
    found = read_with(stub, tmp_path, machine="mig")
    card, small, large = found.devices
    assert (card.id, card.facts.mig, card.facts.utilization) == ("0000:81:00.0", True, None)
    assert card.total == 80 * GIB
    assert (small.id, large.id) == ("0000:81:00.0/mig-0", "0000:81:00.0/mig-2")
    assert (small.name, small.uuid) == ("NVIDIA H100 PCIe MIG 1g.10gb", "MIG-one")
    assert (small.total, small.free) == (9856 * MIB, 9800 * MIB)
    assert (small.capability, small.display, small.pcie) == ((9, 0), False, card.pcie)
    facts = small.facts
    assert (facts.slice_of, facts.profile, facts.mig) == (card.id, "1g.10gb", None)
    assert (facts.used, facts.hidden) == (36 * MIB, 20 * MIB)
    assert [process.used for process in facts.processes] == [300 * MIB, 200 * MIB, 100 * MIB]
    # Its name does not tell its size; its attributes do: 3 of 7 and 40448 MiB.
    assert (large.total, large.uuid, large.facts.profile) == (40320 * MIB, "MIG-three", "3g.40gb")
    assert found.unknown == ()
    assert found.links == (Link(small.id, large.id, "host", facts=PairFacts(path="self")),)
    rig = Rig(devices=found.devices)
    assert default_devices(rig) == (small.id, large.id)
    assert (why_left_out(card) or "").startswith("MIG is on")
    assert resolve_devices(["81:00.0/mig-2", "cuda:1"], rig) == (large, small)


def test_a_slice_has_its_share_of_its_cards_rates(stub: Path, tmp_path: Path) -> None:
    card, small, _ = map(with_catalog, read_with(stub, tmp_path, machine="mig").devices)
    share = 9856 / (80 * 1024)
    assert card.bandwidth is not None
    assert card.flops is not None
    assert small.bandwidth == pytest.approx(share * card.bandwidth)
    assert small.flops == pytest.approx(share * card.flops)
    assert small.context == card.context > 0


def test_mig_without_a_slice_says_how_to_make_one(stub: Path, tmp_path: Path) -> None:
    found = read_with(stub, tmp_path, machine="mig", slices=0)
    assert [device.id for device in found.devices] == ["0000:81:00.0"]
    assert found.unknown == (
        "0000:81:00.0: MIG is on and no slice was made: `nvidia-smi mig -cgi PROFILE -C` makes "
        "one, `nvidia-smi -mig 0` gives the whole card back",
    )
    assert default_devices(Rig(devices=found.devices)) == ("cpu",)


def test_under_wsl_memory_of_programs_is_not_told(stub: Path, tmp_path: Path) -> None:
    (card,) = read_with(stub, tmp_path, machine="wsl").devices
    assert card.facts.driver_model == "WDDM"
    assert {process.used for process in card.facts.processes} == {None}
    assert card.facts.hidden == 400 * MIB


def test_memory_shared_with_the_processor_is_the_pcs(stub: Path, tmp_path: Path) -> None:
    (card,) = read_with(stub, tmp_path, machine="spark").devices
    assert card.facts.integrated is True
    assert 0 < card.free <= card.total
    assert card.id == "000f:01:00.0"
    assert default_devices(Rig(devices=(card,))) == (card.id,)


def test_shared_memory_is_what_the_container_has_of_it(stub: Path, tmp_path: Path) -> None:
    mount = "30 20 0:26 / /sys/fs/cgroup rw - cgroup2 cgroup2 rw"
    files = {
        "proc/self/cgroup": "0::/",
        "proc/self/mountinfo": mount,
        "sys/fs/cgroup/memory.max": str(64 * MIB),
        "sys/fs/cgroup/memory.current": str(24 * MIB),
    }
    (card,) = read_with(stub, write(tmp_path, files), machine="spark").devices
    assert (card.total, card.free) == (64 * MIB, 40 * MIB)


def test_active_nvlink_between_two_cards(stub: Path, tmp_path: Path) -> None:
    (link,) = read_with(stub, tmp_path, nvlink=1).links
    assert (link.kind, link.facts.nvlinks, link.verified) == ("nvlink", 1, False)


def test_nvlink_to_something_else_joins_no_cards(stub: Path, tmp_path: Path) -> None:
    found = read_with(stub, tmp_path, nvlink=2)
    assert [link.kind for link in found.links] == ["host"]
    assert found.unknown == ("0000:41:00.0: its NVLink leads to 0000:ff:00.0, no card read here",)


def test_the_whole_probe_adds_what_the_bus_knows(stub: Path, tmp_path: Path) -> None:
    """The 3060 sits behind Thunderbolt, in a slot of four lanes; the other is on no bus."""
    port = tmp_path / "sys/devices/pci0000:00/0000:00:01.0"
    card = port / "0000:0a:00.0"
    files = {"vendor": "0x10de", "device": "0x2504", "class": "0x030000", "numa_node": "1"}
    files |= {"max_link_width": "16", "max_link_speed": "16.0 GT/s PCIe", "removable": "removable"}
    files |= {"aer_dev_correctable": CORRECTED.format(8, 21)}
    bridge = {"vendor": "0x8086", "device": "0x1234", "class": "0x060400"}
    bridge |= {"max_link_width": "4", "max_link_speed": "8.0 GT/s PCIe"}
    bridge |= {"aer_dev_correctable": CORRECTED.format(4, 0)}
    card.mkdir(parents=True)
    for folder, texts in ((card, files), (port, bridge)):
        for name, text in texts.items():
            (folder / name).write_text(f"{text}\n")
    (tmp_path / "sys/bus/pci/drivers/nvidia").mkdir(parents=True)
    (card / "driver").symlink_to(tmp_path / "sys/bus/pci/drivers/nvidia")
    listing = tmp_path / "sys/bus/pci/devices"
    listing.mkdir(parents=True)
    (listing / card.name).symlink_to(card)

    rig = decode(Rig, json.loads(run_with(stub, PROBE, tmp_path)))
    assert [device.id for device in rig.devices] == ["0000:0a:00.0", "0000:41:00.0", "cpu"]
    placed = rig.devices[0].facts
    assert placed.pcie_card == PcieReading(4, 16)
    assert placed.pcie_slot == PcieReading(3, 4)
    assert (placed.external, placed.numa) == (True, 1)
    assert (placed.driver_in_use, placed.link_errors) == ("nvidia", 12)
    assert placed.remap_pending is None
    assert "pcie-errors" in {finding.id for finding in diagnose(rig)}
    assert rig.devices[1] == with_catalog(RTX_5060_TI)
    assert rig.devices[1].bandwidth == 448e9
    assert (rig.driver, rig.software.driver, rig.software.cuda_driver) == (
        *("580.65.06", "580.65.06"),
        "13.0",
    )
    assert default_devices(rig) == ("0000:0a:00.0", "0000:41:00.0")


@pytest.mark.parametrize(
    ("command", "name"),
    [
        ("/usr/lib/xorg/Xorg", "Xorg"),
        ("python3", "python3"),
        ("/opt/b/chrome --type=gpu --user-data-dir=/home/me", "chrome"),
        (r"C:\Program Files\Some One\app.exe", "app.exe"),
        ("", None),
    ],
)
def test_a_program_is_named_without_its_place(command: str, name: str | None) -> None:
    assert bare_program(command) == name

"""MIG slices as devices, out of every output that tells of them."""

from __future__ import annotations

import pytest
from pasted_text import MIB, by_id, found, read

from local_tp.core import Rig
from local_tp.hardware.devices import default_devices, why_left_out
from local_tp.hardware.diagnose import diagnose

TABLE = """\
| NVIDIA-SMI 535.161.08             Driver Version: 535.161.08   CUDA Version: 12.2     |
|   0  NVIDIA A100-SXM4-40GB          On  | 00000000:07:00.0 Off |                   On |
| N/A   29C    P0              51W / 400W |  11876MiB / 40960MiB |     N/A      Default |
|                                         |                      |             Enabled* |
+-----------------------------------------+----------------------+----------------------+
|   1  NVIDIA A100-SXM4-40GB          On  | 00000000:0F:00.0 Off |                    0 |
| N/A   28C    P0              50W / 400W |      4MiB / 40960MiB |      0%      Default |
|                                         |                      |             Disabled |
+-----------------------------------------+----------------------+----------------------+
| MIG devices:                                                                          |
| GPU  GI  CI  MIG |                   Memory-Usage |        Vol|      Shared           |
|      ID  ID  Dev |                     BAR1-Usage | SM     Unc| CE ENC DEC OFA JPG    |
|==================+================================+===========+=======================|
|  0    1   0   0  |           11843MiB / 19968MiB  | 42      0 |  3   0    2    0    0 |
|                  |               2MiB / 32767MiB  |           |                       |
+------------------+--------------------------------+-----------+-----------------------+
|  0    7   0   1  |              12MiB /  4864MiB  | 14      0 |  1   0    0    0    0 |
|                  |               0MiB /  8191MiB  |           |                       |
+------------------+--------------------------------+-----------+-----------------------+
|  GPU   GI   CI        PID   Type   Process name                            GPU Memory |
|    0    1    0      55221      C   python3                                   11806MiB |
+---------------------------------------------------------------------------------------+
"""
LIST = """\
GPU 0: NVIDIA A100-SXM4-40GB (UUID: GPU-11111111-2222-3333-4444-555555555555)
  MIG 3g.20gb     Device  0: (UUID: MIG-aaaaaaaa-2222-3333-4444-555555555555)
  MIG 1g.5gb      Device  1: (UUID: MIG-GPU-11111111-2222-3333-4444-555555555555/7/0)
GPU 1: NVIDIA A100-SXM4-40GB (UUID: GPU-22222222-2222-3333-4444-555555555555)
"""
PART = (
    "<mig_device><index>{}</index><gpu_instance_id>{}</gpu_instance_id><fb_memory_usage><total>{} "
    "MiB</total><used>{} MiB</used></fb_memory_usage><bar1_memory_usage><total>8191 MiB</total>"
    "</bar1_memory_usage></mig_device>"
)
XML = (
    '<nvidia_smi_log><attached_gpus>1</attached_gpus><gpu id="00000000:07:00.0"><product_name>'
    "NVIDIA A100-SXM4-40GB</product_name><mig_mode><current_mig>Enabled</current_mig></mig_mode>"
    f"<mig_devices>{PART.format(0, 1, 19968, 11843)}{PART.format(1, 7, 4864, 12)}</mig_devices>"
    "<fb_memory_usage><total>40960 MiB</total><used>11876 MiB</used></fb_memory_usage><processes>"
    "<process_info><gpu_instance_id>1</gpu_instance_id><pid>55221</pid><process_name>python3"
    "</process_name><used_memory>11806 MiB</used_memory></process_info></processes></gpu>"
    "</nvidia_smi_log>"
)
DETAILS = """\
==============NVSMI LOG==============
Attached GPUs                             : 1
GPU 00000000:07:00.0
    Product Name                          : NVIDIA A100-SXM4-40GB
    MIG Mode
        Current                           : Enabled
    MIG Device
        Index                             : 0
        GPU Instance ID                   : 1
        Compute Instance ID               : 0
        FB Memory Usage
            Total                         : 19968 MiB
            Used                          : 11843 MiB
        BAR1 Memory Usage
            Total                         : 32767 MiB
    MIG Device
        Index                             : 1
        GPU Instance ID                   : 7
        FB Memory Usage
            Total                         : 4864 MiB
            Used                          : 12 MiB
    FB Memory Usage
        Total                             : 40960 MiB
        Used                              : 11876 MiB
    Processes
        GPU instance ID                   : 1
        Compute instance ID               : 0
        Process ID                        : 55221
            Type                          : C
            Name                          : python3
            Used GPU Memory               : 11806 MiB
"""
CARD = "0000:07:00.0"


@pytest.mark.parametrize("text", [TABLE, XML, DETAILS], ids=["table", "xml", "details"])
def test_slices_are_devices_of_their_own(text: str) -> None:
    rig = read(text).rig
    cards = by_id(rig)
    first, second = cards[f"{CARD}/mig-0"], cards[f"{CARD}/mig-1"]
    assert (first.total, first.free) == (19968 * MIB, (19968 - 11843) * MIB)
    assert (second.total, second.free) == (4864 * MIB, (4864 - 12) * MIB)
    assert (first.facts.slice_of, second.facts.slice_of) == (CARD, CARD)
    assert [p.name for p in first.facts.processes] == ["python3"]
    assert cards[CARD].facts.processes == ()
    assert (cards[CARD].total, cards[CARD].facts.mig) == (40960 * MIB, True)
    assert first.context > 0
    assert first.bandwidth == pytest.approx(1555e9 * 19968 / 40960)
    assert first.flops == pytest.approx(311.9e12 * 19968 / 40960)


def test_a_list_knows_profiles_and_other_outputs_the_memory() -> None:
    first, second = (by_id(read(TABLE, LIST).rig)[f"{CARD}/mig-{n}"] for n in (0, 1))
    assert (first.name, first.facts.profile) == ("NVIDIA A100-SXM4-40GB MIG 3g.20gb", "3g.20gb")
    assert (second.facts.profile, second.total) == ("1g.5gb", 4864 * MIB)
    assert second.uuid == "MIG-GPU-11111111-2222-3333-4444-555555555555/7/0"
    assert first.uuid == "MIG-aaaaaaaa-2222-3333-4444-555555555555"


def test_a_list_alone_says_that_the_memory_is_not_known() -> None:
    rig = read(LIST).rig
    assert [d.id for d in rig.devices] == ["GPU0", "GPU0/mig-0", "GPU0/mig-1", "GPU1"]
    assert "GPU0, GPU0/mig-0, GPU0/mig-1, GPU1: memory not in the text" in rig.unknown


def test_a_plan_takes_slices_and_leaves_their_card_out() -> None:
    rig = read(TABLE, LIST).rig
    assert default_devices(rig) == (f"{CARD}/mig-0", f"{CARD}/mig-1", "0000:0f:00.0")
    assert why_left_out(by_id(rig)[CARD]) is not None


def test_the_finding_lists_the_slices() -> None:
    rig = read(TABLE, LIST).rig
    (mig,) = [finding for finding in diagnose(rig) if finding.id == "mig-on"]
    assert mig.devices == (CARD,)
    assert f"3g.20gb with 19.5 GiB ({CARD}/mig-0)" in mig.evidence
    assert "no peer-to-peer between slices" in mig.cost
    assert set(found(rig)) == {"mig-on", "memory-in-use"}
    assert found(rig)["memory-in-use"] == (f"{CARD}/mig-0",)


def test_a_card_without_slices_is_told_so() -> None:
    rig: Rig = read(DETAILS.split("    MIG Device")[0]).rig
    (mig,) = [finding for finding in diagnose(rig) if finding.id == "mig-on"]
    assert "none of them is known" in mig.evidence

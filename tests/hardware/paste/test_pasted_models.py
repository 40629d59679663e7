"""One id of several models: the lists of two tools tell of the same cards."""

from __future__ import annotations

import pytest
from pasted_text import read

from local_tp.hardware.paste.merge import same_name

CONCISE = """\
======================================== ROCm System Management Interface =========================
================================================== Concise Info ===================================
Device  Node  IDs            Temp    Power  Partitions          SCLK   MCLK   Fan  Perf  VRAM%  GPU%
              (DID,     GUID)  (Edge)  (Avg)  (Mem, Compute, ID)
===================================================================================================
0       1     0x744c,   49488  41.0C   17.0W  N/A, N/A, 0         41Mhz  96Mhz  0%   auto  3%     1%
===================================================================================================
============================================== End of ROCm SMI Log ================================
"""
PRODUCT = """\
============================ ROCm System Management Interface ============================
====================================== PCI Bus ID ========================================
GPU[0]\t\t: PCI Bus: 0000:03:00.0
================================== Memory Usage (Bytes) ==================================
GPU[0]\t\t: VRAM Total Memory (B): 25753026560
GPU[0]\t\t: VRAM Total Used Memory (B): 812421120
====================================== Product Info ======================================
GPU[0]\t\t: Card Series: \t\tNavi 31 [Radeon RX 7900 XT/7900 XTX/7900M]
GPU[0]\t\t: Card Model: \t\t0x744c
GPU[0]\t\t: Card Vendor: \t\tAdvanced Micro Devices, Inc. [AMD/ATI]
================================== End of ROCm SMI Log ===================================
"""


def test_two_lists_of_one_radeon_are_one_card() -> None:
    (card,) = [d for d in read(CONCISE + PRODUCT).rig.devices if d.kind == "rocm"]
    assert (card.id, card.total) == ("0000:03:00.0", 25753026560)
    assert card.facts.used == 812421120


@pytest.mark.parametrize(
    ("a", "b", "same"),
    [
        ("AMD Radeon RX 7900 XT/7900 XTX", "AMD Radeon RX 7900 XT/7900 XTX/7900M", True),
        ("AMD Radeon RX 7900 XT/7900 XTX", "Radeon RX 7900 XTX", True),
        ("AMD Radeon RX 7900 XT/7900 XTX", "Radeon RX 7900 GRE", False),
        ("AMD Radeon RX 6800/6800 XT/6900 XT", "Radeon RX 7900 XT", False),
        ("Radeon RX 7900 XT", "Radeon RX 7900 XTX", False),
    ],
)
def test_names_of_several_models(a: str, b: str, same: bool) -> None:
    assert same_name(a, b) is same_name(b, a) is same

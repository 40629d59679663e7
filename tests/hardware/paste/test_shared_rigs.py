"""Real outputs of people's machines, where the folder with them is there.

Each line was written down after reading the file: cards with memory in MiB, and pairs.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from local_tp.hardware.paste import read_pasted

RIGS = Path(__file__).resolve().parents[4] / "shared" / "rigs"
pytestmark = pytest.mark.skipif(not RIGS.is_dir(), reason="the folder of real outputs is not here")

# file -> ((bus id, total MiB), …) in slot order, number of links, number of timed all-reduces
EXPECTED: dict[str, tuple[str, int, int]] = {
    "rig01": ("42:24576 82:24576", 0, 0),
    "rig03": ("06:24564 06:24564 06:24564 06:24564 08:24564 08:24564 08:24564 08:24564", 0, 0),
    "rig05": ("07:81920 84:81920 8a:81920 c4:81920", 0, 0),
    "rig08": ("0c:8192", 0, 0),
    "rig10": ("00:81559", 0, 0),
    "rig12": ("01:16376", 0, 0),
    "rig14": ("01:46068", 0, 0),
    "rig15": ("83:143771", 0, 0),
    "rig18": ("GPU0:0 GPU1:0 GPU2:0", 3, 0),
    "rig19": ("41:0 42:0 61:0", 3, 0),
    "rig21": ("01:24576 02:24576", 0, 0),
    "rig22": ("00:49140", 0, 0),
    "rig23": ("GPU0:0 GPU1:0 GPU2:0 GPU3:0", 6, 0),
    "rig27": ("", 0, 6),
    "rig28": ("0a:8192", 0, 0),
    "rig29": ("01:6144", 0, 0),
    "rig30": ("84:24564", 0, 0),
    "rig31": ("00:40960 00:19968 00:19968", 0, 0),
    "rig32": ("00:16384", 0, 0),
    "rig34": ("00:24576", 0, 0),
    "rig35": ("01:4096", 0, 0),
    "rig36": ("07:12272", 0, 0),
    "rig37": ("63:32752", 0, 0),
    "rig38": ("83:32752 a3:32752 c3:32752 e3:32752", 6, 0),
    "rig39": ("GPU0:0 GPU1:0 GPU2:0 GPU3:0", 6, 0),
    "rig40": ("31:0 34:0 4b:0 4e:0", 0, 0),
    "rig42": ("GPU0:0 GPU1:0 GPU2:0 GPU3:0", 6, 0),
    "rig43": ("GPU0:0 GPU1:0 GPU2:0", 3, 0),
    "rig45": ("02:0 03:0 04:0 05:0", 6, 0),
    "rig46": (" ".join(f"GPU{i}:0" for i in range(8)), 28, 0),
    "rig47": ("GPU0:0 GPU1:0 GPU2:0 GPU3:0", 6, 0),
    "rig49": ("85:0 86:0 89:0 8d:0", 6, 0),
    "rig50": ("01:0 41:0 81:0 a1:0 e1:0 e2:0", 12, 0),
    "rig53": ("", 0, 11),
    "rig54": ("04:0 05:0 08:0 09:0 83:0 84:0 87:0 88:0", 0, 1),
    "rig55": ("24:0 GPU1:0", 0, 0),
    "rig56": ("05:0", 0, 0),
    "rig57": ("01:0", 0, 0),
    "rig59": ("", 0, 0),
    "rig60": ("04:2047 05:2047", 0, 0),
    "rig61": ("01:24564 25:0 a1:0", 0, 0),
    "rig63": ("03:0 12:0", 0, 0),
    "rig64": (" ".join(f"GPU{i}:0" for i in range(7)), 0, 0),
    "rig65": ("GPU0:0 GPU1:0", 0, 0),
    "rig66": ("GPU0:0 GPU1:0", 0, 0),
    "rig67": ("GPU0:0 GPU1:0", 0, 0),
    "rig71": ("04:24564 GPU1:24576", 0, 0),
    "rig72": ("81:24576 82:24576", 0, 0),
    "rig74": ("", 0, 0),
    "rig75": ("01:0 25:0 41:0 61:0", 0, 21),
    "rig76": ("01:0 21:0 41:0 61:0", 0, 25),
    "rig79": (" ".join(f"GPU{i}:0" for i in range(8)), 28, 0),
    "rig81": ("01:0 09:0", 0, 0),
    "rig82": (" ".join(f"GPU{i}:0" for i in range(8)), 28, 0),
}


@pytest.mark.parametrize("rig", EXPECTED)
def test_real_output(rig: str) -> None:
    (path,) = RIGS.glob(f"{rig}_*")
    cards, links, timed = EXPECTED[rig]
    found = read_pasted([(path.name, path.read_bytes())]).rig
    seen = sorted(
        f"{d.id.split(':')[1] if ':' in d.id else d.id}:{d.total >> 20}" for d in found.devices
    )
    assert seen == sorted(cards.split())
    assert (len(found.links), len(found.collectives)) == (links, timed)


def test_nvlink_pairs_are_told_from_the_others_though_line_ends_are_lost() -> None:
    (path,) = RIGS.glob("rig47_*")
    rig = read_pasted([(path.name, path.read_bytes())]).rig
    kinds = {(link.a, link.b): link.kind for link in rig.links}
    assert [pair for pair, kind in kinds.items() if kind == "nvlink"] == [
        ("GPU0", "GPU2"),
        ("GPU1", "GPU3"),
    ]

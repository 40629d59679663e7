"""One look at this machine: the `Rig` that every plan starts from.

Knows nothing of models and never loads torch, so no card holds a CUDA context afterwards and no
process stays behind. It does not raise: what cannot be learned is said in `Rig.unknown`.
"""

from __future__ import annotations

from pathlib import Path

from local_tp.core import Rig
from local_tp.hardware.host import read_host
from local_tp.hardware.nvidia import read_nvidia


def probe(root: Path = Path("/")) -> Rig:
    """The machine as it is now: cards in PCI bus order, then the processor.

    Takes well under a second, most of it for the memory bandwidth. `root` is where `/proc` and
    `/sys` are found.
    """
    host = read_host(root)
    nvidia = read_nvidia(root)
    return Rig(
        devices=(*nvidia.devices, host.cpu),
        links=nvidia.links,
        ram=host.cpu.total,
        available_ram=host.cpu.free,
        cores=host.cores,
        os=host.os,
        driver=nvidia.driver,
        unknown=nvidia.unknown + host.unknown,
    )

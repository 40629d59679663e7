"""Says what the installed torch was built for: its toolkit and the architectures of its kernels.

Run as
`python -m local_tp.hardware.measuring.child_build`, since importing torch takes seconds. Knows
nothing of the machine's cards: no card gets a context.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator

import torch

from local_tp.hardware.measuring.child import serve
from local_tp.hardware.measuring.readings import READY, BuildRequest, Reading


def measure(request: BuildRequest) -> Iterator[Reading]:
    """The CUDA that it was built with, where there is one, and a reading for each architecture."""
    yield Reading(READY)
    if torch.version.cuda:
        yield Reading("cuda", detail=torch.version.cuda)
    for name in torch.cuda.get_arch_list():
        yield Reading("architecture", detail=name)


if __name__ == "__main__":
    sys.exit(serve(BuildRequest, measure))

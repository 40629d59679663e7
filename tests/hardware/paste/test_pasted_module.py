"""The version of NVIDIA's loaded module, as the kernel tells it, beside the library's."""

from __future__ import annotations

import pytest
from pasted_text import found, read

from local_tp.hardware.diagnose import diagnose

LIBRARY = (
    "Failed to initialize NVML: Driver/library version mismatch\nNVML library version: 550.144\n"
)


@pytest.mark.parametrize(
    "module",
    [
        "NVRM version: NVIDIA UNIX x86_64 Kernel Module  550.120  Fri Sep 13 10:10:01 UTC 2024\n",
        "NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  550.120  Release Build\n",
    ],
)
def test_a_mismatch_names_both_versions(module: str) -> None:
    pasted = read(LIBRARY + module)
    assert pasted.rig.software.cuda_module == "550.120"
    (finding,) = [f for f in evidence(LIBRARY + module) if f[0] == "driver-mismatch"]
    assert finding[1] == "the driver's library is 550.144 and its loaded module 550.120"


def test_one_version_in_both_places_is_no_mismatch() -> None:
    pasted = read(
        "NVRM version: NVIDIA UNIX x86_64 Kernel Module  550.144.03  Fri Sep 13 2024\n"
        "NVML library version: 550.144\n"
    )
    assert pasted.rig.software.cuda_module == "550.144.03"
    assert found(pasted.rig) == {}


def evidence(text: str) -> list[tuple[str, str]]:
    return [(finding.id, finding.evidence) for finding in diagnose(read(text).rig)]

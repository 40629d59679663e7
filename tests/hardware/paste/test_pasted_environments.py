"""`collect_env` of several ages and systems, and tests of NCCL, in what they say of the cards."""

from __future__ import annotations

import pytest
from pasted_text import found, read

NEW = """\
<details>
<summary>The output of <code>python collect_env.py</code></summary>

```text
Collecting environment information...
==============================
        System Info
==============================
OS                           : Ubuntu 24.04.2 LTS (x86_64)
==============================
       PyTorch Info
==============================
PyTorch version              : 2.7.1+cu126
CUDA used to build PyTorch   : 12.6
ROCM used to build PyTorch   : N/A
==============================
       CUDA / GPU Info
==============================
GPU models and configuration :
GPU 0: NVIDIA GeForce RTX 5090
GPU 1: NVIDIA GeForce RTX 3090

Nvidia driver version        : 575.57.08
==============================
          CPU Info
==============================
CPU(s):                               32
Model name:                           AMD Ryzen 9 7950X 16-Core Processor
Core(s) per socket:                   16
Socket(s):                            1
==============================
         vLLM Info
==============================
vLLM Version                 : 0.9.2
vLLM Build Flags:
  CUDA Archs: Not Set; ROCm: Disabled; Neuron: Disabled
GPU Topology:
  \tGPU0\tGPU1\tCPU Affinity\tNUMA Affinity\tGPU NUMA ID
GPU0\t X \tPHB\t0-31\t0\t\tN/A
GPU1\tPHB\t X \t0-31\t0\t\tN/A

Legend:

  X    = Self
==============================
     Environment Variables
==============================
LD_LIBRARY_PATH=/home/thekla/lib
HF_TOKEN=hf_abcdefghijklmn
PYTORCH_NVML_BASED_CUDA_CHECK=1
```

</details>
"""


def test_a_new_report_with_variables_and_topology() -> None:
    pasted = read(NEW)
    rig = pasted.rig
    assert [d.name for d in rig.devices] == ["NVIDIA GeForce RTX 5090", "NVIDIA GeForce RTX 3090"]
    assert (rig.cores, rig.host.logical_cores, rig.os) == (16, 32, "Ubuntu 24.04.2 LTS (x86_64)")
    assert rig.links[0].facts.path == "PHB"
    assert set(found(rig)) == {"torch-lacks-architecture", "mixed-architectures"}
    assert pasted.unread == ()
    assert "thekla" not in str(pasted)


@pytest.mark.parametrize(
    ("line", "name", "kind", "target"),
    [
        ("GPU 0: NVIDIA GeForce RTX 4070 Ti", "NVIDIA GeForce RTX 4070 Ti", "cuda", "ada"),
        ("AMD Radeon RX 9070 XT (gfx1201)", "AMD Radeon RX 9070 XT", "rocm", "gfx1201"),
        ("Tesla V100-SXM2-16GB", "Tesla V100-SXM2-16GB", "cuda", "volta"),
    ],
)
def test_a_single_card_stands_in_the_line_of_its_title(
    line: str, name: str, kind: str, target: str
) -> None:
    vendor = {"Tesla V100-SXM2-16GB": "Nvidia driver version: 535.1\n"}.get(line, "")
    (card,) = read(f"GPU models and configuration: {line}\n{vendor}").rig.devices
    assert (card.name, card.kind, card.facts.architecture) == (name, kind, target)


@pytest.mark.parametrize("none", ["No CUDA", "Could not collect", "N/A", ""])
def test_no_card_is_none(none: str) -> None:
    assert read(f"GPU models and configuration: {none}\nOS: Debian 12\n").rig.devices == ()


def test_a_report_of_windows() -> None:
    pasted = read(
        "PyTorch version: 1.13.1+cu117\nOS: Microsoft Windows 10 Pro\n"
        "Python platform: Windows-10-10.0.19045-SP0\n"
        "GPU models and configuration: GPU 0: NVIDIA GeForce RTX 4070 Ti\n"
        "Nvidia driver version: 531.18\nCPU:\nArchitecture=9\nCurrentClockSpeed=3701\n"
        "DeviceID=CPU0\nFamily=107\nL2CacheSpeed=\nManufacturer=AuthenticAMD\n"
        "Name=AMD Ryzen 9 5900X 12-Core Processor\nProcessorType=3\nRevision=8450\n"
    )
    assert pasted.rig.host.processor == "AMD Ryzen 9 5900X 12-Core Processor"
    assert pasted.unread == ()
    assert pasted.rig.host.architecture == "x86_64"
    assert [device.facts.driver_model for device in pasted.rig.devices] == ["WDDM"]
    assert found(pasted.rig) == {"wddm-spill": ("GPU0",)}


def test_a_newer_report_of_windows() -> None:
    pasted = read(
        "PyTorch version: 2.5.1+cu124\nOS: Microsoft Windows 11 Pro (10.0.26100 64-bit)\n"
        "Python platform: Windows-11-10.0.26100-SP0\nGPU models and configuration:\n"
        "GPU 0: NVIDIA GeForce RTX 4090\nGPU 1: NVIDIA RTX A4000\n\nCPU:\n"
        "Name: AMD Ryzen 9 7950X 16-Core Processor\nManufacturer: AuthenticAMD\nFamily: 107\n"
        "Architecture: 9\nProcessorType: 3\nDeviceID: CPU0\n"
    )
    host = pasted.rig.host
    assert (host.processor, host.architecture) == (
        "AMD Ryzen 9 7950X 16-Core Processor",
        "x86_64",
    )
    # A card for workstations may run without Windows' own memory manager: nothing is guessed.
    models = {device.name: device.facts.driver_model for device in pasted.rig.devices}
    assert models == {"NVIDIA GeForce RTX 4090": "WDDM", "NVIDIA RTX A4000": None}
    assert (host.wsl, pasted.unread) == (False, ())


def test_a_torch_for_the_processor_beside_a_card() -> None:
    rig = read(
        "PyTorch version: 2.8.0+cpu\nGPU models and configuration: GPU 0: NVIDIA GeForce RTX 3060\n"
    ).rig
    assert found(rig) == {"torch-without-cuda": ("GPU0",)}


# ------------------------------------------------------------------------------ NCCL's tests

HEADER = "#       size         count      type   redop    root     time   algbw   busbw #wrong\n"
ROW = "     1048576        262144     float    {}      -1   151.2    6.94    {}      0   150.1\n"


@pytest.mark.parametrize(
    ("text", "what"),
    [
        (f"{HEADER}{ROW.format('none', '3.47')}", "another collective"),
        (
            f"# Collective test starting: sendrecv_perf\n{HEADER}{ROW.format('sum', '6.94')}",
            "sendrecv_perf",
        ),
    ],
)
def test_other_collectives_are_told_and_not_used(text: str, what: str) -> None:
    pasted = read(text)
    assert pasted.rig.collectives == ()
    assert pasted.unread == (f"line 1: nccl-tests: {what}, not an all-reduce: not used",)


@pytest.mark.parametrize(
    ("line", "said"),
    [
        (
            "thekla-ws: Test NCCL failure all_reduce.cu:44 'unhandled cuda error / '",
            "unhandled cuda error",
        ),
        ("thekla-ws: Test NCCL failure common.cu:1 'secret of thekla'", "an error that is not"),
        ("thekla-ws:1:1 [0] init.cc NCCL WARN Cuda failure 'out of memory'", "out of memory"),
    ],
)
def test_a_failure_is_told_in_known_words_alone(line: str, said: str) -> None:
    rig = read(f"# nThread 1 nGpus 2 minBytes 8\n#\n{line}\n").rig
    (word,) = rig.unknown
    assert said in word
    assert "thekla" not in word
    assert set(found(rig)) == {"collective-failed"}


@pytest.mark.parametrize(
    ("text", "driver"),
    [
        ("NVIDIA-SMI version  : 550.90\nDRIVER version      : 550.90\n", "550.90"),
        ("DRIVER version : Deprecated, see KMD version\nKMD version : 610.43\n", "610.43"),
    ],
)
def test_versions_alone(text: str, driver: str) -> None:
    pasted = read(text)
    assert (pasted.rig.driver, pasted.unread) == (driver, ())


@pytest.mark.parametrize(
    ("lines", "cores"),
    [
        ("CPU(s): 32\nThread(s) per core: 2\nCore(s) per socket: 16\n", 16),
        ("CPU(s): 64\nThread(s) per core: 2\nCore(s) per socket: 16\n", None),
        ("CPU(s): 16\nCore(s) per socket: 16\n", None),
        ("CPU(s): 64\nThread(s) per core: 2\nCore(s) per socket: 16\nSocket(s): 2\n", 32),
    ],
)
def test_without_sockets_cores_are_told_where_there_can_be_only_one(
    lines: str, cores: int | None
) -> None:
    assert read(lines).rig.host.physical_cores == cores

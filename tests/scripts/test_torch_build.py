"""Which PyTorch build a machine gets, and how little an unreachable index costs."""

from __future__ import annotations

import socket
import threading
import time
from pathlib import Path

import pytest
from launcher import torch_build
from launcher.torch_build import Hardware
from launcher_fakes import put


@pytest.mark.parametrize(
    ("hardware", "tag", "words"),
    [
        (Hardware("linux"), "cpu", "no NVIDIA driver"),
        (Hardware("darwin"), "cpu", "macOS"),
        (Hardware("linux", rocm=True), "rocm7.2", "AMD"),
        (Hardware("linux", True, 580, ((8, 6), (12, 0))), "cu130", "driver 580"),
        (Hardware("linux", True, 580, ((8, 6),), rocm=True), "cu130", "driver 580"),
        (Hardware("win32", True, 595, ((7, 5),)), "cu130", "driver 595"),
        (Hardware("linux", True, 579, ((8, 9),)), "cu126", "driver 579"),
        (Hardware("linux", True, 570, ((12, 0),)), "cu126", "update it"),
        (Hardware("linux", True, 525, ((8, 6),)), "cu126", "driver 525"),
        (Hardware("linux", True, 470, ((8, 6),)), "cpu", "too old"),
        (Hardware("linux", True, 580, ((6, 1), (8, 6))), "cu126", "older than the RTX 20"),
        (Hardware("linux", True, 580, ((6, 1), (12, 0))), "cu130", "cannot be used beside"),
        (Hardware("linux", True, None), "cu130", "does not tell"),
    ],
)
def test_the_build_follows_from_the_hardware(hardware: Hardware, tag: str, words: str) -> None:
    build = torch_build.choose(hardware)
    assert build.tag == tag
    assert words in build.why


def test_only_builds_that_the_ordinary_registry_lacks_have_an_index() -> None:
    assert torch_build.choose(Hardware("darwin")).index is None
    assert torch_build.choose(Hardware("win32")).index is None
    linux = torch_build.choose(Hardware("linux"))
    assert linux.index == "https://download.pytorch.org/whl/cpu"
    nvidia = torch_build.choose(Hardware("win32", True, 580))
    assert nvidia.index == "https://download.pytorch.org/whl/cu130"


@pytest.mark.parametrize(
    ("system", "hardware", "words"),
    [
        ("linux", Hardware("linux", True, 580), "is a CUDA build too"),
        ("win32", Hardware("win32", True, 580), "runs on the CPU only"),
        ("linux", Hardware("linux", rocm=True), "runs on the CPU only"),
        ("linux", Hardware("linux", True, 550), "needs driver 580"),
        ("linux", Hardware("linux"), "runs the same"),
    ],
)
def test_falling_back_says_what_it_means(system: str, hardware: Hardware, words: str) -> None:
    assert words in torch_build.ordinary_registry_note(torch_build.choose(hardware), system)


@pytest.mark.parametrize(
    ("text", "branch"),
    [
        ("580.95.05, 12.0\n", 580),
        ("NVRM version: NVIDIA UNIX x86_64 Kernel Module  550.54.14  Thu Feb 22", 550),
        ("NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  580.95.05  Release", 580),
        ("NVIDIA-SMI has failed", None),
    ],
)
def test_the_driver_branch_is_read(text: str, branch: int | None) -> None:
    assert torch_build.driver_branch(text) == branch


def test_hardware_is_read_from_marks_and_from_the_query(tmp_path: Path) -> None:
    assert torch_build.read_hardware("linux", tmp_path, lambda _: "") == Hardware("linux")
    put(tmp_path, torch_build.PROC_VERSION, "NVRM version: Kernel Module  570.86.10  Release\n")
    assert torch_build.read_hardware("linux", tmp_path, lambda _: "") == Hardware(
        "linux", True, 570
    )
    answer = "570.86.10, 8.6\n570.86.10, [N/A]\n570.86.10, 12.0\n"
    assert torch_build.read_hardware("linux", tmp_path, lambda _: answer) == Hardware(
        "linux", True, 570, ((8, 6), (12, 0))
    )


def test_a_processors_own_amd_graphics_are_not_a_rocm_card(tmp_path: Path) -> None:
    put(tmp_path, "dev/kfd")
    put(tmp_path, "sys/class/drm/card0/device/mem_info_vram_total", f"{512 * 1024**2}\n")
    assert not torch_build.rocm_present(tmp_path)
    put(tmp_path, "sys/class/drm/card1/device/mem_info_vram_total", f"{24 * 1024**3}\n")
    assert torch_build.rocm_present(tmp_path)


def test_the_signature_changes_with_driver_and_cards(tmp_path: Path) -> None:
    seen = [torch_build.signature(tmp_path)]
    put(tmp_path, torch_build.PROC_VERSION, "570.86\n")
    seen.append(torch_build.signature(tmp_path))
    put(tmp_path, torch_build.PROC_VERSION, "580.95\n")
    seen.append(torch_build.signature(tmp_path))
    put(tmp_path, f"{torch_build.PROC_CARDS}/0000:01:00.0/information")
    seen.append(torch_build.signature(tmp_path))
    put(tmp_path, torch_build.WINDOWS_DRIVER)
    seen.append(torch_build.signature(tmp_path))
    assert len(set(seen)) == 5
    assert torch_build.signature(tmp_path) == seen[-1]


# --------------------------------------------------------------------------- the index's answer


def test_an_index_that_never_answers_costs_no_more_than_the_limit() -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        port = silent.getsockname()[1]
        started = time.monotonic()
        assert not torch_build.answers(f"http://127.0.0.1:{port}/torch/", seconds=0.5)
        assert time.monotonic() - started < 1.5


def test_an_index_that_refuses_is_known_at_once() -> None:
    with socket.create_server(("127.0.0.1", 0)) as gone:
        port = gone.getsockname()[1]
    assert not torch_build.answers(f"http://127.0.0.1:{port}/torch/", seconds=2)


@pytest.mark.parametrize(("status", "good"), [("200 OK", True), ("403 Forbidden", False)])
def test_an_index_counts_only_when_it_has_the_page(status: str, good: bool) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:

        def serve() -> None:
            connection, _ = server.accept()
            with connection:
                connection.recv(4096)
                connection.sendall(f"HTTP/1.1 {status}\r\nContent-Length: 0\r\n\r\n".encode())

        thread = threading.Thread(target=serve)
        thread.start()
        url = f"http://127.0.0.1:{server.getsockname()[1]}/torch/"
        assert torch_build.answers(url, seconds=5) is good
        thread.join()

"""Matrices of `nvidia-smi topo`: every letter of `-p2p`, matrices cut short, bridges not fitted."""

from __future__ import annotations

import pytest
from pasted_text import found, pairs, read

LIST = "".join(f"GPU {i}: NVIDIA GeForce RTX 3090 (UUID: GPU-{i}aaaaaaa-1)\n" for i in range(2))


def matrix(flag: str, word: str) -> str:
    command = f"$ nvidia-smi topo -p2p {flag}\n"
    return (
        f"{command} \tGPU0\tGPU1\n GPU0\tX\t{word}\n GPU1\t{word}\tX\n\nLegend:\n\n  X    = Self\n"
    )


@pytest.mark.parametrize("way", ["PIX", "PXB", "PHB", "NODE"])
def test_a_way_over_pcie_means_that_no_bridge_is_fitted(way: str) -> None:
    rig = read(
        LIST + f"\tGPU0\tGPU1\tCPU Affinity\nGPU0\t X \t{way}\t0-15\nGPU1\t{way}\t X \t0-15\n"
    ).rig
    facts = pairs(rig)["GPU0", "GPU1"].facts
    assert (facts.path, facts.nvlinks) == (way, 0)
    assert found(rig) == {"nvlink-absent": ("GPU0", "GPU1")}


def test_a_bridge_that_is_fitted_is_none_that_could_be() -> None:
    rig = read(LIST + "GPU0\t X \tNV4\nGPU1\tNV4\t X \n").rig
    assert pairs(rig)["GPU0", "GPU1"].facts.nvlinks == 4
    assert found(rig) == {}


def test_cards_far_apart_and_cards_without_connector_need_no_bridge() -> None:
    far = read(LIST + "GPU0\t X \tSYS\nGPU1\tSYS\t X \n").rig
    other = read(LIST.replace("3090", "4090") + "GPU0\t X \tPHB\nGPU1\tPHB\t X \n").rig
    unnamed = read("GPU0\t X \tPHB\nGPU1\tPHB\t X \n").rig
    assert (found(far), found(other), found(unnamed)) == ({}, {}, {})


@pytest.mark.parametrize(
    ("word", "kind", "path", "nvlinks"),
    [("OK", "nvlink", "nvlink", None), ("NS", "host", None, 0), ("U", "host", None, None)],
)
def test_the_matrix_of_nvlink(word: str, kind: str, path: str | None, nvlinks: int | None) -> None:
    link = pairs(read(matrix("n", word)).rig)["GPU0", "GPU1"]
    assert (link.kind, link.facts.path, link.facts.nvlinks) == (kind, path, nvlinks)
    assert link.facts.read is None


def test_the_matrix_of_atomics() -> None:
    facts = pairs(read(matrix("a", "NS")).rig)["GPU0", "GPU1"].facts
    assert (facts.atomics, facts.read, facts.write) == ("not-supported", None, None)


def test_the_matrix_of_pcie_stands_in_for_that_of_reading() -> None:
    alone = pairs(read(matrix("p", "CNS")).rig)["GPU0", "GPU1"].facts
    beside = pairs(read(matrix("p", "CNS") + matrix("r", "OK")).rig)["GPU0", "GPU1"].facts
    joined = pairs(read(matrix("n", "OK") + matrix("p", "CNS")).rig)["GPU0", "GPU1"]
    assert (alone.read, alone.write) == ("chipset", "chipset")
    assert beside.read == "ok"
    assert (joined.kind, joined.facts.read) == ("nvlink", None)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (
            "  GPU0 GPU1 GPU2 ... GPU7\nGPU0 X PHB PHB ... SYS\nGPU1 PHB X PHB ... SYS\n...\n",
            "abridged or cut off: cards that it leaves out are not counted: it says nothing of "
            "GPU2 with GPU7",
        ),
        ("GPU0 GPU1 GPU2 GPU3\nGPU0 X CNS CNS CNS\n", "says nothing of GPU1 with GPU2, GPU1 with"),
        ("GPU0 GPU1 GPU2 GPU3\nGPU0 X NV4 PHB\n", "GPU1 with GPU2, GPU1 with GPU3 and 1 more pair"),
        ("GPU0 GPU1 …\nGPU0 X CNS\nGPU1 CNS X\n", "cards that it leaves out are not counted"),
    ],
)
def test_a_matrix_that_is_not_whole_is_said_to_be_so(text: str, said: str) -> None:
    (word,) = [w for w in read(text).unread if "abridged" in w]
    assert said in word


def test_a_whole_matrix_is_not() -> None:
    assert read("GPU0 GPU1 GPU2\nGPU0 X PHB SYS\nGPU1 PHB X SYS\nGPU2 SYS SYS X\n").unread == ()
    assert read("GPU0 CPU Affinity NUMA Affinity\nGPU0 X 0-23 0 N/A\n").unread == ()


def test_eight_cards_with_network_cards_between_them() -> None:
    labels = [f"GPU{i}" for i in range(8)] + [f"NIC{i}" for i in range(2)]
    rows = [
        "\t".join(
            [a, *(" X " if a == b else "NV18" if a[0] == b[0] == "G" else "NODE" for b in labels)]
        )
        for a in labels
    ]
    legend = "\nNIC Legend:\n\n  NIC0: mlx5_0\n  NIC1: mlx5_1\n"
    pasted = read("\t" + "\t".join(labels) + "\n" + "\n".join(rows) + "\n" + legend)
    assert len(pasted.rig.devices) == 8
    assert {(k.kind, k.facts.nvlinks) for k in pasted.rig.links} == {("nvlink", 18)}
    assert (len(pasted.rig.links), pasted.unread) == (28, ())

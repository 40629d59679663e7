"""Matrices of `nvidia-smi topo`: every letter of `-p2p`, matrices cut short, bridges not fitted."""

from __future__ import annotations

import pytest
from pasted_text import found, pairs, read

from local_tp.hardware.diagnose import diagnose

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


HEADS = {
    "old": ("CPU Affinity", "0-9,20-29", "10-19,30-39"),
    "new": ("CPU Affinity\tNUMA Affinity\tGPU NUMA ID", "0-31\t0\t\tN/A", "32-63\t1\t\tN/A"),
    "bare": ("CPU Affinity\tNUMA Affinity", "N/A\t0", "N/A\t1"),
}


def far(head: str, first: str, second: str) -> str:
    return (
        f"\tGPU0\tGPU1\tmlx5_0\t{head}\nGPU0\t X \tSYS\tPIX\t{first}\n"
        f"GPU1\tSYS\t X \tSYS\t{second}\nmlx5_0\tPIX\tSYS\t X \n"
    )


@pytest.mark.parametrize("form", HEADS)
def test_two_cards_of_two_sockets(form: str) -> None:
    rig = read(far(*HEADS[form])).rig
    assert [device.facts.numa for device in rig.devices] == [0, 1]
    (finding,) = [f for f in diagnose(rig) if f.id == "cards-on-two-sockets"]
    assert finding.devices == ("GPU0", "GPU1")
    assert finding.evidence.startswith("1 of 1 pairs reach each other only across the processors'")
    assert finding.remedy.startswith("put the cards into slots of one processor")


@pytest.mark.parametrize(
    "text",
    [
        far("CPU Affinity\tNUMA Affinity", "0-31\tN/A", "0-31\tN/A"),
        far("CPU Affinity", "0-31", "0-31"),
        far("CPU Affinity", "0-31", "16-47"),
        far("CPU Affinity", "", ""),
        far(*HEADS["new"]).replace("SYS", "NODE"),
        far(*HEADS["new"]) + "Socket(s): 1\n",
        far(*HEADS["new"]) + "Hypervisor vendor: KVM\n",
    ],
)
def test_what_does_not_show_two_sockets_is_no_finding(text: str) -> None:
    assert "cards-on-two-sockets" not in found(read(text).rig)


def test_nodes_told_by_lspci_say_that_two_cards_are_far_apart() -> None:
    text = "".join(
        f"{bus}:00.0 VGA compatible controller: NVIDIA Corporation GA102 [GeForce RTX 3090]\n"
        f"\tNUMA node: {node}\n"
        for bus, node in (("17", 0), ("18", 0), ("ca", 1))
    )
    rig = read(text).rig
    assert [(ends, link.facts.path) for ends, link in pairs(rig).items()] == [
        (("17", "ca"), "SYS"),
        (("18", "ca"), "SYS"),
    ]
    (finding,) = [f for f in diagnose(rig) if f.id == "cards-on-two-sockets"]
    assert finding.devices == ("0000:17:00.0", "0000:18:00.0", "0000:ca:00.0")
    assert "one side ([0000:17:00.0, 0000:18:00.0] or [0000:ca:00.0])" in finding.remedy

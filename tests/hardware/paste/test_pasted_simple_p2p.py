"""`simpleP2P` of the CUDA samples: a pair that works, one that lies, cards without a pair."""

from __future__ import annotations

import pytest
from pasted_text import found, pairs, read

HEAD = """\
$ ./simpleP2P
[./simpleP2P] - Starting...
Checking for multiple GPUs...
CUDA-capable device count: {}

Checking GPU(s) for support of peer to peer memory access...
"""
ACCESS = "> Peer access from NVIDIA {} (GPU{}) -> NVIDIA {} (GPU{}) : {}\n"
COPY = """\
Enabling peer access between GPU0 and GPU1...
Allocating buffers (64MB on GPU0, GPU1 and CPU Host)...
Creating event handles...
cudaMemcpyPeer / cudaMemcpy between GPU0 and GPU1: 12.50GB/s
Preparing host buffer and memcpy to GPU0...
Run kernel on GPU1, taking source data from GPU0 and writing to GPU1...
Run kernel on GPU0, taking source data from GPU1 and writing to GPU0...
Copy data back to host from GPU0 and verify results...
"""
END = "Disabling peer access...\nShutting down...\nTest {}\n"
WRONG = "".join(
    f"Verification error @ element {i}: val = nan, ref = {4 * i}.000000\n" for i in range(3)
)
NONE = "Two or more GPUs with Peer-to-Peer access capability are required for ./simpleP2P.\n"


def head(*models: str, joined: bool = True, count: int | None = None) -> str:
    """The head of the output: of the cards only the first two reach one another."""
    lines = [
        ACCESS.format(a, i, b, j, "Yes" if joined and {i, j} == {0, 1} else "No")
        for i, a in enumerate(models)
        for j, b in enumerate(models)
        if i != j
    ]
    return HEAD.format(len(models) if count is None else count) + "".join(lines)


A5000 = "RTX A5000", "RTX A5000"


def test_a_pair_that_works_has_its_rate_and_what_was_checked() -> None:
    pasted = read(head(*A5000, "RTX A2000") + COPY + END.format("passed"))
    rig = pasted.rig
    assert [device.name for device in rig.devices] == [
        *("NVIDIA RTX A5000", "NVIDIA RTX A5000"),
        "NVIDIA RTX A2000",
    ]
    near, far = pairs(rig)["GPU0", "GPU1"], pairs(rig)["GPU1", "GPU2"]
    rate = 12.5 * 2**30
    assert (near.facts.read, near.facts.write, near.facts.verdict) == ("ok", "ok", "good")
    assert (near.facts.forth, near.facts.back, near.bandwidth) == (rate, rate, rate)
    assert (near.measured, near.verified) == (True, False)  # no text can show that data arrived
    assert (far.facts.read, far.facts.verdict, far.bandwidth) == ("not-supported", None, None)
    assert found(rig) == {"p2p-off": ("GPU0", "GPU1", "GPU2")}
    assert pasted.unread == ()


@pytest.mark.parametrize("wrong", [WRONG + END.format("failed!"), WRONG, END.format("failed!")])
def test_data_that_did_not_arrive_is_an_error_and_has_no_rate(wrong: str) -> None:
    pasted = read(head(*A5000) + COPY + wrong)
    (link,) = pasted.rig.links
    assert (link.facts.read, link.facts.verdict) == ("ok", "broken")
    assert (link.bandwidth, link.facts.forth, link.measured) == (None, None, False)
    assert found(pasted.rig) == {"p2p-broken": ("GPU0", "GPU1")}
    assert pasted.unread == ()


def test_a_copy_that_ends_with_an_error_failed() -> None:
    error = 'CUDA error at simpleP2P.cu:182 code=719(cudaErrorLaunchFailure) "cudaMemcpy(g1)" \n'
    (link,) = read(head(*A5000) + COPY + error).rig.links
    assert link.facts.verdict == "failed"


@pytest.mark.parametrize(
    "text",
    [
        head("L4", "L4", joined=False) + NONE,
        HEAD.format(2) + NONE,
        head("L4", "L4", joined=False) + "Peer to Peer access is not available amongst GPUs in the "
        "system, waiving test.\n",
    ],
)
def test_cards_without_a_pair(text: str) -> None:
    pasted = read(text)
    (link,) = pasted.rig.links
    assert (link.facts.read, link.facts.verdict) == ("not-supported", None)
    assert found(pasted.rig) == {"p2p-off": ("GPU0", "GPU1")}
    assert pasted.unread == ()


def test_one_card_has_no_pair_and_nothing_is_missing() -> None:
    pasted = read(HEAD.format(1) + NONE + "Waiving test.\n")
    assert (pasted.rig.links, pasted.unread) == ((), ())


@pytest.mark.parametrize(
    ("text", "words"),
    [(NONE, "no two cards have peer access"), (WRONG, "a copy between two cards went wrong")],
)
def test_a_piece_that_names_no_cards_says_what_it_lacks(text: str, words: str) -> None:
    pasted = read(text)
    assert pasted.rig.devices == ()
    (line,) = pasted.unread
    assert line.startswith(f"line 1: simpleP2P says that {words}")
    assert line.endswith("paste all of its output")


@pytest.mark.parametrize("turned", [False, True])
def test_of_two_runs_the_one_that_went_wrong_counts(turned: bool) -> None:
    runs = [head(*A5000) + COPY + END.format("passed"), head(*A5000) + COPY + WRONG]
    (link,) = read(*(runs[::-1] if turned else runs)).rig.links
    assert link.facts.verdict == "broken"


def test_the_driver_s_word_and_the_places_come_from_other_outputs() -> None:
    query = "index, name, pci.bus_id\n0, NVIDIA RTX A5000, 00000000:41:00.0\n"
    query += "1, NVIDIA RTX A5000, 00000000:81:00.0\n"
    topology = "\tGPU0\tGPU1\nGPU0\t X \tPHB\nGPU1\tPHB\t X \n"
    rig = read(query, topology, head(*A5000) + COPY + WRONG).rig
    (link,) = rig.links
    assert (link.a, link.b, link.facts.path) == ("0000:41:00.0", "0000:81:00.0", "PHB")
    assert "p2p-broken" in found(rig)

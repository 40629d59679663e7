"""A `p2pBandwidthLatencyTest` that ends too soon: cut by a person, or hanging."""

from __future__ import annotations

import pytest
from pasted_text import pairs, read

HEAD = (
    "Device: 0, NVIDIA GeForce RTX 3090, pciBusID: 1, pciDeviceID: 0, pciDomainID:0\n"
    "Device: 1, NVIDIA GeForce RTX 3090, pciBusID: 2, pciDeviceID: 0, pciDomainID:0\n"
    "Device=0 {can} Access Peer Device=1\nDevice=1 {can} Access Peer Device=0\n"
)
MATRIX = "{way}directional P2P={state} Bandwidth Matrix (GB/s)\n   D\\D     0      1\n"
ROWS = "     0 830.12  {rate}\n     1  {rate} 831.20\n"
STAGED = MATRIX.format(way="Uni", state="Disabled") + ROWS.format(rate=" 5.91")
PEERS = MATRIX.format(way="Uni", state="Enabled")
WHOLE = PEERS + ROWS.format(rate="52.70")
CUTS = ["     0 831.30  52.7\n", "     0 831.30  52.71\n", ""]


def peers(text: str, can: str = "CAN") -> str | None:
    return pairs(read(HEAD.format(can=can) + text).rig)["01", "02"].facts.read


@pytest.mark.parametrize("rest", [*(PEERS + cut for cut in CUTS), PEERS.splitlines()[0]])
def test_a_first_matrix_with_peers_that_is_cut_is_no_word_for_them(rest: str) -> None:
    (said,) = read(HEAD.format(can="CAN") + STAGED + rest).unread
    assert said.startswith("line 9: p2pBandwidthLatencyTest ends before its matrix")
    assert "peer-to-peer that hangs" in said
    assert peers(STAGED + rest) == "unknown"
    assert peers(STAGED + rest, "CANNOT") == "not-supported"


def test_after_a_whole_matrix_with_peers_a_cut_is_only_said() -> None:
    cut = MATRIX.format(way="Bi", state="Enabled") + CUTS[0]
    (said,) = read(HEAD.format(can="CAN") + WHOLE + cut).unread
    assert "'Bidirectional P2P=Enabled Bandwidth Matrix (GB/s)'" in said
    assert peers(WHOLE + cut) == "ok"


def test_a_cut_without_peers_is_no_sign_of_a_hang() -> None:
    cut = MATRIX.format(way="Uni", state="Disabled") + CUTS[0]
    (said,) = read(HEAD.format(can="CAN") + cut).unread
    assert said.endswith("is whole: paste all of its output")
    assert peers(cut) == "ok"


@pytest.mark.parametrize("text", ["", STAGED, STAGED + WHOLE])
def test_whole_matrices_are_whole(text: str) -> None:
    assert read(HEAD.format(can="CAN") + text).unread == ()
    assert peers(text) == "ok"

"""What a link costs, by arithmetic: the bytes that a split model sends over it.

Knows nothing of rigs. The numbers are for one stated reference model, so that two links can be
compared; a plan has the exact ones. Bytes and seconds.
"""

from __future__ import annotations

# A dense model of about 32 billion parameters, 16-bit activations, about 20 GB when quantized.
HIDDEN = 5120
LAYERS = 64
ACTIVATION = 2
REDUCTIONS = 2 * LAYERS  # one after attention, one after the feed-forward part
MODEL_BYTES = 20e9
PROMPT = 1000

# Bytes a second of one lane and direction after line coding, by PCI Express generation.
LANE = {1: 0.25e9, 2: 0.5e9, 3: 0.985e9, 4: 1.969e9, 5: 3.938e9, 6: 7.563e9}
# What copies reach of that: 26 GB/s of 31.5 on 4.0 x16, 13.2 of 15.8 on x8, 6.5 of 7.9 on x4.
EFFICIENCY = 0.83


def pcie_rate(generation: int, lanes: int) -> float | None:
    """Bytes a second one way that a copy reaches, None for a generation not known here."""
    lane = LANE.get(generation)
    return None if lane is None else lane * lanes * EFFICIENCY


def prompt_seconds(bandwidth: float) -> float:
    """Time on the link for `PROMPT` tokens of prefill, split by tensor over two cards.

    An all-reduce over two ranks sends each rank's whole activation once each way.
    """
    return PROMPT * HIDDEN * ACTIVATION * REDUCTIONS / bandwidth


def reduction_seconds(bandwidth: float) -> float:
    """Time on the link for one token's activation, without the latency of starting a copy."""
    return HIDDEN * ACTIVATION / bandwidth


def token_wait(latency: float) -> float:
    """What a message's latency adds to one decoded token under a tensor split."""
    return REDUCTIONS * latency


def load_seconds(bandwidth: float) -> float:
    """Time to bring `MODEL_BYTES` over a link or off a disk."""
    return MODEL_BYTES / bandwidth

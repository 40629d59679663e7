"""How one exchange lies in shared memory: arithmetic that both ends compute alike.

Knows nothing of torch, so that the parent can size the memory which its workers map.
"""

from __future__ import annotations

from dataclasses import dataclass

FLAG_BYTES = 128  # a flag has a pair of cache lines to itself, so that ranks do not disturb others
SLOTS = 2
FLOAT_BYTES = 4


@dataclass(frozen=True, slots=True)
class Region:
    """From `offset`: a flag for each of `members`, then two slots of `lanes` lanes.

    `capacity` is the float32 elements of a lane.
    """

    offset: int
    members: int
    lanes: int
    capacity: int

    @property
    def flags_stop(self) -> int:
        return self.offset + self.members * FLAG_BYTES

    @property
    def lane_elements(self) -> int:
        return self.lanes * self.capacity

    def slot(self, index: int) -> int:
        """The first byte of a slot."""
        return self.flags_stop + index * self.lane_elements * FLOAT_BYTES

    @property
    def stop(self) -> int:
        return self.slot(SLOTS)

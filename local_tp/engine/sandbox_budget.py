"""What one rendering of a template may use: turns of loops, processor time, and memory.

Knows nothing of Jinja's grammar. Sizes are characters; an item of a list counts as several. No
value is larger than `MAX_SIZE` with all that it holds, however often it holds the same, so that
nothing done to a value takes long; and all values together have a bound as well.
"""

from __future__ import annotations

import time
from collections.abc import ItemsView, KeysView, Mapping, ValuesView
from typing import Any

from jinja2.exceptions import SecurityError
from jinja2.utils import Namespace

BUDGET = "budget left"  # not an identifier, so that no template can name it
MAX_STEPS = 200_000  # turns of all loops of one rendering together
MAX_SIZE = 16 * 1024 * 1024  # of any value on the way and of the prompt
MAX_MADE = 4 * MAX_SIZE  # of all values together
MAX_SECONDS = 0.3  # of the processor; real templates take some thousandths
MAX_BITS = 4096  # of an integer
ITEM = 16  # what a place in a list or an object takes, in characters

# A long conversation takes longer: what each of its characters adds to the limits.
SECONDS_A_CHARACTER = 5e-6
MADE_A_CHARACTER = 64


class Budget:
    """The limits of one rendering; `given` is the size of what goes into it.

    Its errors are `SecurityError`, with the limit that was passed. To be used in one thread.
    """

    def __init__(self, *given: object) -> None:
        self._sizes: dict[int, tuple[object, int]] = {}
        size = sum(map(self.size, given))
        self.check(size)
        self._steps = MAX_STEPS + size
        self._made = MAX_MADE + MADE_A_CHARACTER * size
        self._seconds = MAX_SECONDS + SECONDS_A_CHARACTER * size
        self._end = time.thread_time() + self._seconds

    def turn(self, weight: int) -> None:
        """One turn of a loop, whose body has `weight` characters of its own to write."""
        self._steps -= 1
        self._pay(weight)
        if self._steps < 0:
            raise SecurityError(f"its loops ran more than {MAX_STEPS:,} times")
        if not self._steps & 15:
            self.check_time()

    def check_time(self) -> None:
        if time.thread_time() > self._end:
            raise SecurityError(f"it ran for more than {self._seconds:.1f} seconds")

    def made(self, value: Any) -> Any:
        """`value`, which was just made and is paid for."""
        self.check(self.size(value))
        if isinstance(value, str):
            self._pay(len(value))
        elif isinstance(value, list | tuple | dict):
            self._pay(ITEM * len(value))
        return value

    def check(self, size: int) -> None:
        """Refuse a value of `size`, best before it is made."""
        if size > MAX_SIZE:
            raise SecurityError(f"it made a value of more than {MAX_SIZE:,} characters or items")

    def size(self, value: object) -> int:
        """Of `value` with all that it holds, the same things as often as they are there.

        Refuses one that is too large, however it came about.
        """
        if isinstance(value, str):
            return len(value)
        if isinstance(value, int):
            return 1 + value.bit_length() // 3
        if isinstance(value, Namespace):
            raise SecurityError("it uses a namespace as a value")
        if not isinstance(value, list | tuple | Mapping | KeysView | ValuesView | ItemsView):
            return 1
        known = self._sizes.get(id(value))
        if known is None:
            held = [*value, *value.values()] if isinstance(value, Mapping) else value
            known = (value, sum(ITEM + self.size(item) for item in held))
            self._sizes[id(value)] = known  # it is kept, so that no other gets its id
            self.check(known[1])
        return known[1]

    def _pay(self, size: int) -> None:
        self._made -= size
        if self._made < 0:
            raise SecurityError(f"it made values of more than {MAX_MADE:,} characters together")

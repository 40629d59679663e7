"""One pool of rank processes for all tests of this folder, and torch as they use it."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch
from family_pool import RankPool


@pytest.fixture(scope="session")
def pool() -> Iterator[RankPool]:
    pool = RankPool()
    yield pool
    pool.close()


@pytest.fixture(scope="session", autouse=True)
def _one_thread() -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)

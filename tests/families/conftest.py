"""One pool of rank processes for all tests of this folder, and torch as they use it."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch
from family_pool import RankPool

_POOL = pytest.StashKey[RankPool]()


@pytest.fixture(scope="session")
def pool(pytestconfig: pytest.Config) -> RankPool:
    return pytestconfig.stash.setdefault(_POOL, RankPool())


def pytest_runtest_teardown(item: pytest.Item, nextitem: pytest.Item | None) -> None:
    """Behind the last test of this folder the processes end: a fixture's end would come later."""
    if nextitem is None or nextitem.path.parent != item.path.parent:
        started = item.config.stash.get(_POOL, None)
        if started is not None:
            started.close()


@pytest.fixture(scope="module", autouse=True)
def _one_thread() -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)

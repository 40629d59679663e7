"""Shared by the tests of this folder: no gradients, as in a worker, this processor, real ranks."""

from __future__ import annotations

import platform
from collections.abc import Iterator

import pytest
import torch
from rank_process import Received, run_ranks

from local_tp.model.processor import Processor, learn_processor


@pytest.fixture(autouse=True)
def _no_gradients() -> Iterator[None]:
    with torch.no_grad():
        yield


@pytest.fixture(scope="session")
def processor() -> Processor:
    return learn_processor()


@pytest.fixture(scope="session")
def unpacking(processor: Processor) -> Processor:
    """This processor, whose packed order is known: on x86-64 it must be."""
    if platform.machine().lower() not in ("x86_64", "amd64"):
        pytest.skip(f"{platform.machine()}: torch's packed order is learnt on x86-64 alone")
    assert processor.order is not None
    return processor


@pytest.fixture(scope="session", params=[2, 3])
def received(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> list[Received]:
    """What each of two, and then three, processes got from the others."""
    return run_ranks(request.param, tmp_path_factory.mktemp("ranks"))

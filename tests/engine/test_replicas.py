"""One engine over several crews: requests spread out, and one death is not everybody's."""

from __future__ import annotations

import threading
import time
from collections.abc import Sequence

import pytest
from fake_crew import FakeCrew, letter
from small_engine import alone, end_of, open_gates, prompts, running

from local_tp.core import Sampling
from local_tp.errors import LocalTpError, WorkerDied
from local_tp.runtime.wire import Measured


def asked_of(crew: FakeCrew) -> set[int]:
    """The requests that a crew had rows of."""
    return {row.request for step in crew.steps for row in step.rows}


def test_requests_go_to_whoever_has_fewest_tokens_before_them() -> None:
    crews = [FakeCrew(), FakeCrew(), FakeCrew()]
    with running(*crews, held=True) as engine:
        texts = prompts(6, (40, 20, 5, 5, 5, 5))  # with a chunk of 8 each: 48, 28, 13, …
        asked = [engine.submit(text, Sampling(), max_tokens=4) for text in texts]
        open_gates(crews)
        for generation, text in zip(asked, texts, strict=True):
            assert end_of(generation).tokens == alone(text, 4)
    numbers = [generation.id for generation in asked]
    assert len(set(numbers)) == 6, "one numbering for all replicas"
    assert [asked_of(crew) for crew in crews] == [
        {numbers[0]},
        {numbers[1], numbers[5]},  # 28, where the third has 39 by then
        {numbers[2], numbers[3], numbers[4]},
    ]


def test_whoever_writes_has_less_room_than_whoever_is_idle() -> None:
    pace = threading.Semaphore(1)  # tokens that the first crew may make

    def paced(sequence: Sequence[int]) -> int:
        assert pace.acquire(timeout=5)
        return letter(sequence)

    crews = [FakeCrew(paced), FakeCrew()]
    with running(*crews) as engine:
        long = engine.submit([1], Sampling(), max_tokens=60)
        next(iter(long))
        short = [end_of(engine.submit([n], Sampling(), max_tokens=2)) for n in (2, 3)]
        pace.release(100)
        assert [answer.tokens for answer in short] == [alone([2], 2), alone([3], 2)]
        end_of(long)
    assert asked_of(crews[0]) == {long.id}


def test_all_run_at_the_same_time() -> None:
    crews = [FakeCrew(), FakeCrew()]
    with running(*crews, held=True) as engine:
        asked = [engine.submit([n], Sampling(), max_tokens=3) for n in (1, 2)]
        for crew in crews:
            assert crew.began.wait(5), "it waits for the other"
        assert engine.health().running == 2
        open_gates(crews)
        assert [end_of(g).tokens for g in asked] == [alone([1], 3), alone([2], 3)]


def test_submitting_from_many_threads_spreads_evenly() -> None:
    crews = [FakeCrew(), FakeCrew()]
    with running(*crews, held=True) as engine:
        threads = [
            threading.Thread(target=engine.submit, args=([1], Sampling()), kwargs={"max_tokens": 1})
            for _ in range(20)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(5)
        open_gates(crews)
        limit = time.monotonic() + 5
        while len(asked_of(crews[0]) | asked_of(crews[1])) < 20 and time.monotonic() < limit:
            time.sleep(0.01)
    assert [len(asked_of(crew)) for crew in crews] == [10, 10]


def test_a_death_ends_its_own_requests_and_the_others_go_on() -> None:
    crews = [FakeCrew(), FakeCrew(dies_at=3)]
    told: list[LocalTpError] = []
    with running(*crews, held=True, told=told.append) as engine:
        living, dying = (engine.submit([n], Sampling(), max_tokens=9) for n in (1, 2))
        open_gates(crews)
        with pytest.raises(WorkerDied, match="out of memory"):
            end_of(dying)
        assert end_of(living).tokens == alone([1], 9)
        health = engine.health()
        assert (health.ok, health.state) == (False, "degraded")
        assert health.detail.startswith("1 of 2 replicas failed, the others go on: worker 0 on cpu")
        assert [worker.alive for worker in health.workers] == [True, False]
        for n in range(4):
            assert end_of(engine.submit([n], Sampling(), max_tokens=3)).tokens == alone([n], 3)
        assert crews[1].closed, "its memory is not free"
        assert [str(error) for error in told] == [health.detail.partition(": ")[2]]

        crews[0].die()
        health = engine.health()
        assert (health.ok, health.state) == (False, "failed")
        with pytest.raises(WorkerDied):
            engine.submit([1], Sampling())
    assert engine.health().state == "closed"


def test_closing_ends_all() -> None:
    crews = [FakeCrew(), FakeCrew(), FakeCrew()]
    with running(*crews, held=True) as engine:
        asked = [engine.submit([n], Sampling(), max_tokens=50) for n in range(5)]
        engine.stop()
        open_gates(crews)
        engine.close()
        assert [end_of(generation).finish_reason for generation in asked] == ["cancelled"] * 5
        assert [crew.closed for crew in crews] == [1, 1, 1]
        with pytest.raises(LocalTpError, match="closed"):
            engine.submit([1], Sampling())


def test_cancelling_finds_the_replica() -> None:
    crews = [FakeCrew(), FakeCrew()]
    with running(*crews, held=True) as engine:
        asked = [engine.submit([n], Sampling(), max_tokens=50) for n in (1, 2)]
        asked[1].cancel()
        open_gates(crews)
        assert end_of(asked[1]).finish_reason == "cancelled"
        assert end_of(asked[0]).finish_reason == "length"


def test_measured_has_the_ranks_of_all() -> None:
    crews = [
        FakeCrew(measured={0: Measured(1, 2, 3.0), 1: Measured(4, 5, 6.0)}),
        FakeCrew(measured={2: Measured(7, 8, 9.0), 3: Measured(10, 11, 12.0)}),
    ]
    with running(*crews) as engine:
        assert [engine.measured[rank].weights for rank in range(4)] == [1, 4, 7, 10]


@pytest.mark.parametrize(("stages", "most"), [(1, 1), (2, 2), (3, 3)])
def test_as_many_steps_are_under_way_as_there_are_stages(stages: int, most: int) -> None:
    crew = FakeCrew()
    texts = prompts(4, (40, 25))
    with running(crew, stages=stages, held=True) as engine:
        asked = [engine.submit(text, Sampling(), max_tokens=12) for text in texts]
        crew.gate.set()
        for generation, text in zip(asked, texts, strict=True):
            assert end_of(generation).tokens == alone(text, 12)
    assert crew.most_under_way == most


def test_cancelling_while_several_steps_are_under_way() -> None:
    crew = FakeCrew()
    with running(crew, stages=3, pages=16, held=True) as engine:
        first = engine.submit(prompts(1, [40])[0], Sampling(), max_tokens=20)
        assert crew.began.wait(5)
        first.cancel()
        second = engine.submit([7] * 40, Sampling(), max_tokens=20)
        crew.gate.set()
        assert end_of(first).finish_reason == "cancelled"
        assert end_of(second).tokens == alone([7] * 40, 20)


def test_a_death_with_several_steps_under_way_ends_every_reader() -> None:
    crew = FakeCrew(dies_at=2)
    with running(crew, stages=3, held=True) as engine:
        asked = [engine.submit(text, Sampling(), max_tokens=9) for text in prompts(3, [30])]
        crew.gate.set()
        for generation in asked:
            with pytest.raises(WorkerDied):
                end_of(generation)
        assert engine.health().running == 0

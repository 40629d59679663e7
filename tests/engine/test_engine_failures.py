"""Workers that die and bugs of our own: every reader is told, at once and once."""

from __future__ import annotations

import threading
import time
import traceback

import pytest
from fake_crew import FakeCrew
from small_engine import alone, end_of, prompts, running

from local_tp.core import Sampling
from local_tp.engine.engine import Engine
from local_tp.errors import LocalTpError, WorkerDied

SECOND = 1.0


def until_refused(engine: Engine) -> LocalTpError:
    """What a submission raises, soon."""
    limit = time.monotonic() + SECOND
    while time.monotonic() < limit:
        try:
            engine.submit([1], Sampling(), max_tokens=1)
        except LocalTpError as error:
            return error
        time.sleep(0.01)
    raise AssertionError("it goes on taking requests")


def until_closed(crew: FakeCrew) -> None:
    limit = time.monotonic() + SECOND
    while not crew.closed and time.monotonic() < limit:
        time.sleep(0.01)
    assert crew.closed, "its memory is not free"


def test_a_crew_that_dies_ends_every_request() -> None:
    crew = FakeCrew(dies_at=6)
    texts = prompts(6)
    with running(crew, streams=3, held=True) as engine:
        asked = [engine.submit(text, Sampling(), max_tokens=30) for text in texts]
        crew.gate.set()
        started = time.monotonic()
        for generation in asked:
            with pytest.raises(WorkerDied, match="out of memory") as died:
                end_of(generation, SECOND)
            assert generation.finish_reason == "error"
            assert (died.value.rank, died.value.device, died.value.code) == (0, "cpu", -9)
        assert time.monotonic() - started < SECOND
        health = engine.health()
        assert (health.ok, health.state) == (False, "failed")
        assert "signal 9" in health.detail
        assert [worker.alive for worker in health.workers] == [False]
        assert (health.running, health.waiting) == (0, 0)
        assert crew.closed, "its memory is not free"
        with pytest.raises(WorkerDied):
            engine.submit([1], Sampling())


def test_what_came_before_the_death_is_delivered_before_the_error() -> None:
    tokens: list[int] = []
    with running(FakeCrew(dies_at=5)) as engine:
        generation = engine.submit([1, 2], Sampling(), max_tokens=30)
        with pytest.raises(WorkerDied):  # noqa: PT012  the chunks before the error are the point
            for chunk in generation:
                tokens += chunk.tokens
    assert tuple(tokens) == alone([1, 2], 4)


def test_a_crew_that_dies_while_idle_shows_at_once() -> None:
    crew = FakeCrew()
    with running(crew) as engine:
        assert len(end_of(engine.submit([1], Sampling(), max_tokens=3)).tokens) == 3
        crew.die()
        health = engine.health()
        assert (health.ok, health.state) == (False, "failed")
        assert isinstance(until_refused(engine), WorkerDied)
        until_closed(crew)


def test_a_crew_that_died_before_it_was_watched_is_noticed() -> None:
    crew = FakeCrew()
    crew.die()
    with running(crew) as engine:
        until_closed(crew)
        with pytest.raises(WorkerDied):
            engine.submit([1], Sampling())


def test_requests_refused_after_a_death_leave_nothing_on_its_error() -> None:
    crew = FakeCrew()
    with running(crew) as engine:
        crew.die()
        until_refused(engine)
        depths = []
        for _ in range(4):
            with pytest.raises(WorkerDied) as refused:
                engine.submit([1], Sampling())
            depths.append(len(traceback.extract_tb(refused.value.__traceback__)))
        assert len(set(depths)) == 1, "each refusal adds its frames to the one error"


def test_a_bug_in_the_engine_ends_every_reader_in_one_line(
    capfd: pytest.CaptureFixture[str],
) -> None:
    crew = FakeCrew(breaks_at=3)
    with running(crew, streams=2, held=True) as engine:
        asked = [engine.submit([n, n], Sampling(), max_tokens=9) for n in range(4)]
        crew.gate.set()
        for generation in asked:
            with pytest.raises(LocalTpError, match="the engine failed") as failed:
                end_of(generation, SECOND)
            assert "ZeroDivisionError" in str(failed.value)
            assert len(str(failed.value).splitlines()) == 1
        assert engine.health().state == "failed"
        assert crew.closed
        assert "the engine failed" in str(until_refused(engine))
    assert "a bug of ours" in capfd.readouterr().err, "the log has its traceback"


def test_a_worker_that_dies_while_the_engine_closes_is_no_news(
    capfd: pytest.CaptureFixture[str],
) -> None:
    crew = FakeCrew()
    crew.at_close = crew.die
    with running(crew) as engine:
        engine.close()
        assert engine.health().state == "closed"
    assert capfd.readouterr().err == ""


def test_a_reader_in_every_thread_is_told() -> None:
    crew = FakeCrew(dies_at=1)
    told: list[str] = []
    with running(crew, held=True) as engine:
        asked = [engine.submit([n], Sampling(), max_tokens=9) for n in range(8)]

        def read(number: int) -> None:
            with pytest.raises(WorkerDied):
                end_of(asked[number], SECOND)
            told.append("")

        readers = [threading.Thread(target=read, args=(n,)) for n in range(8)]
        for reader in readers:
            reader.start()
        crew.gate.set()
        for reader in readers:
            reader.join(5)
    assert len(told) == 8

"""The scheduler step by step, over a crew that answers by what lies in the pages it is shown."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence

from fake_crew import PAGE_SIZE, FakeCrew
from hypothesis import example, given, settings
from hypothesis import strategies as st
from small_engine import alone, prompts, request, scores_of

from local_tp.core import Sampling, Step
from local_tp.engine.pages import PagePool
from local_tp.engine.request import Request
from local_tp.engine.scheduler import DECODE_ROWS, Scheduler


class Bench:
    """A scheduler, its crew, and what the engine does between the two."""

    def __init__(self, pages: int, streams: int, chunk: int, depth: int = 1) -> None:
        self.depth = depth  # steps under way at most
        self.under_way: deque[Step] = deque()
        self.pool = PagePool(pages, PAGE_SIZE)
        self.scheduler = Scheduler(self.pool, streams, chunk)
        self.crew = FakeCrew()
        self.crew.gate.set()
        self.requests: dict[int, Request] = {}
        self.streams = range(streams)
        self.preempted: list[int] = []

    def add(self, *requests: Request) -> None:
        for one in requests:
            self.requests[one.id] = one
            self.scheduler.add(one)

    def step(self) -> Step | None:
        ran = {one.id for one in self.scheduler.running}
        while len(self.under_way) < self.depth:
            step = self.scheduler.next(idle=not self.under_way)
            if step is None:
                break
            self.under_way.append(step)
        self.preempted += sorted(ran & {one.id for one in self.scheduler.waiting})
        self.pool.check()
        if not self.under_way:
            return None
        step = self.under_way.popleft()
        assert all(row.stream in self.streams for row in step.rows)
        for row, result in zip(step.rows, self.crew.run(step), strict=True):
            ended = self.requests[row.request].take(row, result)
            if ended is not None:
                self.leave(row.request, ended == "stop")
        return step

    def leave(self, number: int, stopped: bool = False) -> None:
        one = self.requests.pop(number)
        self.scheduler.remove(one)
        one.generation.finish("stop" if stopped else "length")

    def run(self, limit: int = 5000) -> list[Step]:
        steps: list[Step] = []
        while self.requests:
            step = self.step()
            assert step is not None, "it has nothing to do while requests wait"
            steps.append(step)
            assert len(steps) < limit, "it goes in circles"
        assert self.step() is None
        assert self.pool.free == self.pool.count
        return steps


def is_prefill(step: Step, chunks: dict[int, int]) -> bool:
    """Whether a step computes a part of a prompt; `chunks` are the prompts' lengths."""
    return any(row.position < chunks[row.request] for row in step.rows)


@settings(deadline=None, max_examples=150)
@given(
    sizes=st.lists(st.tuples(st.integers(1, 24), st.integers(0, 20)), min_size=1, max_size=9),
    spare=st.integers(0, 20),
    streams=st.integers(1, 8),
    chunk=st.integers(1, 9),
    depth=st.integers(1, 4),
)
@example(sizes=[(1, 9), (1, 9), (1, 9), (24, 20)], spare=0, streams=8, chunk=1, depth=1)
@example(sizes=[(1, 9), (1, 9), (1, 9), (24, 20)], spare=0, streams=8, chunk=1, depth=3)
def test_any_company_gets_the_text_it_would_have_alone(
    sizes: Sequence[tuple[int, int]], spare: int, streams: int, chunk: int, depth: int
) -> None:
    enough = max(-(-(prompt + tokens) // PAGE_SIZE) for prompt, tokens in sizes)
    bench = Bench(enough + spare, streams, chunk, depth)
    texts = prompts(len(sizes), [prompt for prompt, _ in sizes])
    sampling = Sampling(repetition_penalty=1.1)  # the crew then compares history and pages
    made = [
        request(i, texts[i], tokens, sampling=sampling, scored=i % 3)
        for i, (_, tokens) in enumerate(sizes)
    ]
    bench.add(*made)
    steps = bench.run()
    assert [step.number for step in steps] == list(range(1, len(steps) + 1))
    for one, text, (_, tokens) in zip(made, texts, sizes, strict=True):
        assert one.generation.result().tokens == alone(text, tokens)
        assert one.generation.prompt_scores == scores_of(text, one.id % 3)


def test_a_step_is_one_chunk_of_one_prompt_or_a_token_each_of_all_that_decode() -> None:
    bench = Bench(pages=64, streams=3, chunk=4)
    texts = prompts(3, (10, 3, 6))
    bench.add(*(request(i, text, max_tokens=8) for i, text in enumerate(texts)))
    seen = []
    for step in bench.run()[:8]:
        seen.append([(row.request, row.position, len(row.tokens)) for row in step.rows])
    assert seen == [
        [(0, 0, 4)],
        [(0, 4, 4)],
        [(0, 8, 2)],
        [(0, 10, 1)],
        [(1, 0, 3)],
        [(0, 11, 1), (1, 3, 1)],
        [(2, 0, 4)],
        [(0, 12, 1), (1, 4, 1)],
    ]


def test_chunks_follow_one_another_and_who_writes_waits_for_its_token() -> None:
    """What is sent while other steps are under way depends on none of their tokens."""
    bench = Bench(pages=64, streams=3, chunk=4, depth=3)
    texts = prompts(3, (10, 3, 6))
    bench.add(*(request(i, text, max_tokens=4) for i, text in enumerate(texts)))
    seen = []
    while bench.requests:
        done = bench.step()
        assert done is not None
        steps = [done, *bench.under_way]
        seen.append(["".join(f"{row.request}@{row.position} " for row in s.rows) for s in steps])
    assert seen == [
        ["0@0 ", "0@4 ", "0@8 "],
        ["0@4 ", "0@8 ", "1@0 "],
        ["0@8 ", "1@0 ", "2@0 "],
        ["1@0 ", "2@0 ", "0@10 "],
        ["2@0 ", "0@10 ", "2@4 "],
        ["0@10 ", "2@4 "],
        ["2@4 ", "0@11 1@3 "],
        ["0@11 1@3 "],
        ["0@12 1@4 2@6 "],
        ["1@5 2@7 "],
        ["2@8 "],
    ]


def test_nobody_loses_pages_while_steps_are_under_way() -> None:
    bench = Bench(pages=6, streams=4, chunk=4, depth=2)
    texts = prompts(3, (8, 8, 4))
    bench.add(*(request(i, text, max_tokens=12, scored=0) for i, text in enumerate(texts)))
    lost = 0
    while bench.requests:
        before, busy = len(bench.preempted), bool(bench.under_way)
        bench.step()
        lost += len(bench.preempted) - before
        assert not (busy and len(bench.preempted) > before)
    assert lost >= 2


def test_prompts_of_one_token_leave_every_other_step_to_the_others() -> None:
    bench = Bench(pages=64, streams=4, chunk=4)
    bench.add(request(0, [1, 2, 3], max_tokens=6))
    bench.step()
    bench.add(*(request(i, [i], max_tokens=1) for i in range(1, 7)))
    turns = [step.rows[0].request for step in bench.run()]
    assert turns == [0, 1, 0, 2, 0, 3, 0, 4, 0, 5, 6]


def test_a_last_chunk_of_one_token_is_a_prefill_too() -> None:
    bench = Bench(pages=64, streams=2, chunk=4)
    bench.add(request(0, [1, 2, 3], max_tokens=6))
    bench.step()
    bench.add(request(1, range(5), max_tokens=1), request(2, range(5), max_tokens=1))
    lengths = {0: 3, 1: 5, 2: 5}
    kinds = [is_prefill(step, lengths) for step in bench.run()]
    assert kinds == [False, True, False, True, False, True, False, True, False]


def test_no_more_than_the_streams_run_at_once_in_order_of_arrival() -> None:
    bench = Bench(pages=64, streams=2, chunk=8)
    bench.add(*(request(i, [i, i], max_tokens=3) for i in range(5)))
    order: list[int] = []
    while bench.requests:
        step = bench.step()
        assert step is not None
        assert len(bench.scheduler.running) <= 2
        order += [row.request for row in step.rows if row.request not in order]
    assert order == [0, 1, 2, 3, 4]


def test_the_youngest_gives_up_its_pages_and_comes_back_first() -> None:
    bench = Bench(pages=6, streams=4, chunk=8)
    texts = prompts(3, (8, 8, 4))
    made = [request(i, text, max_tokens=12, scored=0) for i, text in enumerate(texts)]
    bench.add(*made)
    steps = bench.run()
    assert bench.preempted[:2] == [2, 1], "the youngest first"
    assert 0 not in bench.preempted
    ended = [
        max(i for i, s in enumerate(steps) if n in {r.request for r in s.rows}) for n in (0, 1)
    ]
    assert ended == sorted(ended), "the oldest is done first"
    for one, text in zip(made, texts, strict=True):
        assert one.generation.result().tokens == alone(text, 12)
        assert one.generation.prompt_scores == scores_of(text, 0)


def test_losing_the_pages_in_the_middle_of_a_prompt_does_not_score_it_twice() -> None:
    bench = Bench(pages=6, streams=2, chunk=4)
    texts = prompts(2, (4, 18))
    old = request(0, texts[0], max_tokens=12)
    young = request(1, texts[1], max_tokens=2, scored=1)
    bench.add(old, young)
    while not bench.preempted:
        assert bench.step() is not None
    assert bench.preempted == [1]
    assert not young.output, "it was still in its prompt"
    assert young.generation.prompt_scores == ()
    bench.run()
    assert young.generation.prompt_scores == scores_of(texts[1], 1)
    assert young.generation.result().tokens == alone(texts[1], 2)


def test_who_lost_its_pages_goes_before_who_never_had_any() -> None:
    bench = Bench(pages=4, streams=2, chunk=8)
    texts = prompts(3, (8, 4, 4))
    bench.add(*(request(i, text, max_tokens=8) for i, text in enumerate(texts)))
    while not bench.preempted:
        assert bench.step() is not None
    assert [one.id for one in bench.scheduler.waiting] == [1, 2]
    order: list[int] = []
    for step in bench.run():
        order += [row.request for row in step.rows if row.request not in order]
    assert order == [0, 1, 2]


def test_a_step_in_which_pages_run_out_has_only_rows_that_still_own_theirs() -> None:
    """All three decode in one step: 0 grows within its page, 1 needs one more, 2 must give it."""
    bench = Bench(pages=4, streams=3, chunk=8)
    texts = prompts(3, (5, 4, 1))
    bench.add(*(request(i, text, max_tokens=6) for i, text in enumerate(texts)))
    while not bench.preempted:
        step = bench.step()
    assert step is not None
    assert [row.request for row in step.rows] == [0, 1]
    assert [row.pages for row in step.rows] == [bench.pool.pages(0), bench.pool.pages(1)]
    bench.run()


def test_removing_frees_the_pages_at_once_whether_waiting_or_running() -> None:
    bench = Bench(pages=8, streams=1, chunk=8)
    texts = prompts(3, (8, 8, 8))
    made = [request(i, text, max_tokens=8) for i, text in enumerate(texts)]
    bench.add(*made)
    bench.step()
    assert bench.pool.free == 6
    bench.leave(1)
    assert list(bench.scheduler.waiting) == [made[2]]
    bench.leave(0)
    assert bench.pool.free == 8
    assert bench.scheduler.running == []
    bench.run()
    assert made[2].generation.result().tokens == alone(texts[2], 8)


def test_nobody_means_no_step() -> None:
    assert Bench(pages=8, streams=1, chunk=8).step() is None


def test_a_decode_step_stays_below_where_kernels_change() -> None:
    """Of more than that many running requests all come in turn, none is left behind."""
    bench = Bench(pages=1200, streams=40, chunk=32)
    wanted = {}
    for number, prompt in enumerate(prompts(40)):
        one = request(number, prompt, 80)
        wanted[number] = (one, alone(prompt, 80))
        bench.add(one)
    steps = bench.run()
    decoding = [step for step in steps if len(step.rows) > 1]
    assert max(len(step.rows) for step in decoding) == DECODE_ROWS
    for one, expected in wanted.values():
        assert tuple(one.output) == expected

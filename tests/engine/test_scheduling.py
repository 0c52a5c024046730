"""Who runs when: interactive before batch, fair shares, the departed dropped, the waiting room bounded."""

from __future__ import annotations

import threading
import time
from pathlib import Path

import numpy as np
import pytest

from tests.engine.inside import late_runner_of
from workers.engine import (
    Engine,
    EngineConfig,
    EngineError,
    ModelKind,
    ModelSpec,
    Priority,
    RequestCancelled,
    ScoringRequest,
)
from workers.engine.pooling.encoding import Encoding
from workers.engine.scheduler import Scheduler
from workers.engine.sequence import Role, Sequence, Work

LONG = tuple(
    f"{i} river rose after a night of rain and the bridge was closed until the water fell" for i in range(2000)
)


@pytest.fixture
def engine(tiny_folders: dict[str, Path]) -> Engine:
    """Micro-batches of five documents or so: a request of 2,000 is hundreds of them."""
    engine = Engine(EngineConfig(threads=1, max_batch_tokens=128))
    engine.load(ModelSpec("late", tiny_folders["bert"], ModelKind.LATE_INTERACTION))
    return engine


def wait_for_progress(engine: Engine, since: int) -> None:
    deadline = time.monotonic() + 30
    while engine.progress <= since + 1:
        assert time.monotonic() < deadline
        time.sleep(0.001)


def test_interactive_overtakes_batch_between_micro_batches(engine: Engine) -> None:
    before = engine.progress
    batch = engine.submit(ScoringRequest("late", ("rain",), LONG, priority=Priority.BATCH))
    wait_for_progress(engine, before)
    interactive = engine.submit(ScoringRequest("late", ("bees",), ("honey", "river")))
    assert np.isfinite(interactive.result(30).scores).all()
    assert not batch.done()
    assert np.isfinite(batch.result(60).scores).all()
    engine.close()


def test_cancel_is_seen_within_one_micro_batch_and_leaves_nothing_reserved(engine: Engine) -> None:
    for _ in range(3):
        cancelled = threading.Event()
        before = engine.progress
        future = engine.submit(ScoringRequest("late", ("rain",), LONG, priority=Priority.BATCH, cancelled=cancelled))
        wait_for_progress(engine, before)
        assert engine.statistics().reserved_bytes > 0
        at = engine.progress
        cancelled.set()
        error = future.exception(30)
        assert isinstance(error, RequestCancelled) and error.code == "cancelled"
        assert engine.progress <= at + 2
    statistics = engine.statistics()
    assert (statistics.dropped, statistics.reserved_bytes, statistics.waiting_requests) == (3, 0, 0)
    assert not engine.busy
    engine.close()


def test_work_not_started_by_its_deadline_is_dropped(engine: Engine) -> None:
    batch = engine.submit(ScoringRequest("late", ("rain",), LONG[:500], priority=Priority.BATCH))
    soon = time.monotonic() + 0.05
    futures = [engine.submit(ScoringRequest("late", ("rain",), LONG[500 + i :: 50], deadline=soon)) for i in range(20)]
    errors = [future.exception(60) for future in futures]
    dropped = [error for error in errors if error is not None]
    assert dropped and all(
        isinstance(error, RequestCancelled) and error.code == "deadline_exceeded" for error in dropped
    )
    assert batch.exception(60) is None
    statistics = engine.statistics()
    assert (statistics.dropped, statistics.reserved_bytes) == (len(dropped), 0)
    engine.close()


def test_c5_leaving_between_the_query_and_the_document_phase_a_hundred_times(tiny_folders: dict[str, Path]) -> None:
    """Micro-batches so small that queries and documents never share one."""
    engine = Engine(EngineConfig(threads=1, max_batch_tokens=16))
    engine.load(ModelSpec("late", tiny_folders["bert"], ModelKind.LATE_INTERACTION))
    ended = []
    for number in range(100):
        cancelled = threading.Event()
        documents = LONG[number * 20 : number * 20 + 20]
        before = engine.progress
        future = engine.submit(ScoringRequest("late", (f"query {number}",), documents, cancelled=cancelled))
        while engine.progress == before and not future.done():
            time.sleep(0.0002)
        cancelled.set()
        ended.append(future.exception(30))
    statistics = engine.statistics()
    assert sum(isinstance(error, RequestCancelled) for error in ended) == statistics.dropped > 50
    assert (statistics.reserved_bytes, statistics.requests_in_flight, statistics.waiting_tokens) == (0, 0, 0)
    assert not late_runner_of(engine, "late").reservations
    engine.close()


def test_the_waiting_room_is_bounded_per_priority(tiny_folders: dict[str, Path]) -> None:
    engine = Engine(EngineConfig(threads=1, max_batch_tokens=64, max_waiting_requests=5, max_waiting_tokens=50_000))
    engine.load(ModelSpec("late", tiny_folders["bert"], ModelKind.LATE_INTERACTION))
    batch = [engine.submit(ScoringRequest("late", ("rain",), LONG, priority=Priority.BATCH)) for _ in range(2)]
    with pytest.raises(EngineError, match="tokens are waiting") as caught:
        batch[1].result(1)
    assert caught.value.code == "overloaded"
    interactive = [engine.submit(ScoringRequest("late", ("bees",), LONG[:100])) for _ in range(8)]
    refused = [future for future in interactive if future.done() and future.exception()]
    assert len(refused) == 3
    assert all(future.exception(60) is None for future in interactive if future not in refused)
    assert batch[0].exception(60) is None
    assert engine.statistics().overloaded == 4
    engine.close()


def sequences(work: Work, count: int, tokens: int) -> list[Sequence]:
    return [Sequence(work, Role.DOCUMENT, index, [1] * tokens) for index in range(count)]


def waiting(
    scheduler: Scheduler, task: object, count: int, tokens: int, priority: Priority = Priority.INTERACTIVE
) -> Work:
    work = Work(ScoringRequest("m", ("q",), ("d",), priority=priority), task, 1)  # type: ignore[arg-type]
    work.pending.extend(sequences(work, count, tokens))
    scheduler.add(work)
    return work


class Model:
    """Stands for a task in tests of the order alone: the scheduler asks whose work it is and what that holds."""

    reserved_bytes = 0


@pytest.fixture
def scheduler() -> Scheduler:
    return Scheduler(EngineConfig(max_batch_tokens=100, max_batch_square=5000), lambda work, reason: None)


def test_everybody_gets_a_fair_share_and_keeps_its_order(scheduler: Scheduler) -> None:
    task = Model()
    large, small = waiting(scheduler, task, 50, 10), waiting(scheduler, task, 3, 10)
    batch = scheduler.next_batch()
    assert sum(len(s.token_ids) for s in batch) == 100
    assert [s.index for s in batch if s.work is small] == [0, 1, 2]
    assert [s.index for s in batch if s.work is large] == list(range(7))
    assert scheduler.waiting() == (1, 430)


def test_one_micro_batch_is_of_one_model(scheduler: Scheduler) -> None:
    first, second = waiting(scheduler, Model(), 2, 10), waiting(scheduler, Model(), 2, 10)
    assert {s.work for s in scheduler.next_batch()} == {first}
    assert {s.work for s in scheduler.next_batch()} == {second}


def test_an_oversized_sequence_goes_alone_and_squares_are_capped(scheduler: Scheduler) -> None:
    task = Model()
    waiting(scheduler, task, 1, 500)
    waiting(scheduler, task, 4, 45)  # 2,025 each squared: two fit into 5,000
    assert [len(s.token_ids) for s in scheduler.next_batch()] == [500]
    assert [len(s.token_ids) for s in scheduler.next_batch()] == [45, 45]


def test_a_flood_of_interactive_work_does_not_starve_a_job(scheduler: Scheduler) -> None:
    task = Model()
    job = waiting(scheduler, task, 5, 100, Priority.BATCH)
    waiting(scheduler, task, 100, 100)
    turns = [scheduler.next_batch()[0].work is job for _ in range(20)]
    assert turns.count(True) == 2 and not any(turns[:8])


def test_a_slow_model_s_micro_batches_are_cut_to_what_it_does_in_time() -> None:
    config = EngineConfig(max_batch_tokens=2000, batch_seconds=0.5, background_batch_seconds=0.2)
    scheduler = Scheduler(config, lambda work, reason: None)
    slow, fast = Model(), Model()
    scheduler.note_pace(slow, 2000, 2.0)  # type: ignore[arg-type]
    scheduler.note_pace(fast, 2000, 0.01)  # type: ignore[arg-type]
    scheduler.note_pace(slow, 10, 5.0)  # type: ignore[arg-type]  # too small to say anything about speed
    waiting(scheduler, slow, 50, 10)
    waiting(scheduler, fast, 200, 10)
    assert [sum(len(s.token_ids) for s in scheduler.next_batch()) for _ in range(2)] == [500, 2000]
    scheduler.withdraw(lambda work: True)
    waiting(scheduler, slow, 50, 10, Priority.BATCH)
    waiting(scheduler, Model(), 60, 10, Priority.BATCH)  # of a pace that nobody knows
    assert [sum(len(s.token_ids) for s in scheduler.next_batch()) for _ in range(2)] == [200, 510]


def test_one_of_ten_thousand_does_not_starve_ten_of_ten(scheduler: Scheduler) -> None:
    """Whoever came first: the small ones are through in about what they alone would take, twice over."""
    task = Model()
    large = waiting(scheduler, task, 10_000, 10)
    small = [waiting(scheduler, task, 10, 10) for _ in range(10)]
    batches = 0
    while any(work.pending for work in small):
        scheduler.next_batch()
        batches += 1
    assert batches <= 2 * 10  # 1,000 tokens of theirs in micro-batches of 100
    assert len(large.pending) < 10_000  # nor does it stand still


def test_departures_are_seen_when_work_is_taken() -> None:
    left: list[tuple[Work, str]] = []
    scheduler = Scheduler(EngineConfig(max_batch_tokens=100), lambda work, reason: left.append((work, reason.code)))
    task, cancelled = Model(), threading.Event()
    works = []
    for fields in ({"cancelled": cancelled}, {"deadline": time.monotonic() + 60}, {"deadline": time.monotonic()}, {}):
        work = Work(ScoringRequest("m", ("q",), ("d",), **fields), task, 1)  # type: ignore[arg-type]
        work.pending.extend(sequences(work, 20, 10))
        scheduler.add(work)
        works.append(work)
    assert {sequence.work for sequence in scheduler.next_batch()} == set(works) - {works[2]}
    cancelled.set()
    assert {sequence.work for sequence in scheduler.next_batch()} == {works[1], works[3]}
    assert left == [(works[2], "deadline_exceeded"), (works[0], "cancelled")]
    assert scheduler.waiting()[0] == 2


def test_taking_a_micro_batch_costs_no_more_with_more_sequences_waiting() -> None:
    """And with a thousand requests waiting it costs about ten times what it costs with a hundred, not a hundred."""

    def seconds(works: int, count: int) -> float:
        scheduler = Scheduler(EngineConfig(max_batch_tokens=2000), lambda work, reason: None)
        task = Model()
        for _ in range(works):
            waiting(scheduler, task, count, 1)
        times = []
        for _ in range(30):
            started = time.perf_counter()
            scheduler.next_batch()
            times.append(time.perf_counter() - started)
        return min(times)

    assert seconds(1, 200_000) < 5 * seconds(1, 70_000)
    assert seconds(1000, 100) < 40 * seconds(100, 1000)


def test_documents_from_a_cache_are_taken_in_one_go(scheduler: Scheduler) -> None:
    """A short query's MaxSim over a document costs next to nothing beside a forward pass; many long queries' does."""
    task = Model()
    for products, together in ((200 * 32, 100), (200 * 6750, 3)):
        work = waiting(scheduler, task, 100, 0)
        for sequence in work.pending:
            sequence.encoding, sequence.products = Encoding(), products
        assert len(scheduler.next_batch()) == together
        scheduler.withdraw(lambda work: True)

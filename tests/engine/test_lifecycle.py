"""What is held for a request between its two phases, and every way in which that ends."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from tests.engine.inside import body_of, late_runner_of, spec_of, task_of
from tests.engine.tiny import CORPUS
from workers.engine import (
    Engine,
    EngineConfig,
    EngineError,
    ItemStatus,
    ModelKind,
    ModelSpec,
    Pairing,
    Priority,
    RequestCancelled,
    ScoringRequest,
)
from workers.engine.counters import Counters
from workers.engine.pooling.encoding import Encoding
from workers.engine.pooling.late_interaction import LOST, LateInteractionRunner
from workers.engine.role import Role
from workers.engine.scheduler import Scheduler
from workers.engine.sequence import EmbeddingResults, Sequence, Work

WORDS = " ".join(CORPUS[:5]).split()
DOCUMENTS = tuple(" ".join(WORDS[i : i + 3 + 5 * i % 23]) for i in range(30))
BYTES = 3 * 8 * 4  # of one query of three tokens


@pytest.fixture
def runner() -> LateInteractionRunner:
    return LateInteractionRunner(torch.device("cpu"), Counters(), gpu_maxsim=False)


def work(queries: int, documents: int) -> Work:
    made = Work(ScoringRequest("m", ("q",) * queries, ("d",) * documents), None, 1)  # type: ignore[arg-type]
    made.results = EmbeddingResults(
        np.arange(queries), np.arange(documents), np.full((queries, documents), np.nan, dtype=np.float32), None
    )
    return made


def encoded(owner: Work, role: Role, *indices: int) -> list[tuple[Sequence, Encoding]]:
    """Sequences as they come out of a micro-batch, with vectors that their place decides."""
    made = []
    for index in indices:
        generator = torch.Generator().manual_seed(100 * (role is Role.QUERY) + index)
        made.append((Sequence(owner, role, index, [1] * 3), Encoding(tokens=torch.randn(3, 8, generator=generator))))
    return made


def expected(queries: int, documents: int) -> np.ndarray[Any, Any]:
    owner = work(queries, documents)
    left = [e.tokens for _, e in encoded(owner, Role.QUERY, *range(queries))]
    right = [e.tokens for _, e in encoded(owner, Role.DOCUMENT, *range(documents))]
    return np.array([[(q @ d.T).amax(dim=1).sum() for d in right if d is not None] for q in left if q is not None])


def test_register_score_release(runner: LateInteractionRunner) -> None:
    """The reservation is told of every document and ends with the last one, not with a count."""
    one = work(2, 3)
    runner.register_request(one.key, range(3))
    assert (runner.reservations, runner.reserved_bytes) == (1, 0)
    runner.postprocess_pooler_output(encoded(one, Role.QUERY, 0, 1))
    assert runner.reserved_bytes == 2 * BYTES
    runner.postprocess_pooler_output(encoded(one, Role.DOCUMENT, 2))
    runner.postprocess_pooler_output(encoded(one, Role.DOCUMENT, 2))  # the same again is no other one
    runner.postprocess_pooler_output(encoded(one, Role.DOCUMENT, 0))
    assert (runner.reservations, runner.reserved_bytes) == (1, 2 * BYTES)
    runner.postprocess_pooler_output(encoded(one, Role.DOCUMENT, 1))
    assert (runner.reservations, runner.reserved_bytes) == (0, 0)
    np.testing.assert_allclose(one.results.maxsim, expected(2, 3), atol=1e-5)
    runner.on_requests_finished([one.key])  # told again by the request's end
    assert runner.reserved_bytes == 0


def test_queries_and_documents_of_several_requests_in_one_micro_batch(runner: LateInteractionRunner) -> None:
    one, two = work(1, 2), work(2, 2)
    for owner in (one, two):
        runner.register_request(owner.key, range(2))
    runner.postprocess_pooler_output(encoded(two, Role.QUERY, 0))
    runner.postprocess_pooler_output(
        [
            *encoded(one, Role.QUERY, 0),
            *encoded(two, Role.QUERY, 1),
            *encoded(one, Role.DOCUMENT, 0, 1),
            *encoded(two, Role.DOCUMENT, 1),
        ]
    )
    assert (runner.reservations, runner.reserved_bytes) == (1, 2 * BYTES)
    np.testing.assert_allclose(one.results.maxsim, expected(1, 2), atol=1e-5)
    runner.postprocess_pooler_output(encoded(two, Role.DOCUMENT, 0))
    np.testing.assert_allclose(two.results.maxsim, expected(2, 2), atol=1e-5)


def test_aborted_before_a_document_was_scored(runner: LateInteractionRunner) -> None:
    one = work(1, 2)
    runner.register_request(one.key, range(2))
    runner.postprocess_pooler_output(encoded(one, Role.QUERY, 0))
    runner.on_requests_finished([one.key])
    assert (runner.reservations, runner.reserved_bytes) == (0, 0)
    runner.postprocess_pooler_output(encoded(one, Role.QUERY, 0))  # what was on the device then reserves nothing
    assert (runner.reservations, runner.reserved_bytes) == (0, 0)


def test_a_document_that_was_put_back_keeps_its_reservation(runner: LateInteractionRunner) -> None:
    """A micro-batch that is halved, or whose end waits for another turn: the ends of other requests and of documents
    that ran are told first, and what has not run is still awaited."""
    one, two = work(1, 3), work(1, 1)
    for owner, count in ((one, 3), (two, 1)):
        runner.register_request(owner.key, range(count))
        runner.postprocess_pooler_output(encoded(owner, Role.QUERY, 0))
    runner.postprocess_pooler_output([*encoded(one, Role.DOCUMENT, 0), *encoded(two, Role.DOCUMENT, 0)])
    runner.on_requests_finished([two.key])
    assert (runner.reservations, runner.reserved_bytes) == (1, BYTES)
    runner.postprocess_pooler_output(encoded(one, Role.DOCUMENT, 1, 2))
    np.testing.assert_allclose(one.results.maxsim, expected(1, 3), atol=1e-5)
    assert runner.reservations == 0


def test_what_was_reserved_and_is_gone_fails_its_documents_and_no_others(runner: LateInteractionRunner) -> None:
    one, two = work(1, 2), work(1, 2)
    for owner in (one, two):
        runner.register_request(owner.key, range(2))
        runner.postprocess_pooler_output(encoded(owner, Role.QUERY, 0))
    runner.postprocess_pooler_output(encoded(one, Role.DOCUMENT, 1))
    runner.on_requests_finished([one.key])
    runner.postprocess_pooler_output([*encoded(one, Role.DOCUMENT, 0), *encoded(two, Role.DOCUMENT, 0, 1)])
    assert one.results.errors == {0: LOST} and not two.results.errors
    np.testing.assert_allclose(two.results.maxsim, expected(1, 2), atol=1e-5)
    assert np.isnan(one.results.maxsim[0, 0]) and np.isfinite(one.results.maxsim[0, 1])


def test_what_nobody_came_for_is_given_up_in_time(runner: LateInteractionRunner) -> None:
    idle, busy = work(1, 2), work(1, 2)
    for owner in (idle, busy):
        runner.register_request(owner.key, range(2))
        runner.postprocess_pooler_output(encoded(owner, Role.QUERY, 0))
    runner.give_up_unused(10.0)
    assert runner.reservations == 2
    for owner in (idle, busy):
        runner._reservations[owner.key].used -= 1000.0
    runner.postprocess_pooler_output(encoded(busy, Role.DOCUMENT, 0))
    runner.give_up_unused(500.0)
    assert (runner.reservations, runner.reserved_bytes) == (1, BYTES)
    assert runner._counters["expired_reservations"] == 1


def test_clearing_forgets_all(runner: LateInteractionRunner) -> None:
    for owner in (work(1, 2), work(3, 1)):
        runner.register_request(owner.key, range(2))
        runner.postprocess_pooler_output(encoded(owner, Role.QUERY, 0))
    runner.clear()
    assert (runner.reservations, runner.reserved_bytes) == (0, 0)


# --- Through the engine ----------------------------------------------------------------------------------------------


@pytest.fixture
def engine(tiny_folders: dict[str, Path]) -> Iterator[Engine]:
    """Micro-batches of one or two texts, so that every request has two phases."""
    made = Engine(EngineConfig(threads=1, max_batch_tokens=24, reservation_seconds=30.0))
    made.load(ModelSpec("late", tiny_folders["bert"], ModelKind.LATE_INTERACTION))
    yield made
    made.close()


class Gate:
    """Holds the model's forward passes from the one on that is wanted, until it is opened."""

    def __init__(self, engine: Engine, name: str, *, after: int) -> None:
        self._left = after
        self._open = threading.Event()
        self.reached = threading.Event()
        self.handle = body_of(engine, name).register_forward_pre_hook(self._wait)

    def _wait(self, *_: object) -> None:
        self._left -= 1
        if self._left < 0:
            self.reached.set()
            assert self._open.wait(30)

    def open(self) -> None:
        self.handle.remove()
        self._open.set()


class Pause(Gate):
    """Holds the runner thread between two micro-batches: no forward pass runs, so a load may make its own."""

    def __init__(self, engine: Engine, *, after: int) -> None:
        self._left = after - 1
        self._open = threading.Event()
        self.reached = threading.Event()
        scheduler: Any = engine._scheduler
        self._scheduler, self._note_pace = scheduler, scheduler.note_pace
        scheduler.note_pace = self._pause

    def _pause(self, *noted: Any) -> None:
        self._note_pace(*noted)
        self._wait()

    def open(self) -> None:
        self._scheduler.note_pace = self._note_pace
        self._open.set()


def test_the_same_request_twice_at_once_shares_nothing(engine: Engine) -> None:
    """Whatever a client calls its requests: two that look alike are two."""
    request = ScoringRequest("late", ("the river rose",), DOCUMENTS)
    gate = Gate(engine, "late", after=2)
    cancelled = threading.Event()
    twice = [
        engine.submit(request),
        engine.submit(request),
        engine.submit(ScoringRequest("late", ("the river rose",), DOCUMENTS, cancelled=cancelled)),
    ]
    assert gate.reached.wait(30)
    give_up = time.monotonic() + 30
    while engine.statistics().reservations < 3:  # the last of them is still being read
        assert time.monotonic() < give_up
        time.sleep(0.01)
    cancelled.set()
    gate.open()
    first, second = (future.result(60) for future in twice[:2])
    assert isinstance(twice[2].exception(60), RequestCancelled)
    np.testing.assert_allclose(first.scores, second.scores, atol=1e-5)
    assert np.isfinite(first.scores).all()
    assert (engine.statistics().reservations, engine.statistics().reserved_bytes) == (0, 0)


@pytest.mark.parametrize("pairing", [Pairing.MATRIX, Pairing.PAIRWISE])
def test_a_reservation_lost_between_the_phases_fails_what_was_left(engine: Engine, pairing: Pairing) -> None:
    queries = ("the river rose",) * (1 if pairing is Pairing.MATRIX else len(DOCUMENTS))
    whole = engine.submit(ScoringRequest("late", queries, DOCUMENTS, pairing)).result(60)
    engine.load(spec_of(engine, "late"))
    gate = Gate(engine, "late", after=6)
    future = engine.submit(ScoringRequest("late", queries, DOCUMENTS, pairing))
    assert gate.reached.wait(30)
    late_runner_of(engine, "late").clear()
    other = engine.submit(ScoringRequest("late", ("bees",), DOCUMENTS[:3]))
    gate.open()
    output = future.result(60)
    failed = output.status == ItemStatus.FAILED
    assert 0 < failed.sum() < len(DOCUMENTS)
    assert output.errors == {int(pair): LOST for pair in np.flatnonzero(failed)}
    assert np.isnan(output.scores[failed]).all()
    np.testing.assert_allclose(output.scores[~failed], whole.scores[~failed], atol=1e-5)
    assert np.isfinite(other.result(60).scores).all()
    assert engine.statistics().reservations == 0


def test_resetting_the_caches_between_the_phases_changes_nothing(engine: Engine) -> None:
    """The vectors that a request was given when it was prepared are its own."""
    engine.submit(ScoringRequest("late", ("bees",), DOCUMENTS)).result(60)
    gate = Gate(engine, "late", after=0)
    future = engine.submit(ScoringRequest("late", ("the river rose",), DOCUMENTS))
    assert gate.reached.wait(30)
    for cache in engine._caches.values():
        cache.clear(task_of(engine, "late").encodings_owner)
    gate.open()
    output = future.result(60)
    assert output.cached_documents == len(DOCUMENTS)
    afresh = engine.submit(ScoringRequest("late", ("the river rose",), DOCUMENTS)).result(60)
    assert afresh.cached_documents == 0
    np.testing.assert_allclose(output.scores, afresh.scores, atol=1e-5)


def test_a_reload_leaves_running_requests_their_weights_and_reservations(engine: Engine) -> None:
    request = ScoringRequest("late", ("the river rose",), DOCUMENTS)
    whole = engine.submit(request).result(60).scores
    engine.load(spec_of(engine, "late"))
    gate = Pause(engine, after=3)
    future = engine.submit(request)
    assert gate.reached.wait(30)
    engine.load(spec_of(engine, "late"))
    assert engine.statistics().reservations == 1  # of the replaced weights, still counted
    gate.open()
    np.testing.assert_allclose(future.result(60).scores, whole, atol=1e-5)
    assert engine.statistics().reservations == 0
    assert engine.submit(request).result(60).cached_documents == 0  # what ran on the old weights filled no cache


def test_unloading_ends_the_requests_of_replaced_weights_too(engine: Engine) -> None:
    gate = Pause(engine, after=3)
    futures = [engine.submit(ScoringRequest("late", ("the river rose",), DOCUMENTS))]
    assert gate.reached.wait(30)
    engine.load(spec_of(engine, "late"))
    futures.append(engine.submit(ScoringRequest("late", ("bees",), DOCUMENTS)))
    engine.unload("late")
    gate.open()
    for future in futures:
        error = future.exception(60)
        assert isinstance(error, EngineError) and error.code == "model_unloaded"
    assert (engine.statistics().reservations, engine.statistics().requests_in_flight) == (0, 0)


def test_a_deadline_that_passes_between_the_phases_releases(engine: Engine) -> None:
    gate = Gate(engine, "late", after=2)
    future = engine.submit(ScoringRequest("late", ("rain",), DOCUMENTS, deadline=time.monotonic() + 0.3))
    assert gate.reached.wait(30)
    assert engine.statistics().reserved_bytes > 0
    time.sleep(0.35)
    gate.open()
    error = future.exception(60)
    assert isinstance(error, RequestCancelled) and error.code == "deadline_exceeded"
    assert (engine.statistics().reservations, engine.statistics().reserved_bytes) == (0, 0)


def test_a_failed_micro_batch_releases_what_its_requests_hold(engine: Engine) -> None:
    calls = iter(range(10**6))

    def fail(module: torch.nn.Module, args: tuple[Any, ...]) -> None:
        if next(calls) == 4:
            raise RuntimeError("the device is gone")

    handle = body_of(engine, "late").register_forward_pre_hook(fail)
    error = engine.submit(ScoringRequest("late", ("rain",), DOCUMENTS)).exception(60)
    handle.remove()
    assert isinstance(error, EngineError) and error.code == "engine_failure"
    assert (engine.statistics().reservations, engine.statistics().reserved_bytes) == (0, 0)
    assert np.isfinite(engine.submit(ScoringRequest("late", ("rain",), DOCUMENTS)).result(60).scores).all()


def test_over_the_budget_no_further_request_starts(tiny_folders: dict[str, Path]) -> None:
    """With room for next to nothing, requests hold their queries one after the other; all are answered all the same."""
    engine = Engine(EngineConfig(threads=1, max_batch_tokens=24, reservation_bytes=1))
    engine.load(ModelSpec("late", tiny_folders["bert"], ModelKind.LATE_INTERACTION))
    gate = Gate(engine, "late", after=0)
    futures = [
        engine.submit(ScoringRequest("late", (f"query {i}",), DOCUMENTS[:6], priority=Priority(i % 2)))
        for i in range(12)
    ]
    held: list[int] = []
    body_of(engine, "late").register_forward_hook(
        lambda *_: held.append(sum(bool(r.queries) for r in late_runner_of(engine, "late")._reservations.values()))
    )
    gate.open()
    assert all(np.isfinite(future.result(60).scores).all() for future in futures)
    # One of each priority, and those whose queries shared the first micro-batch.
    assert max(held) <= 6
    engine.close()


def test_a_request_begun_goes_on_before_others_begin() -> None:
    class Task:
        reserved_bytes = 5

    scheduler = Scheduler(EngineConfig(max_batch_tokens=10, reservation_bytes=4), lambda work, reason: None)
    task, made = Task(), []
    for begun in (False, True, False):
        owner = Work(ScoringRequest("m", ("q",), ("d",)), task, 1)  # type: ignore[arg-type]
        owner.pending.extend(Sequence(owner, Role.DOCUMENT, i, [1] * 10) for i in range(2))
        owner.started = float(begun)
        scheduler.add(owner)
        made.append(owner)
    order = [made.index(scheduler.next_batch()[0].work) for _ in range(4)]
    assert order == [1, 1, 0, 2]  # then nothing has begun, and somebody must

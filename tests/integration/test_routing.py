"""Which worker answers, what happens when it does not, and one request over several workers."""

from __future__ import annotations

import signal
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import replace
from typing import Any

import pytest
from django.db import connections
from pytest_django import Settings

from assay.api.principal import Principal
from assay.errors import AssayError
from scoring import dispatch, routing
from scoring.models import Placement, ScoreRequest, ScoringModel, Worker
from scoring.payloads import SyncRequest
from scoring.services.queues import queues_sweep
from scoring.services.scoring import ScoringAnswer, scoring_run
from scoring.states import PlacementState, WorkerState
from tests.integration.conftest import MakeWorker
from tests.integration.light_fleet import LightFleet
from tests.integration.light_worker import reply_to, score_of
from tests.integration.rig import wait_for

NAMES = ("light-1", "light-2", "light-3")
MANY = [f"document {n} " + "word " * (n % 7) for n in range(400)]
NOBODY = "00000000-0000-7000-8000-000000000000"
Ask = Callable[..., ScoringAnswer]


@pytest.fixture(scope="module")
def processes() -> Iterator[LightFleet]:
    fleet = LightFleet()
    yield fleet
    fleet.close()


@pytest.fixture
def fleet(transactional_db: None, processes: LightFleet) -> Iterator[LightFleet]:
    routing.answering.clear()
    processes.calm()
    if keys := left_over():
        dispatch.connection().delete(*keys)
    yield processes
    processes.calm()


@pytest.fixture
def ask(principal: Principal, model: ScoringModel) -> Ask:
    def run(documents: list[str], *, seconds: float = 20, **given: Any) -> ScoringAnswer:
        return scoring_run(
            principal=principal,
            endpoint="test",
            model=ScoringModel.objects.get(pk=model.pk),
            queries=given.pop("queries", ["a query"]),
            documents=documents,
            timeout_ms=int(seconds * 1000),
            **given,
        )

    return run


def right(answer: ScoringAnswer, documents: list[str], queries: tuple[str, ...] = ("a query",)) -> bool:
    return [item.score for item in answer.items] == [score_of(q, d) for q in queries for d in documents]


def left_over() -> list[str]:
    """Keys of calls that nobody waits for any more, but for replies and acknowledgements that end by themselves."""
    keys = dispatch.connection().scan_iter(match="assay:*", count=1000)
    return [key for key in keys if key.endswith(":caller") or key.startswith(dispatch.IN_FLIGHT)]


def refusal(ask: Ask, *arguments: Any, **given: Any) -> AssayError:
    with pytest.raises(AssayError) as refused:
        ask(*arguments, **given)
    return refused.value


class TestChoice:
    def test_the_same_documents_go_to_the_same_worker(self, fleet: LightFleet, model: ScoringModel, ask: Ask) -> None:
        fleet.start("light-1", "light-2")
        fleet.give(model, "light-1", "light-2")
        lists = [[f"text {n}", f"other {n}"] for n in range(16)]
        first = [ask(documents).reply.worker for documents in lists]
        again = [ask(documents[::-1]).reply.worker for documents in lists]
        assert first == again and set(first) == {"light-1", "light-2"}
        assert left_over() == []

    def test_unless_it_is_clearly_busier(self, fleet: LightFleet, model: ScoringModel, ask: Ask) -> None:
        fleet.start("light-1", "light-2")
        fleet.give(model, "light-1", "light-2")
        favourite = ask(["a text"]).reply.worker
        queue = dispatch.worker_queue(fleet.ids[favourite])
        waiting = {"500:assay:reply:somebody": dispatch.clock() + 60, "9000:of-long-ago": dispatch.clock() - 1}
        dispatch.connection().zadd(dispatch.IN_FLIGHT + queue, waiting)
        assert ask(["a text"]).reply.worker != favourite
        dispatch.connection().zrem(dispatch.IN_FLIGHT + queue, "500:assay:reply:somebody")
        assert ask(["a text"]).reply.worker == favourite


class TestAskedAgain:
    def test_a_worker_that_takes_nothing(self, fleet: LightFleet, model: ScoringModel, ask: Ask) -> None:
        fleet.start("light-1", "light-2")
        fleet.give(model, "light-1", "light-2")
        favourite = ask(["a text"]).reply.worker
        fleet.send(favourite, signal.SIGSTOP)
        answer = ask(["a text"])
        assert answer.reply.worker != favourite and right(answer, ["a text"])
        assert ScoreRequest.objects.get(pk=answer.id).report["retries"] == 1
        fleet.send(favourite, signal.SIGCONT)
        wait_for(lambda: fleet.count(favourite, "dropped") == 1, what="the drop of the message that came too late")
        assert left_over() == []

    @pytest.mark.parametrize("code", ["shutting_down", "model_not_loaded", "caller_left"])
    def test_a_worker_that_says_no(self, fleet: LightFleet, model: ScoringModel, ask: Ask, code: str) -> None:
        fleet.start("light-1", "light-2")
        fleet.give(model, "light-1", "light-2")
        favourite = ask(["a text"]).reply.worker
        fleet.tell(favourite, code)
        answer = ask(["a text"])
        assert answer.reply.worker != favourite and right(answer, ["a text"])

    def test_a_worker_that_dies_with_it(self, fleet: LightFleet, model: ScoringModel, ask: Ask) -> None:
        fleet.start("light-1", "light-2")
        fleet.give(model, "light-1", "light-2")
        favourite = ask(["a text"]).reply.worker
        fleet.tell(favourite, "hold")
        asked = in_thread(ask, ["a text"])
        wait_for(lambda: fleet.count(favourite, "taken") == 2, what="the acknowledgement")
        fleet.end(favourite)
        Placement.objects.filter(worker=fleet.ids[favourite]).update(state=PlacementState.WANTED)
        fleet.start(favourite)  # as its supervisor would: another process in the same slot
        assert right(asked.result(30), ["a text"])
        assert left_over() == []

    def test_nobody_is_left(self, fleet: LightFleet, model: ScoringModel, ask: Ask) -> None:
        fleet.start("light-1")
        fleet.give(model, "light-1")
        fleet.send("light-1", signal.SIGSTOP)
        refused = refusal(ask, ["a text"])
        assert (refused.status, refused.code, refused.extra["queue"]) == (503, "no_worker", f"m.{model.pk}")
        assert left_over() == []

    def test_draining_loses_nothing(self, fleet: LightFleet, model: ScoringModel, ask: Ask) -> None:
        fleet.start("light-1", "light-2")
        fleet.give(model, "light-1", "light-2")
        stop, answers = threading.Event(), list[bool]()

        def traffic(lane: int) -> None:
            number = 0
            while not stop.is_set():
                documents = [f"text {lane} {number}"]
                answers.append(right(ask(documents), documents))
                number += 1

        lanes = [in_thread(traffic, lane) for lane in range(3)]
        wait_for(lambda: len(answers) > 30, what="traffic")
        assert fleet.end("light-2", signal.SIGTERM) == 0
        before = len(answers)
        wait_for(lambda: len(answers) > before + 30, what="traffic on the other worker")
        stop.set()
        for lane in lanes:
            lane.result(30)
        assert all(answers) and left_over() == []


class TestSplit:
    def test_equals_the_whole(self, fleet: LightFleet, model: ScoringModel, ask: Ask) -> None:
        fleet.start(*NAMES)
        fleet.give(model, *NAMES)
        documents, queries = [*MANY, *MANY[:50]], ("a query", "another")
        answer = ask(documents, queries=list(queries))
        report = ScoreRequest.objects.get(pk=answer.id).report
        assert report["parts"] == 3 and answer.reply.worker == "light-1, light-2, light-3"
        call = SyncRequest(
            reply_key="", model_id="", model_name="", queries=list(queries), documents=documents, pairing="matrix",
            deadline=0.0,
        )  # fmt: skip
        whole = reply_to(call, worker="whole")
        slowest = max(answer.reply.timings["forward"], 1.0)
        # Equal documents are read once by whoever has them, the queries once for all; here they are counted as often
        # as they come.
        assert replace(whole, worker="", timings={}) == replace(answer.reply, worker="", timings={})
        assert whole.timings["forward"] / 3 <= slowest < whole.timings["forward"] / 2
        assert left_over() == []

    def test_a_worker_that_dies_costs_its_part_a_second_try(
        self, fleet: LightFleet, model: ScoringModel, ask: Ask
    ) -> None:
        fleet.start(*NAMES)
        fleet.give(model, *NAMES)
        fleet.tell("light-2", "hold")
        asked = in_thread(ask, MANY)
        wait_for(lambda: fleet.count("light-2", "taken") == 1, what="the acknowledgement")
        fleet.end("light-2")
        Worker.objects.filter(pk=fleet.ids["light-2"]).update(state=WorkerState.LOST)
        answer = asked.result(30)
        assert right(answer, MANY) and "light-2" not in answer.reply.worker
        assert ScoreRequest.objects.get(pk=answer.id).report["retries"] == 1

    def test_one_late_part_ends_all(self, fleet: LightFleet, model: ScoringModel, ask: Ask) -> None:
        fleet.start(*NAMES)
        fleet.give(model, *NAMES)
        fleet.tell("light-2", "hold")
        refused = refusal(ask, MANY, seconds=2)
        assert (refused.status, refused.code) == (504, "deadline_exceeded")
        assert left_over() == []

    def test_a_refusal_names_the_documents_of_the_request(
        self, fleet: LightFleet, model: ScoringModel, ask: Ask
    ) -> None:
        fleet.start(*NAMES)
        fleet.give(model, *NAMES)
        for name in NAMES:
            fleet.tell(name, "too_long")
        refused = refusal(ask, MANY)
        assert (refused.status, refused.code, refused.param) == (422, "too_long", "documents")
        assert sum(fleet.count(name, "taken") + fleet.count(name, "dropped") for name in NAMES) == 4
        assert left_over() == []

    def test_versions_are_not_mixed(self, fleet: LightFleet, model: ScoringModel, ask: Ask) -> None:
        fleet.start(*NAMES)
        fleet.give(model, *NAMES[:2], facts={"dtype": "float32", "device": "cpu"})
        fleet.give(model, NAMES[2], facts={"dtype": "bfloat16", "device": "cuda:0"})
        answer = ask(MANY)
        assert right(answer, MANY)
        assert answer.reply.worker in ("light-1, light-2", "light-3")
        # What changed between two parts is seen in the replies: one worker then answers it all.
        dispatch.connection().hset("light:light-2", "revision", "r2")
        fleet.give(model, NAMES[2], state=PlacementState.FAILED)
        answer = ask(MANY)
        assert right(answer, MANY) and answer.reply.worker in ("light-1", "light-2")

    def test_what_is_read_together_stays_together(self, fleet: LightFleet, model: ScoringModel, ask: Ask) -> None:
        fleet.start(*NAMES[:2])
        fleet.give(model, *NAMES[:2])
        assert ask(MANY[:100]).reply.worker in NAMES  # too few
        assert ask(MANY, queries=MANY, pairing="pairwise").reply.worker in NAMES
        ScoringModel.objects.filter(pk=model.pk).update(kind="listwise")
        assert ask(MANY).reply.worker in NAMES


class TestCold:
    def test_fail(self, fleet: LightFleet, model: ScoringModel, ask: Ask) -> None:
        fleet.start("light-1")
        facts = {**model.facts, "load_seconds": 7.2}
        ScoringModel.objects.filter(pk=model.pk).update(cold_policy="fail", facts=facts)
        refused = refusal(ask, ["a text"])
        assert (refused.status, refused.code, refused.retry_after) == (503, "model_not_loaded", 8)
        assert Placement.objects.filter(model=model, worker=None, state=PlacementState.WANTED).count() == 1

    def test_wait(self, fleet: LightFleet, model: ScoringModel, ask: Ask, settings: Settings) -> None:
        fleet.start("light-1")
        ScoringModel.objects.filter(pk=model.pk).update(facts={**model.facts, "load_seconds": 2.0})
        settings.COLD_WAITERS = 3
        asked = [in_thread(ask, [f"text {n}"], seconds=1.5) for n in range(3)]
        queue = dispatch.model_queue(model.pk)
        wait_for(lambda: dispatch.connection().llen(queue) == 3, what="three requests that wait")
        too_many = refusal(ask, ["a text"])
        assert (too_many.status, too_many.code) == (429, "too_many_waiting")
        assert Placement.objects.filter(model=model).count() == 1, "one replica, however many wait"
        started = time.monotonic()
        while time.monotonic() - started < 2.0:  # longer than their deadline, which counts from ready
            time.sleep(0.1)
        assert not any(one.done() for one in asked)
        fleet.give(model, "light-1")
        for n, one in enumerate(asked):
            answer = one.result(30)
            assert right(answer, [f"text {n}"]) and answer.cold_start > 2.0
            assert ScoreRequest.objects.get(pk=answer.id).report["cold_start"] == answer.cold_start
        assert ask(["a text"]).cold_start == 0.0
        assert left_over() == []

    def test_the_only_worker_is_restarted(
        self, fleet: LightFleet, model: ScoringModel, ask: Ask, settings: Settings
    ) -> None:
        fleet.start("light-1")
        fleet.only("light-1")
        fleet.give(model, "light-1")
        assert fleet.end("light-1", signal.SIGTERM) == 0
        Placement.objects.all().delete()  # as the reconciler does
        routing.ready.clear()
        asked = in_thread(ask, ["a text"], seconds=1.5)
        wait_for(Placement.objects.filter(model=model, worker=None).exists, what="the wanted row")
        assert not asked.done()
        settings.WORKER_RETURN_SECONDS = 0
        assert refusal(ask, ["another"]).code == "no_worker"
        with pytest.raises(AssayError, match="no worker is running"):  # nor does anybody wait any longer then
            asked.result(30)
        settings.WORKER_RETURN_SECONDS = 60
        asked = in_thread(ask, ["a text"], seconds=1.5)
        fleet.start("light-1")
        fleet.give(model, "light-1")
        assert right(asked.result(30), ["a text"])

    def test_waiting_in_vain(self, fleet: LightFleet, model: ScoringModel, ask: Ask) -> None:
        fleet.start("light-1")
        ScoringModel.objects.filter(pk=model.pk).update(facts={**model.facts, "load_seconds": 2.0})
        asked = in_thread(ask, ["a text"])
        wanted = Placement.objects.filter(model=model, worker=None)
        wait_for(wanted.exists, what="the wanted row")
        wanted.update(worker=fleet.ids["light-1"], state=PlacementState.FAILED, cause="weights are missing")
        with pytest.raises(AssayError, match="weights are missing") as refused:
            asked.result(30)
        assert (refused.value.status, refused.value.code) == (503, "model_load_failed")
        assert left_over() == []


def test_queues_of_the_gone_are_swept(make_worker: MakeWorker, model: ScoringModel) -> None:
    connection = dispatch.connection()
    gone, alive = dispatch.worker_queue(NOBODY), dispatch.worker_queue(make_worker().pk)
    model_of_ours, stranger = dispatch.model_queue(model.pk), dispatch.model_queue(NOBODY)
    queues_sweep(now=True)
    for queue in (gone, alive, model_of_ours, stranger):
        connection.lpush(queue, "{}")
    connection.zadd(dispatch.IN_FLIGHT + model_of_ours, {"1:somebody": dispatch.clock() + 60})
    assert queues_sweep(now=True) == 2
    assert (connection.exists(gone), connection.exists(stranger)) == (0, 0)
    assert (connection.exists(alive), connection.exists(model_of_ours)) == (1, 1)
    connection.zadd(dispatch.IN_FLIGHT + model_of_ours, {"1:somebody": dispatch.clock() - 1})
    assert queues_sweep() == 0, "once in a minute is enough"
    assert queues_sweep(now=True) == 1 and not connection.exists(model_of_ours)
    connection.delete(alive, "assay:queues-swept")


def in_thread(work: Callable[..., Any], *arguments: Any, **given: Any) -> Future[Any]:
    def run() -> Any:
        try:
            return work(*arguments, **given)
        finally:
            connections.close_all()

    pool = ThreadPoolExecutor(1)
    future = pool.submit(run)
    pool.shutdown(wait=False)
    return future

"""The running platform under what goes wrong in life: killed workers, lost messages, poison, nobody there."""

from __future__ import annotations

import signal
import threading
import time
from collections.abc import Iterator
from typing import Any

import httpx
import numpy as np
import pytest

from tests.integration.rig import wait_for
from tests.integration.running import (
    LOOK_SECONDS,
    Rows,
    checked,
    finished,
    registered,
    submitted,
    submitted_texts,
    text,
)
from tests.stack import Stack

pytestmark = pytest.mark.stack


@pytest.fixture
def rows(stack: Stack) -> Iterator[Rows]:
    rows = Rows(stack.database_url)
    yield rows
    rows.close()


@pytest.fixture(autouse=True)
def one_worker(stack: Stack, rows: Rows) -> Iterator[None]:
    """Every test begins and ends with exactly one worker that is ready."""
    keep_one_worker(stack, rows)
    yield
    keep_one_worker(stack, rows)


def keep_one_worker(stack: Stack, rows: Rows) -> None:
    for name in stack.workers[1:]:
        stack.kill_worker(signal.SIGTERM, name=name)
    if not stack.workers:
        stack.start_worker()
    wait_for(lambda: rows.alive() == stack.workers, seconds=60, what="one ready worker")


def rerank(client: httpx.Client, model: str, **fields: object) -> httpx.Response:
    documents = ["bees make honey", "the bridge is closed"]
    return client.post("/rerank", json={"model": model, "query": "honey", "documents": documents, **fields})


CHUNKS_FOR_TWO = 16


def test_a_killed_worker_changes_no_score(stack: Stack, rows: Rows) -> None:
    calm, shaken = registered(stack.client, "late-calm"), registered(stack.client, "late-shaken")
    # Long enough for both workers to have a part in it, however late the second one looks.
    undisturbed = submitted(stack.client, calm, chunks=CHUNKS_FOR_TWO, length=40, distinct=True)
    assert finished(stack.client, undisturbed)["state"] == "completed"

    # Two that have no vector of these documents yet: models over the same folder share what they encoded.
    stack.kill_worker(signal.SIGTERM)
    started = sorted([stack.start_worker(), victim := stack.start_worker()])
    wait_for(lambda: rows.alive() == started, seconds=60, what="two fresh workers")
    checked(stack.client.post(f"/api/v1/models/{shaken}/load"))
    wait_for(lambda: ready_on(rows, shaken) == 2, seconds=60, what="the model on both workers")
    job = submitted(stack.client, shaken, chunks=CHUNKS_FOR_TWO, length=40, distinct=True)
    kill_in_mid_chunk(stack, rows, job, victim)

    assert finished(stack.client, job)["state"] == "completed"
    # Which texts share a micro-batch differs between the runs, so the last bit may.
    np.testing.assert_allclose(rows.scores(job), rows.scores(undisturbed), rtol=1e-5)


def kill_in_mid_chunk(stack: Stack, rows: Rows, job: dict[str, str], victim: str) -> None:
    """Halt the process first: a chunk may take less time than it takes to see its lease and to kill."""
    give_up = time.monotonic() + 120
    while time.monotonic() < give_up:
        wait_for(lambda: leased_by(rows, job, victim), what="a chunk on the second worker")
        stack.kill_worker(signal.SIGSTOP, name=victim, restart=True)
        time.sleep(0.1)  # what it had sent to the database before is through by now
        if leased_by(rows, job, victim):
            stack.kill_worker(signal.SIGKILL, name=victim)
            return
        stack.kill_worker(signal.SIGCONT, name=victim, restart=True)
    raise AssertionError("The worker was never met with a chunk in hand.")


def ready_on(rows: Rows, model: str) -> int:
    found = rows(
        "SELECT count(*) FROM scoring_placement p JOIN scoring_scoringmodel m ON m.id = p.model_id "
        "JOIN scoring_worker w ON w.id = p.worker_id WHERE m.name = %s AND p.state = 'ready' AND w.state = 'ready'",
        model,
    )
    return int(found[0][0])


def leased_by(rows: Rows, job: dict[str, str], worker: str) -> bool:
    sql = (
        "SELECT 1 FROM scoring_chunk c JOIN scoring_worker w ON w.id = c.lease_owner_id "
        "WHERE c.job_id = %s AND c.state = 'leased' AND w.name = %s"
    )
    return bool(rows(sql, job["id"], worker))


def test_a_drained_worker_gives_its_chunk_back(stack: Stack, rows: Rows) -> None:
    job = submitted(stack.client, registered(stack.client, "late-drained"), chunks=6, length=41, distinct=True)
    wait_for(lambda: rows.chunks_in(job, "leased"))
    name = stack.workers[0]
    process = stack.platform.programs[name].process
    assert process is not None
    started = time.monotonic()
    stack.kill_worker(signal.SIGTERM, name=name)
    assert (process.returncode, time.monotonic() - started < 15) == (0, True)
    assert rows.chunks_in(job, "leased") == []
    assert rows("SELECT state FROM scoring_worker WHERE name = %s", name) == [("gone",)]
    stack.start_worker()
    assert finished(stack.client, job)["state"] == "completed"
    assert rows("SELECT max(attempts) FROM scoring_chunk WHERE job_id = %s", job["id"]) == [(0,)]


def test_a_document_that_kills_its_worker_fails_alone(stack: Stack, rows: Rows) -> None:
    """Its text takes the tokenizer a second or two, which is when the worker that reads it is killed."""
    poison, texts = 1, ["bees make honey", "a " * 500_000, "the bridge is closed", "bread and yeast"]
    model = registered(stack.client, "late-poisoned")
    job = submitted_texts(stack.client, model, documents=texts, queries=["honey"])
    crashes = 0
    give_up = time.monotonic() + 480
    while not failed_documents(rows, job) and time.monotonic() < give_up:
        if poison in leased_documents(rows, job):
            process = stack.platform.programs[stack.workers[0]].process
            stack.kill_worker(signal.SIGKILL, restart=True)
            assert process is not None
            process.wait(10)
            crashes += 1
            wait_for(lambda: poison not in leased_documents(rows, job), seconds=90, what="the restart")
        time.sleep(0.005)
    assert failed_documents(rows, job) == {poison}
    # Twice, then halves of two and of one. On a slow machine some look like accidents, which count only in a row.
    assert 4 <= crashes <= 8
    ended = finished(stack.client, job)
    assert (ended["state"], ended["statistics"]["pairs"]["failed"]) == ("completed_with_errors", 1)
    for result in checked(stack.client.get(f"/api/v1/jobs/{job['id']}/results"))["results"]:
        *scored, last = result["documents"]
        assert (last["index"], last["score"], last["status"], last["error"]) == (1, None, "failed", "worker_crashed")
        assert sorted(document["index"] for document in scored) == [0, 2, 3]


def failed_documents(rows: Rows, job: dict[str, Any]) -> set[int]:
    return _documents(rows, job, "failed")


def leased_documents(rows: Rows, job: dict[str, Any]) -> set[int]:
    return _documents(rows, job, "leased")


def _documents(rows: Rows, job: dict[str, Any], state: str) -> set[int]:
    sql = "SELECT document_start, document_count FROM scoring_chunk WHERE job_id = %s AND state = %s"
    return {document for start, count in rows(sql, job["id"], state) for document in range(start, start + count)}


def test_a_hundred_wake_ups_do_the_work_once(stack: Stack, rows: Rows) -> None:
    job = submitted(stack.client, registered(stack.client, "late-woken"), chunks=4)
    send = "from scoring.dispatch import workers_wake; assert all(workers_wake() for _ in range(100))"
    stack.manage("shell", "--no-imports", "-c", send)
    assert finished(stack.client, job)["state"] == "completed"
    done = rows(
        "SELECT count(*) FROM scoring_transition t JOIN scoring_chunk c ON t.entity_id = c.id::text "
        "WHERE t.entity = 'chunk' AND t.to_state = 'done' AND c.job_id = %s",
        job["id"],
    )
    assert done == [(4,)]


def test_a_cancelled_job_stops_within_a_micro_batch(stack: Stack, rows: Rows) -> None:
    job = submitted(stack.client, registered(stack.client, "late-cancelled"), chunks=40, length=42, distinct=True)
    wait_for(lambda: rows.chunks_in(job, "done"), seconds=60)
    checked(stack.client.post(f"/api/v1/jobs/{job['id']}/cancel"))
    ended = finished(stack.client, job, seconds=20)
    assert ended["state"] == "cancelled"
    assert 0 < ended["progress"]["pairs_done"] < ended["pair_count"]
    results = checked(stack.client.get(f"/api/v1/jobs/{job['id']}/results"))["results"]
    assert len(results) == 8


def test_nobody_there_is_said_within_two_seconds(stack: Stack, rows: Rows) -> None:
    model = registered(stack.client, "late-alone")
    stack.kill_worker(signal.SIGKILL)
    # At first its row still looks alive and the message waits in vain; later the row tells.
    for wait in (0.0, 7.0):
        time.sleep(wait)
        started = time.monotonic()
        response = rerank(stack.client, model)
        assert time.monotonic() - started < 2
        error = response.json()["error"]
        assert (response.status_code, error["code"]) == (503, "no_worker")
        assert "(queue 'm." in error["message"]
        assert model in error["message"]
        assert int(response.headers["Retry-After"]) > 0


def test_a_request_whose_caller_left_is_dropped(stack: Stack, rows: Rows) -> None:
    model = registered(stack.client, "late-left")
    long = {"documents": [f"{n} " + "honey bees " * 200 for n in range(300)]}
    response = stack.client.post(
        "/rerank", json={"model": model, "query": "honey", **long}, headers={"X-Timeout-Ms": "700"}
    )
    assert (response.status_code, response.json()["error"]["code"]) == (504, "deadline_exceeded")

    def dropped() -> int:
        found = rows("SELECT statistics->'sync'->>'dropped' FROM scoring_worker WHERE state = 'ready'")
        return int(found[0][0] or 0)

    wait_for(lambda: dropped() >= 1, what="the counter of dropped requests")
    assert rerank(stack.client, model).is_success


def test_the_toggle_is_visible_within_seconds(stack: Stack) -> None:
    name = registered(stack.client, "late-toggled")
    path = f"/api/v1/models/{name}"
    wanted = not checked(stack.client.get(path))["gpu_maxsim"]
    generation = checked(stack.client.patch(path, json={"gpu_maxsim": wanted}))["generation"]

    def in_force() -> bool:
        return [p["generation"] for p in checked(stack.client.get(path))["placements"] if p["present"]] == [generation]

    wait_for(in_force, seconds=5, what="the toggle")
    assert rerank(stack.client, name).is_success


def test_a_budget_of_the_caches_comes_into_force_within_seconds(stack: Stack) -> None:
    name = registered(stack.client, "late-bounded", max_length=97)  # an encoder that no other test's model shares
    path, budget = f"/api/v1/models/{name}", 100_000
    texts = [text(number, 10) for number in range(40)]  # 15 kB and more each

    def set_to(given: int | None) -> int:
        return int(checked(stack.client.patch(path, json={"document_cache_bytes": given}))["generation"])

    def kept(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
        return [row["documents_kept"] for row in rows if row["documents_kept"]]

    def is_kept(least: int, most: int, given: int | None) -> bool:
        shares = kept(checked(stack.client.get(path))["placements"])
        return [least < share["bytes"] <= most and share["budget_bytes"] == given for share in shares] == [True]

    assert rerank(stack.client, name, documents=texts).is_success
    wait_for(lambda: is_kept(5 * budget, 2**40, None), what="encodings without a bound", every=LOOK_SECONDS)
    generation = set_to(budget)

    def in_force() -> bool:
        return [row["generation"] for row in checked(stack.client.get(path))["placements"]] == [generation]

    wait_for(in_force, seconds=5, what="the budget in force", every=LOOK_SECONDS)
    wait_for(lambda: is_kept(0, budget, budget), what="what is over it gone", every=LOOK_SECONDS)
    assert checked(rerank(stack.client, name, documents=texts))["usage"]
    workers = checked(stack.client.get("/api/v1/workers"))["results"]
    held = [row for worker in workers for row in worker["placements"] if row["model"] == name]
    assert 0 < kept(held)[0]["bytes"] <= budget
    set_to(3 * budget)
    wait_for(lambda: is_kept(0, 3 * budget, 3 * budget), what="the larger budget", every=LOOK_SECONDS)
    assert rerank(stack.client, name, documents=texts).is_success
    wait_for(lambda: is_kept(budget, 3 * budget, 3 * budget), what="more encodings", every=LOOK_SECONDS)


def test_a_reload_answers_all_the_time(stack: Stack, rows: Rows) -> None:
    name = registered(stack.client, "late-reloaded")
    assert rerank(stack.client, name).is_success
    stop, answers = threading.Event(), []

    def ask() -> None:
        while not stop.is_set():
            answers.append(rerank(stack.client, name))

    asking = threading.Thread(target=ask)
    asking.start()
    checked(stack.client.post(f"/api/v1/models/{name}/reload"))
    done = "SELECT reloaded FROM scoring_placement p JOIN scoring_scoringmodel m ON m.id = p.model_id WHERE m.name = %s"
    wait_for(lambda: (1,) in rows(done, name), what="the reload")
    stop.set()
    asking.join()
    assert answers
    assert all(answer.is_success for answer in answers)
    best = [answer.json()["results"][0]["relevance_score"] for answer in answers]
    np.testing.assert_allclose(best, best[0], rtol=1e-6)


def test_a_large_rerank_is_split_over_the_workers_and_equals_the_whole(stack: Stack, rows: Rows) -> None:
    name = registered(stack.client, "late-split")
    newest = stack.start_worker()
    wait_for(lambda: len(rows.alive()) == 2, seconds=120, what="the second worker")
    checked(stack.client.post(f"/api/v1/models/{name}/load"))
    ready = (
        "SELECT count(*) FROM scoring_placement p JOIN scoring_scoringmodel m ON m.id = p.model_id "
        "JOIN scoring_worker w ON w.id = p.worker_id WHERE m.name = %s AND p.state = 'ready' AND w.state = 'ready'"
    )
    wait_for(lambda: rows(ready, name) == [(2,)], seconds=120, what="the model on both workers")
    documents = [text(n, 12) + f" {n}" for n in range(160)]

    def scores(documents: list[str]) -> tuple[list[float], dict[str, Any], int]:
        body = {"model": name, "queries": "honey", "documents": documents}
        answer = checked(stack.client.post("/score", json=body))
        report = checked(stack.client.get(f"/api/v1/score-requests/{answer['id']}"))["report"]
        return [item["raw_score"] for item in answer["data"]], report, answer["usage"]["prompt_tokens"]

    split, report, tokens = scores(documents)
    assert report["parts"] == 2 and "," in report["worker"]
    few = [scores(documents[start : start + 40]) for start in range(0, 160, 40)]
    assert {one[1]["parts"] for one in few} == {1}
    np.testing.assert_allclose(split, np.concatenate([one[0] for one in few]), rtol=1e-5)
    (query_tokens,) = {scores(["honey"])[2] - scores(["honey", "bees"])[2] + scores(["bees"])[2]}
    assert tokens == sum(one[2] for one in few) - 3 * query_tokens
    stack.kill_worker(signal.SIGTERM, name=newest)

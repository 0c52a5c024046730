"""Models that a server elsewhere computes: a small one of our own, whose moods are known, and the platform itself."""

from __future__ import annotations

import json
import re
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from http.server import BaseHTTPRequestHandler
from typing import Any

import numpy as np
import pytest
from pytest_django import Settings

from assay.errors import AssayError
from scoring.models import Chunk, Job, ScoringModel
from scoring.selectors.job_waiting import job_waiting
from scoring.services.registry import model_register
from scoring.states import ChunkState, ModelState, PlacementState
from tests.integration.conftest import MakeJob
from tests.integration.rig import Rig, wait_for
from tests.integration.running import Rows, checked, finished, registered, submitted_texts
from tests.security.receiver import Received, Receiver, receiving, reply
from tests.stack import Stack
from workers.engine.errors import EngineError, RequestCancelled
from workers.engine.types import (
    ItemStatus,
    LongDocuments,
    Pairing,
    PoolingOptions,
    PoolingRequest,
    PoolingTask,
    ScoringOptions,
    ScoringRequest,
)
from workers.remote.breaker import FIRST_PAUSE, Breaker
from workers.remote.connection import LONGEST_WISH, seconds_wished

STOP = {"the", "a", "of", "and", "are", "is", "in", "how", "what", "do", "it", "to"}


def words(text: str) -> list[str]:
    return [word for word in re.findall(r"[a-z]+", text.lower()) if word not in STOP]


def relevance(query: str, document: str) -> float:
    """The share of the query's words that the document has."""
    wanted = set(words(query))
    return len(wanted & set(words(document))) / len(wanted) if wanted else 0.0


def vector(text: str) -> list[float]:
    found = np.full(64, 0.01)
    for word in words(text):
        found[sum(map(ord, word)) % 64] += 1
    return [float(number) for number in found]


def by_name(raw: bool, text: str) -> list[dict[str, Any]]:
    """The class of the longer ones first: how long a text is, and how short."""
    length = float(len(text))
    scores = (length, -length) if raw else (length / (1 + length), 1 / (1 + length))
    return [{"label": name, "score": score} for name, score in zip(("long", "short"), scores, strict=True)]


def answer(received: Received) -> Any:
    body = json.loads(received.body)
    match received.path:
        case "/v1/rerank" | "/v2/rerank":
            scores = [relevance(body["query"], text) for text in body["documents"]]
            ranked = sorted(range(len(scores)), key=lambda place: -scores[place])
            results = [{"index": place, "relevance_score": scores[place]} for place in ranked]
            return {"model": f"served/{body['model']}", "results": results, "usage": {"total_tokens": len(scores)}}
        case "/rerank":
            return [{"index": n, "score": relevance(body["query"], text)} for n, text in enumerate(body["texts"])]
        case "/v1/embeddings":
            data = [{"index": n, "embedding": vector(text)} for n, text in enumerate(body["input"])]
            return {"model": "served/e", "data": data[::-1]}
        case "/v2/embed":
            return {"embeddings": {"float": [vector(text) for text in body["texts"]]}}
        case "/embed":
            return [vector(text) for text in body["inputs"]]
        case "/pooling":
            data = [
                {"index": n, "data": [vector(word) for word in words(text)]} for n, text in enumerate(body["input"])
            ]
            return {"model": "served/t", "data": data[::-1]}
        case "/predict":
            return [by_name(body["raw_scores"], text) for (text,) in body["inputs"]]
        case "/v1/classify":
            return {"model": "served/c", "data": [by_name(body["raw_scores"], text) for text in body["input"]]}
        case "/classify":
            found = [by_name(not body["use_activation"], text)[::-1] for text in body["input"]]
            return {"data": [{"index": n, "probs": [e["score"] for e in each]} for n, each in enumerate(found)][::-1]}
    raise AssertionError(received.path)


def serve(handler: BaseHTTPRequestHandler, received: Received) -> None:
    reply(200, json.dumps(answer(received)).encode())(handler, received)


@pytest.fixture
def server(settings: Settings) -> Iterator[Receiver]:
    settings.OUTGOING_ALLOWED_HOSTS = ["127.0.0.1"]
    with receiving() as running:
        running.reply = serve
        settings.REMOTE_CREDENTIALS = {"key": (f"127.0.0.1:{running.port}", "the secret")}
        yield running


@pytest.fixture
def remote(rig: Rig, server: Receiver) -> Callable[..., ScoringModel]:
    def register(name: str, **fields: Any) -> ScoringModel:
        given = {
            "kind": "cross-encoder", "engine": "vllm", "endpoint": f"http://127.0.0.1:{server.port}",
            "remote_model": "r", "credential": "key", "self_test_mode": "full", **fields,
        }  # fmt: skip
        model = model_register(principal=rig.principal, name=name, **given)
        rig.wait_for_state(model, ModelState.AVAILABLE, ModelState.REJECTED)
        return model

    return register


@pytest.mark.parametrize("language", ["vllm", "tei", "cohere"])  # Jina's and OpenAI's is vLLM's
@pytest.mark.parametrize("kind", ["cross-encoder", "bi-encoder"])
def test_every_language_and_kind(
    remote: Callable[..., ScoringModel], server: Receiver, rig: Rig, language: str, kind: str
) -> None:
    model = remote("far", engine=language, kind=kind)
    assert model.state == ModelState.AVAILABLE, model.self_test_report
    assert {request.headers["authorization"] for request in server.requests} == {"Bearer the secret"}
    placement = rig.wait_for_placement(model, PlacementState.READY)
    assert placement.claimed_bytes == 0 and model.facts["max_length"] is None
    server.requests.clear()
    queries, documents = ("river bridge", "bread oven"), tuple(f"bread number {n} of the river" for n in range(150))
    request = ScoringRequest(model.name, queries, (*documents, "  ", documents[0]))
    output = rig.engine.submit(request).result(60)
    scores = output.scores.reshape(2, 152)
    assert (output.status.reshape(2, 152)[:, 150] == ItemStatus.EMPTY).all() and np.isnan(scores[:, 150]).all()
    assert (scores[:, 0] == scores[:, 151]).all() and np.isfinite(np.delete(scores, 150, axis=1)).all()
    if kind == "cross-encoder":
        assert scores[0, 3] == pytest.approx(relevance(queries[0], documents[3]))
    else:
        one, other = np.array(vector(queries[0])), np.array(vector(documents[3]))
        assert scores[0, 3] == pytest.approx(one @ other / np.linalg.norm(one) / np.linalg.norm(other), abs=1e-5)
    asked = [json.loads(each.body) for each in server.requests]
    sizes = [len(next(body[key] for key in ("documents", "texts", "input", "inputs") if key in body)) for body in asked]
    assert max(sizes) <= {"tei": 32, "cohere": 1000}.get(language, 100)
    # Each text once, and nothing empty: what is left are 150 documents, per query or beside the two queries.
    assert sum(sizes) == (300 if kind == "cross-encoder" else 152)
    assert output.backend.startswith(f"{language}:") and output.dtype == "remote"
    if language == "vllm" and kind == "cross-encoder":
        assert output.backend == "vllm:served/r" and output.prompt_tokens == 300


@pytest.mark.parametrize(
    ("language", "kind", "task"),
    [
        ("vllm", "bi-encoder", "embed"), ("cohere", "bi-encoder", "embed"), ("tei", "bi-encoder", "embed"),
        ("vllm", "late-interaction", "token_embed"), ("vllm", "classifier", "classify"),
        ("tei", "classifier", "classify"), ("openai-compatible", "classifier", "classify"),
    ],
)  # fmt: skip
def test_what_single_texts_become(
    remote: Callable[..., ScoringModel], server: Receiver, rig: Rig, language: str, kind: str, task: str
) -> None:
    labels = ["short", "long"] if kind == "classifier" else []
    model = remote("pools", engine=language, kind=kind, labels=labels)
    assert model.state == ModelState.AVAILABLE, model.self_test_report
    texts = ("bread and bridges", " ", *(f"bread number {n}" for n in range(70)), "bread and bridges")
    ask = PoolingRequest("pools", texts, PoolingTask(task))
    output = rig.engine.submit_pooling(ask).result(60)
    assert [text.status for text in output.data[:3]] == [ItemStatus.OK, ItemStatus.EMPTY, ItemStatus.OK]
    assert output.backend.startswith(f"{language}:") and output.labels == tuple(labels)
    for place in (0, 2, 40, 72):
        found, text = output.data[place], texts[place]
        match task:
            case "embed":
                assert found.vector == pytest.approx(np.array(vector(text), np.float32))
            case "token_embed":
                assert found.token_vectors == pytest.approx(np.array([vector(w) for w in words(text)], np.float32))
                assert len(found.token_ids) == len(words(text))
            case "classify":
                assert found.classes == pytest.approx([1 / (1 + len(text)), len(text) / (1 + len(text))])
    server.requests.clear()
    for options in (PoolingOptions(dimensions=3), PoolingOptions(max_tokens=3), PoolingOptions(normalize=False)):
        with pytest.raises(EngineError, match="Leave"):
            rig.engine.submit_pooling(replace(ask, options=options)).result(60)
    other = PoolingTask.TOKEN_CLASSIFY
    with pytest.raises(EngineError, match="token_classify"):
        rig.engine.submit_pooling(replace(ask, task=other)).result(60)
    assert server.requests == []


@pytest.mark.parametrize("status", [500, 413, 422])
def test_a_text_that_the_server_refuses_fails_alone(
    remote: Callable[..., ScoringModel], server: Receiver, rig: Rig, status: int
) -> None:
    """Nor does it keep others from the server."""
    remote("picky")
    remote("picky-vectors", kind="bi-encoder")

    def picky(handler: BaseHTTPRequestHandler, received: Received) -> None:
        (reply(status) if b"poison" in received.body else serve)(handler, received)

    server.reply = picky
    documents = [f"bread number {n} of the river" for n in range(90)]
    documents[17] = documents[60] = "a poison"
    queries = ("river bridge", "which poison is it", "bread oven")
    for name in ("picky", "picky-vectors"):
        server.requests.clear()
        output = rig.engine.submit(ScoringRequest(name, queries, tuple(documents))).result(60)
        failed = output.status.reshape(3, 90) == ItemStatus.FAILED
        assert failed[1].all() and set(np.flatnonzero(failed[0])) == set(np.flatnonzero(failed[2])) == {17, 60}
        assert set(output.errors.values()) == {"remote_refused"} and np.isfinite(output.scores).sum() == 2 * 88
        assert len(server.requests) < 120 and rig.engine.trouble(name) == "", "the breaker did not notice"
    asked = PoolingRequest("picky-vectors", ("bread", "poison"), PoolingTask.EMBED)
    pooled = rig.engine.submit_pooling(asked).result(60)
    assert pooled.errors == {1: "remote_refused"} and pooled.data[0].vector is not None


def test_a_server_that_refuses_everything_is_away(
    remote: Callable[..., ScoringModel], server: Receiver, rig: Rig
) -> None:
    remote("broken")
    server.reply = reply(500)
    for _ in range(3):
        assert rig.engine.shut("broken") == ""
        with pytest.raises(EngineError, match="to a harmless text too") as raised:
            rig.engine.submit(ScoringRequest("broken", ("q",), ("d",))).result(60)
        assert raised.value.code == "remote_unavailable"
    assert "answered 500" in rig.engine.shut("broken")


def test_a_server_that_wants_to_be_left_alone_is(
    remote: Callable[..., ScoringModel], server: Receiver, rig: Rig
) -> None:
    remote("busy")
    server.requests.clear()
    server.reply = reply(429, Retry_After=str(int(LONGEST_WISH) + 20))
    for _ in range(2):
        with pytest.raises(EngineError, match="answered 429"):
            rig.engine.submit(ScoringRequest("busy", ("q",), ("d",))).result(60)
    assert len(server.requests) == 1 and rig.engine.shut("busy")
    counts = rig.engine.remote_statistics()["busy"]
    assert (counts["unavailable"], counts["held_back"], counts["shut"]) == (1, 1, 1)
    assert seconds_wished("7") == 7 and seconds_wished("Wed, 21 Oct 2015 07:28:00 GMT") == seconds_wished("soon") == 0


def test_a_hasty_request_says_nothing_about_the_server(
    remote: Callable[..., ScoringModel], server: Receiver, rig: Rig
) -> None:
    remote("slow")
    answers = threading.Event()

    def late(handler: BaseHTTPRequestHandler, received: Received) -> None:
        answers.wait(30)
        serve(handler, received)

    server.reply = late
    for _ in range(3):
        request = ScoringRequest("slow", ("q",), ("d",), deadline=time.monotonic() + 0.2)
        with pytest.raises(RequestCancelled):
            rig.engine.submit(request).result(60)
    answers.set()
    assert rig.engine.trouble("slow") == ""


def test_a_job_waits_while_the_server_is_away_and_no_attempt_is_counted(
    remote: Callable[..., ScoringModel], server: Receiver, rig: Rig, make_job: MakeJob
) -> None:
    model = remote("far")
    server.reply = reply(503)
    job = make_job(model, chunks=2)
    rig.batch.start()
    rig.wait_for_placement(model, PlacementState.DEGRADED, cause__contains="answered 503")

    def waits() -> bool:
        pending = Chunk.objects.filter(job=job, state=ChunkState.PENDING).count()
        return job_waiting(Job.objects.get(pk=job.pk), {ChunkState.PENDING: pending}).code == "remote_unavailable"

    wait_for(waits, what="the reason why the job waits")
    with pytest.raises(EngineError, match="not to be had") as raised:
        rig.engine.submit(ScoringRequest("far", ("q",), ("d",))).result(60)
    assert raised.value.code == "remote_unavailable"
    server.reply = serve
    done = Chunk.objects.filter(job=job, state=ChunkState.DONE)
    left = Chunk.objects.filter(job=job).exclude(state=ChunkState.DONE)
    wait_for(lambda: done.exists() and not left.exists(), seconds=90, what="all chunks, however they were cut")
    assert set(done.values_list("attempts", flat=True)) == {0}
    assert done[0].report["backend"] == "vllm:served/r" and done[0].report["revision"] == model.revision
    rig.wait_for_placement(model, PlacementState.READY)


@pytest.mark.parametrize(
    ("mood", "code"),
    [
        (reply(401), "remote_unavailable"), (reply(200, b"<html>"), "remote_refused"),
        (reply(200, b'{"results": []}'), "remote_refused"), (reply(200, b"[1]"), "remote_refused"),
        (reply(200, b'{"results": [{"index": 7, "relevance_score": 1}]}'), "remote_refused"),
        (reply(200, b'{"results": [{"index": 0, "relevance_score": NaN}]}'), "non_finite_score"),
    ],
)  # fmt: skip
def test_bad_answers_become_refusals(
    remote: Callable[..., ScoringModel], server: Receiver, rig: Rig, mood: Any, code: str
) -> None:
    remote("moody")
    server.reply = mood
    try:
        output = rig.engine.submit(ScoringRequest("moody", ("secret query",), ("secret text",))).result(60)
        found = output.errors[0]
    except EngineError as error:
        found = error.code
        assert "secret" not in str(error)
    assert found == code


def test_what_it_cannot_do_is_refused_before_anything_is_sent(
    remote: Callable[..., ScoringModel], server: Receiver, rig: Rig
) -> None:
    remote("plain")
    server.requests.clear()
    for options in (
        ScoringOptions(instruction="x"), ScoringOptions(long_documents=LongDocuments.CHUNK_MAX),
        ScoringOptions(max_tokens_per_query=3), ScoringOptions(use_activation=False), ScoringOptions(dimensions=3),
    ):  # fmt: skip
        with pytest.raises(EngineError):
            rig.engine.submit(ScoringRequest("plain", ("q",), ("d",), Pairing.MATRIX, options=options)).result(60)
    assert server.requests == []


def test_a_model_that_ranks_wrongly_or_is_not_there_is_rejected(
    remote: Callable[..., ScoringModel], server: Receiver
) -> None:
    server.reply = reply(404)
    absent = remote("absent")
    assert absent.state == ModelState.REJECTED and "answered 404" in str(absent.self_test_report)
    flat = {"results": [{"index": 0, "relevance_score": 0.5}, {"index": 1, "relevance_score": 0.5}]}
    one = {"results": flat["results"][:1]}

    def equal(handler: BaseHTTPRequestHandler, received: Received) -> None:
        count = len(json.loads(received.body)["documents"])
        reply(200, json.dumps(flat if count == 2 else one).encode())(handler, received)

    server.reply = equal
    assert remote("flat").state == ModelState.REJECTED


def test_what_cannot_be_registered(server: Receiver, principal: Any) -> None:
    """In particular: texts go to listed hosts only, and a secret to its own host only."""
    given = {
        "kind": "cross-encoder", "engine": "jina", "endpoint": f"http://127.0.0.1:{server.port}", "remote_model": "r",
        "credential": "key",
    }  # fmt: skip
    wrong: tuple[tuple[dict[str, Any], str], ...] = (
        ({"endpoint": "https://93.184.216.34"}, "endpoint"), ({"endpoint": ""}, "endpoint"),
        ({"endpoint": "http://127.0.0.1:1/?x=1"}, "endpoint"), ({"remote_model": ""}, "remote_model"),
        ({"kind": "sparse"}, "kind"), ({"kind": "late-interaction"}, "kind"), ({"labels": ["a", "b"]}, "labels"),
        ({"kind": "classifier", "engine": "tei"}, "labels"),
        ({"source": "package:x/y"}, "source"), ({"credential": "none"}, "credential"),
        ({"endpoint": "http://127.0.0.1:1"}, "credential"), ({"engine": "local"}, "source"),
        ({"engine": "local", "source": "package:x/y"}, "endpoint"), ({"dtype": "float32"}, "max_length"),
    )  # fmt: skip
    for fields, param in wrong:
        with pytest.raises(AssayError) as raised:
            model_register(principal=principal, name="refused", **{**given, **fields})
        assert (raised.value.code, raised.value.param) == ("invalid_model", param), fields


def test_the_breaker_lets_one_trial_through() -> None:
    now = [0.0]
    breaker = Breaker(lambda: now[0])
    for _ in range(3):
        assert breaker.admit() == ""
        breaker.failed("away")
    assert breaker.admit() == "away" and breaker.is_open
    now[0] = FIRST_PAUSE
    assert breaker.admit() == "" and breaker.admit() == "away"  # the trial, and whoever comes while it runs
    breaker.failed("still away")
    now[0] += FIRST_PAUSE
    assert breaker.admit() == "still away"  # twice as long
    now[0] += FIRST_PAUSE
    assert breaker.admit() == ""
    breaker.succeeded()
    assert breaker.cause == "" and not breaker.is_open


@pytest.mark.stack
def test_the_platform_as_the_remote_engine_of_itself(stack: Stack) -> None:
    """The same scores, over HTTP and back, at once and in a job."""
    client, near = stack.client, registered(stack.client, "remote-near")
    fields = {
        "kind": "cross-encoder", "source": "", "dtype": "auto", "engine": "jina", "endpoint": stack.base_url,
        "remote_model": near, "credential": "itself",
    }  # fmt: skip
    far = registered(client, "remote-far", **fields)
    texts, query = ["bees make honey", "the violin has strings", "a bridge over the river"], "who makes honey?"
    answers = [
        checked(client.post("/v1/rerank", json={"model": name, "query": query, "documents": texts}))["results"]
        for name in (near, far)
    ]
    assert [result["index"] for result in answers[0]] == [result["index"] for result in answers[1]]
    scores = [[result["relevance_score"] for result in results] for results in answers]
    assert scores[1] == pytest.approx(scores[0], abs=1e-4)
    jobs = [submitted_texts(client, name, documents=texts, queries=[query, "a river"]) for name in (near, far)]
    rows = Rows(stack.database_url)
    try:
        for job in jobs:
            assert finished(client, job)["state"] == "completed"
        assert np.allclose(rows.scores(jobs[0]), rows.scores(jobs[1]), atol=1e-4)
        ((backend,),) = rows("SELECT DISTINCT report->>'backend' FROM scoring_chunk WHERE job_id = %s", jobs[1]["id"])
        assert backend == f"jina:{near}"
    finally:
        rows.close()


@pytest.mark.stack
def test_the_platform_s_vectors_by_way_of_itself(stack: Stack) -> None:
    client, near = stack.client, registered(stack.client, "vectors-near", kind="bi-encoder")
    fields = {
        "kind": "bi-encoder", "source": "", "dtype": "auto", "engine": "vllm", "endpoint": stack.base_url,
        "remote_model": near, "credential": "itself",
    }  # fmt: skip
    far = registered(client, "vectors-far", **fields)
    body = {"input": ["bees make honey", "the violin has strings"], "encoding_format": "float"}
    one, other = (checked(client.post("/v1/embeddings", json={"model": name, **body})) for name in (near, far))
    assert [item["embedding"] for item in other["data"]] == [
        pytest.approx(item["embedding"], abs=1e-5) for item in one["data"]
    ]
    assert other["assay"]["backend"] == f"vllm:{near}"
    cohere = {"texts": ["who makes honey?"], "input_type": "search_query", "embedding_types": ["float"]}
    vectors = checked(client.post("/v2/embed", json={"model": far, **cohere}))["embeddings"]["float"]
    assert np.linalg.norm(vectors[0]) == pytest.approx(1, abs=1e-3)
    refused = client.post("/v1/embeddings", json={"model": far, "dimensions": 3, **body})
    assert refused.status_code == 422 and refused.json()["error"]["code"] == "bad_dimensions"
    cut = client.post("/pooling", json={"model": far, "input": "bees", "normalize": False})
    assert cut.status_code == 422 and "normalize: false" in cut.json()["error"]["message"]

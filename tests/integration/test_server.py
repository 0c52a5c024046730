"""The web server as a process: who hangs up, who hangs, who is asked to stop."""

from __future__ import annotations

import signal
import socket
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import httpx
import pytest
from django.db import connection

from accounts.scopes import ALL_SCOPES
from accounts.services import token_create, token_revoke
from assay.api.principal import Principal
from assay.lanes import PAGE_THREADS
from scoring import dispatch, routing
from scoring.models import ScoreRequest, ScoringModel, Transition
from scoring.services.finalize import jobs_advance
from scoring.services.job_control import job_cancel
from scoring.services.job_watch import jobs_stop_finish
from scoring.states import ModelState
from tests.integration.conftest import MakeJob
from tests.integration.light_fleet import LightFleet
from tests.integration.rig import wait_for
from tests.integration.web_process import WebProcess, web_process

THREADS = 28
SHARE = 21  # of them for one model
FOREVER = {"X-Timeout-Ms": "60000"}


@pytest.fixture(scope="module")
def processes(django_db_setup: None) -> Iterator[LightFleet]:
    fleet = LightFleet()
    yield fleet
    fleet.close()


@pytest.fixture(scope="module")
def web(django_db_setup: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[WebProcess]:
    with web_process(tmp_path_factory.mktemp("web"), WEB_THREADS=str(THREADS)) as web:
        yield web


@pytest.fixture
def fleet(transactional_db: None, processes: LightFleet) -> Iterator[LightFleet]:
    routing.answering.clear()
    processes.calm()
    processes.start("light-1", "light-2")
    yield processes
    processes.calm()


Serve = Callable[..., str]


@pytest.fixture
def serve(fleet: LightFleet) -> Serve:
    """``serve("a", "light-1")``: a model of that name, held by that worker."""

    def make(name: str, worker: str) -> str:
        model = ScoringModel.objects.create(
            name=name,
            kind="late-interaction",
            source="package:x/y",
            state=ModelState.AVAILABLE,
            revision="r1",
            facts={"max_length": 256, "scale": "maxsim"},
        )
        fleet.give(model, worker)
        return name

    return make


@pytest.fixture
def client(web: WebProcess, principal: Principal) -> Iterator[httpx.Client]:
    _, secret = token_create(team=principal.team, name="tests", scopes=list(ALL_SCOPES))
    with httpx.Client(base_url=web.url, headers={"Authorization": f"Bearer {secret}"}, timeout=90) as client:
        yield client


def rerank(client: httpx.Client, model: str, headers: dict[str, str] | None = None) -> httpx.Response:
    body = {"model": model, "query": "q", "documents": ["one", "two"]}
    return client.post("/rerank", json=body, headers=headers)


def hang_up(web: WebProcess, client: httpx.Client, model: str) -> None:
    """Send a whole request and close the connection without reading an answer."""
    body = httpx.Request("POST", web.url, json={"model": model, "query": "q", "documents": ["one", "two"]}).read()
    host, port = web.url.removeprefix("http://").split(":")
    head = f"POST /rerank HTTP/1.1\r\nHost: {host}\r\nAuthorization: {client.headers['Authorization']}\r\n"
    head += f"Content-Type: application/json\r\nX-Timeout-Ms: 60000\r\nContent-Length: {len(body)}\r\n\r\n"
    with socket.create_connection((host, int(port))) as connection:
        connection.sendall(head.encode() + body)
        time.sleep(0.05)


def calls_in_flight() -> set[str]:
    """Entries and callers' marks; of other tests too, which killed who would have ended theirs."""
    keys = dispatch.connection().scan_iter(f"{dispatch.IN_FLIGHT}*")
    entries = {str(entry) for key in keys for entry in dispatch.connection().zrange(key, 0, -1)}
    return entries | set(dispatch.connection().scan_iter("assay:reply:*:caller"))


def test_who_hangs_up_takes_its_work_along(
    web: WebProcess, fleet: LightFleet, serve: Serve, client: httpx.Client
) -> None:
    """A hundred of them, while the worker takes nothing: no thread is held until a deadline, no mark is left."""
    serve("a", "light-1")
    fleet.send("light-1", signal.SIGSTOP)
    counted = 'assay_http_disconnects_total{lane="waiting"}'
    before, calls_before = web.metric(counted), calls_in_flight()
    with ThreadPoolExecutor(20) as pool:
        for _ in range(5):
            list(pool.map(lambda _: hang_up(web, client, "a"), range(20)))
            wait_for(lambda: web.metric('assay_http_in_flight{lane="waiting"}') == 0, what="the end of all requests")
    assert web.metric(counted) - before == 100
    assert web.metric('assay_sync_in_flight{model="a"}') == 0
    assert not calls_in_flight() - calls_before
    # Those that had not reached a thread left nothing at all; the others say how they ended.
    assert set(ScoreRequest.objects.values_list("status_code", "error_code")) <= {(499, "client_left")}
    fleet.send("light-1", signal.SIGCONT)
    assert rerank(client, "a").status_code == 200
    wait_for(lambda: not dispatch.connection().llen(dispatch.worker_queue(fleet.ids["light-1"])), what="an empty queue")
    assert fleet.count("light-1", "taken") == 1


def test_a_hung_model_leaves_the_others_the_rest(
    web: WebProcess, fleet: LightFleet, serve: Serve, client: httpx.Client
) -> None:
    serve("hung", "light-1"), serve("well", "light-2")
    fleet.tell("light-1", "wait")
    with ThreadPoolExecutor(THREADS) as pool:
        waiting = [pool.submit(rerank, client, "hung", FOREVER) for _ in range(THREADS)]
        wait_for(lambda: fleet.count("light-1", "taken") == SHARE, what="all that it may have")
        fleet.send("light-1", signal.SIGSTOP)
        wait_for(lambda: sum(one.done() for one in waiting) == THREADS - SHARE, what="the refusals")
        refused = [one.result() for one in waiting if one.done()]
        assert {one.status_code for one in refused} == {429}
        assert {one.json()["error"]["code"] for one in refused} == {"overloaded"}
        assert all(int(one.headers["Retry-After"]) >= 1 for one in refused)
        assert web.metric('assay_sync_refused_total{reason="model_share"}') >= len(refused)
        for _ in range(3):
            assert rerank(client, "well").status_code == 200
            assert client.get("/livez").status_code == client.get("/readyz").status_code == 200
            assert client.get("/admin/login/").status_code == 200
        assert web.metric('assay_sync_in_flight{model="hung"}') == SHARE
        fleet.tell("light-1", "answer")
        fleet.send("light-1", signal.SIGCONT)
        assert sorted(one.result().status_code for one in waiting) == [200] * SHARE + [429] * (THREADS - SHARE)


def test_asked_to_stop_it_ends_what_it_has_and_takes_nothing_more(
    fleet: LightFleet, serve: Serve, principal: Principal, tmp_path: Path
) -> None:
    """Two processes behind one address; each drains by itself."""
    serve("a", "light-1")
    fleet.tell("light-1", "wait")
    _, secret = token_create(team=principal.team, name="drain", scopes=list(ALL_SCOPES))
    bearer = {"Authorization": f"Bearer {secret}"}
    with (
        web_process(tmp_path, processes=2, WEB_THREADS=str(THREADS)) as web,
        ThreadPoolExecutor(16) as pool,
        httpx.Client(base_url=web.url, headers=bearer, timeout=90) as client,
    ):
        # Connections of their own spread over the processes.
        waiting = [
            pool.submit(rerank, httpx.Client(base_url=web.url, headers=bearer, timeout=90), "a", FOREVER)
            for _ in range(16)
        ]
        wait_for(lambda: fleet.count("light-1", "taken") == 16, what="all requests with the worker")
        # Whichever process is asked, it answers for both.
        assert {web.metric('assay_sync_in_flight{model="a"}') for _ in range(8)} == {16}
        assert client.get("/readyz").status_code == 200
        web.process.send_signal(signal.SIGTERM)
        wait_for(lambda: client.get("/readyz").status_code == 503, what="the news that it stops")
        assert client.get("/readyz").json()["parts"]["process"].startswith("This process stops")
        assert client.get("/livez").status_code == 200
        refused = rerank(client, "a")
        assert (refused.status_code, refused.json()["error"]["code"]) == (503, "shutting_down")
        assert refused.headers["Connection"] == "close"
        assert int(refused.headers["Retry-After"]) >= 1
        fleet.tell("light-1", "answer")
        assert {one.result().status_code for one in waiting} == {200}
        assert web.process.wait(30) == 0


def test_whoever_waits_longer_than_the_process_may_is_told_so(
    fleet: LightFleet, serve: Serve, principal: Principal, tmp_path: Path
) -> None:
    serve("a", "light-1")
    fleet.tell("light-1", "wait")
    _, secret = token_create(team=principal.team, name="patient", scopes=list(ALL_SCOPES))
    with (
        web_process(tmp_path, WEB_THREADS=str(THREADS), DRAIN_SECONDS="1") as web,
        ThreadPoolExecutor(4) as pool,
        httpx.Client(base_url=web.url, headers={"Authorization": f"Bearer {secret}"}, timeout=90) as client,
    ):
        waiting = [pool.submit(rerank, client, "a", FOREVER) for _ in range(4)]
        wait_for(lambda: fleet.count("light-1", "taken") == 4, what="all requests with the worker")
        web.process.send_signal(signal.SIGTERM)
        answers = [one.result() for one in waiting]
        assert {(one.status_code, one.json()["error"]["code"]) for one in answers} == {(503, "shutting_down")}
        assert web.process.wait(30) == 0


def test_event_streams_hold_neither_threads_nor_connections(
    web: WebProcess,
    fleet: LightFleet,
    client: httpx.Client,
    model: ScoringModel,
    make_job: MakeJob,
    principal: Principal,
) -> None:
    job = make_job(model)
    address, heads = f"{web.url}/api/v1/jobs/{job.pk}/events", {**client.headers, "Accept": "text/event-stream"}
    client.get("/readyz")
    streams = PAGE_THREADS * 3
    before = connections_open()
    with ThreadPoolExecutor(streams + 1) as pool:
        reading = [pool.submit(stream_read, address, heads) for _ in range(streams)]
        wait_for(lambda: web.metric('assay_http_in_flight{lane="streams"}') == streams, what="all streams")
        assert (
            connections_open() <= before + PAGE_THREADS + 1
        )  # threads that authenticated them, and the one that looks
        assert client.get(f"/api/v1/jobs/{job.pk}").status_code == 200
        token, secret = token_create(team=job.team, name="short-lived", scopes=["jobs"])
        own = {"Accept": heads["Accept"], "Authorization": f"Bearer {secret}"}
        cut_off = pool.submit(stream_read, address, own)
        wait_for(lambda: web.metric('assay_http_in_flight{lane="streams"}') == streams + 1, what="one more stream")
        token_revoke(token=token)
        assert "event: end" not in cut_off.result(timeout=30)
        job_cancel(principal=principal, job=job)
        jobs_stop_finish()
        jobs_advance()
        texts = {one.result(timeout=60) for one in reading}
    assert len(texts) == 1
    (text,) = texts
    assert text.startswith("retry: 1000")
    assert text.endswith('event: end\ndata: {"state":"cancelled"}\n\n')
    numbers = [int(line.removeprefix("id: ")) for line in text.splitlines() if line.startswith("id: ")]
    assert numbers == list(Transition.objects.filter(job=job).order_by("pk").values_list("pk", flat=True))
    # From an event on; one stream is told apart from what is no stream by its Accept alone.
    rest = stream_read(address, {**heads, "Last-Event-ID": str(numbers[-2])})
    assert [line for line in rest.splitlines() if line.startswith("id: ")] == [f"id: {numbers[-1]}"]
    wrong = httpx.get(address, headers={**heads, "Last-Event-ID": "x"})
    assert (wrong.status_code, wrong.json()["error"]["code"]) == (422, "bad_last_event_id")
    stranger = httpx.get(address.replace(str(job.pk), str(model.pk)), headers=heads)
    assert (stranger.status_code, stranger.headers["Content-Type"]) == (404, "application/json")


def stream_read(address: str, headers: dict[str, str]) -> str:
    with httpx.stream("GET", address, headers=headers, timeout=60) as response:
        assert response.headers["Content-Type"] == "text/event-stream"
        return response.read().decode()


def connections_open() -> int:
    with connection.cursor() as cursor:
        cursor.execute("SELECT count(*) FROM pg_stat_activity WHERE datname = current_database()")
        return int(cursor.fetchone()[0])

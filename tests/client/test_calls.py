"""What calls do when the server refuses, is slow, or is not there; and that both clients are one."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import anyio
import pytest

from assay.client import (
    ApiError,
    AsyncClient,
    Client,
    ClientError,
    ConfigurationError,
    NotFoundError,
    RateLimitError,
    UnavailableError,
    UnreachableError,
    WaitTimeoutError,
)
from assay.client.config import Target, config_write
from assay.client.flows import Resource, listing, operation
from assay.supervisor import free_port
from tests.client.answers import Answer, Scripted, scripted

ROOT = Path(__file__).resolve().parents[2]
TOKEN = "assay_tests_secret"
BUSY = Answer(429, {"error": {"message": "Too much.", "code": "too_many", "param": None, "request_id": "r1"}})
FULL = Answer(503, {"error": {"message": "No worker.", "code": "no_worker"}}, {"Retry-After": "7"})
RANKED = Answer(200, {"results": []})


@pytest.fixture
def server() -> Iterator[Scripted]:
    with scripted() as server:
        yield server


@pytest.fixture
def client(server: Scripted) -> Iterator[Client]:
    with Client(server.url, TOKEN, timeout=30) as client:
        yield client


@pytest.fixture
def pauses(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """How long the client would have slept."""
    pauses: list[float] = []
    monkeypatch.setattr("assay.client.sessions.time.sleep", pauses.append)
    return pauses


def test_it_needs_neither_django_nor_the_platform_s_settings() -> None:
    code = """
import sys
class Missing:
    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] in ("django", "rest_framework", "celery", "torch", "numpy") or name == "assay.settings":
            raise ImportError(name)
sys.meta_path.insert(0, Missing())
import assay.client, assay.cli.app
"""
    result = subprocess.run([sys.executable, "-c", code], cwd=ROOT / "platform", capture_output=True, text=True)
    assert result.returncode == 0, result.stderr


def test_what_is_refused_for_now_is_asked_again(client: Client, server: Scripted, pauses: list[float]) -> None:
    server.say(BUSY, FULL, Answer(0), RANKED)
    assert client.rerank("q", ["d"])["results"] == []
    assert len(server.asked) == 4 and {asked.body for asked in server.asked} == {server.asked[0].body}
    assert 0 < pauses[0] < 1 and 7 < pauses[1] < 8


def test_it_gives_up_in_the_end_and_says_what_it_was_told(
    client: Client, server: Scripted, pauses: list[float]
) -> None:
    server.say(*[BUSY] * 4)
    with pytest.raises(RateLimitError) as raised:
        client.rerank("q", ["d"])
    error = raised.value
    assert (error.status, error.code, error.message, error.request_id) == (429, "too_many", "Too much.", "r1")
    server.say(Answer(503, None, {"Retry-After": "900"}))
    with pytest.raises(UnavailableError) as later:
        client.rerank("q", ["d"])
    assert (later.value.retry_after, later.value.code, len(pauses)) == (900, "http_503", 3)


def test_a_job_is_made_once_however_often_it_is_asked_for(
    client: Client, server: Scripted, pauses: list[float]
) -> None:
    server.say(Answer(0), FULL, Answer(201, {"id": "j"}))
    client.jobs.create("d", "q")
    client_keys = {asked.headers["Idempotency-Key"] for asked in server.asked}
    assert len(server.asked) == 3 and len(client_keys) == 1 and len(client_keys.pop()) == 36


def test_what_takes_too_long_is_not_asked_twice(server: Scripted, pauses: list[float]) -> None:
    server.say(Answer(0, slow=True))
    with Client(server.url, TOKEN, timeout=0.1) as client, pytest.raises(UnreachableError):
        client.rerank("q", ["d"])
    assert (len(server.asked), pauses) == (1, [])


def test_what_may_not_be_repeated_is_not(client: Client, server: Scripted, pauses: list[float]) -> None:
    server.say(Answer(0))
    with pytest.raises(UnreachableError):
        client.models.register("m", "s")
    assert (len(server.asked), pauses) == (1, [])


def test_pages_are_followed_on_the_same_server(client: Client, server: Scripted) -> None:
    found = [{"id": "1"}, {"id": "2"}, {"id": "3"}]
    elsewhere = "http://elsewhere.example/api/v1/jobs?state=failed&state=expired&cursor=cD0x"
    server.say(
        Answer(200, {"results": found[:2], "next": elsewhere}),
        Answer(200, {"results": found[2:], "next": None}),
    )
    assert [job["id"] for job in client.jobs.list(state=["failed", "expired"])] == ["1", "2", "3"]
    assert server.asked[1].path == "/api/v1/jobs?state=failed&state=expired&cursor=cD0x"


def test_a_redirect_is_not_followed_with_the_token(client: Client, server: Scripted) -> None:
    server.say(Answer(302, None, {"Location": f"{server.url}/elsewhere"}))
    with pytest.raises(ApiError) as raised:
        client.cards()
    assert (raised.value.status, len(server.asked)) == (302, 1)


def test_a_wait_outlives_a_restart_of_the_server(client: Client, server: Scripted, pauses: list[float]) -> None:
    progress = {"state": "running", "progress": {}}
    server.say(Answer(200, progress), *[Answer(0)] * 4, *[FULL] * 4, Answer(200, {**progress, "state": "completed"}))
    seen: list[str] = []
    assert client.jobs.wait("j", on_progress=lambda job: seen.append(job["state"]))["state"] == "completed"
    assert seen == ["running", "completed"]
    server.say(Answer(200, progress))
    with pytest.raises(WaitTimeoutError):
        client.jobs.wait("j", seconds=0)


def test_an_export_is_asked_for_waited_for_fetched_and_deleted(
    client: Client, server: Scripted, pauses: list[float], tmp_path: Path
) -> None:
    waiting, done = {"id": "e", "state": "waiting", "error": ""}, {"id": "e", "state": "done", "error": ""}
    server.say(Answer(201, waiting), Answer(200, waiting), Answer(200, done), Answer(200, [7]), Answer(204))
    assert client.exports.save("documents", tmp_path / "out", format="jsonl", set="s")["state"] == "done"
    assert (tmp_path / "out").read_bytes() == b"[7]" and len(list(tmp_path.iterdir())) == 1
    assert [asked.method for asked in server.asked] == ["POST", "GET", "GET", "GET", "DELETE"]
    assert b'"parameters":{"set":"s"}' in server.asked[0].body.replace(b": ", b":")
    server.say(Answer(201, waiting), Answer(200, {**done, "state": "failed", "error": "No room."}))
    with pytest.raises(ClientError, match=r"documents failed: No room\."):
        client.exports.save("documents", tmp_path / "none")


def test_a_broken_export_leaves_nothing(client: Client, server: Scripted, tmp_path: Path) -> None:
    server.say(Answer(404, {"error": {"message": "There is no such job.", "code": "not_found"}}))
    with pytest.raises(NotFoundError):
        client.jobs.export("j", tmp_path / "out.jsonl")
    assert list(tmp_path.iterdir()) == []


def test_the_token_shows_nowhere(client: Client, server: Scripted) -> None:
    server.say(Answer(401, {"error": {"message": "No.", "code": "invalid_token"}}))
    with pytest.raises(ApiError) as raised:
        client.cards()
    assert server.asked[0].headers["Authorization"] == f"Bearer {TOKEN}"
    shown = f"{client!r} {raised.value!r} {vars(raised.value)} {Target(server.url, TOKEN)!r}"
    assert TOKEN not in shown


def test_a_stored_token_goes_to_its_own_server_only(
    server: Scripted, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config_write(Target(server.url, TOKEN))
    with Client() as client:
        assert client.url == server.url
    monkeypatch.setenv("ASSAY_URL", "http://elsewhere.example")
    with pytest.raises(ConfigurationError, match=r"elsewhere\.example"):
        Client()


def test_nobody_there() -> None:
    with Client(f"http://127.0.0.1:{free_port()}", TOKEN, retries=0) as client, pytest.raises(UnreachableError):
        client.cards()


def calls_of(resource: Resource[Any], prefix: str = "") -> set[str]:
    found = set()
    for name, value in _members(resource):
        if isinstance(value, Resource):
            found |= calls_of(value, f"{prefix}{name}.")
        elif isinstance(value, operation | listing):
            found.add(prefix + name)
    return found


def _members(resource: Resource[Any]) -> list[tuple[str, Any]]:
    """Class attributes as they are, descriptors unbound, and the resources below."""
    attributes = {name: value for each in reversed(type(resource).__mro__) for name, value in vars(each).items()}
    return [*attributes.items(), *((name, value) for name, value in vars(resource).items() if name != "_session")]


def test_both_clients_have_the_same_calls() -> None:
    blocking, asynchronous = Client("http://x", TOKEN), AsyncClient("http://x", TOKEN)
    calls = calls_of(blocking)
    assert calls == calls_of(asynchronous)
    assert {"rerank", "jobs.wait", "document_sets.upload", "models.register", "workers.list"} <= calls
    blocking.close()
    anyio.run(asynchronous.aclose)


def test_the_asynchronous_client_does_the_same(server: Scripted, tmp_path: Path) -> None:
    file = tmp_path / "documents.csv"
    file.write_text("id,text\n1,a\n")

    async def use() -> list[Any]:
        async with AsyncClient(server.url, TOKEN) as client:
            ranked = await client.rerank("q", ["d"])
            jobs = [job["id"] async for job in client.jobs.list()]
            uploaded = await client.document_sets.upload(file)
            await client.jobs.export("j", tmp_path / "out")
            return [ranked, jobs, uploaded]

    page = Answer(200, {"results": [{"id": 1}], "next": f"{server.url}/?cursor=x"})
    last = Answer(200, {"results": [{"id": 2}], "next": None})
    server.say(Answer(429, None, {"Retry-After": "0"}), RANKED, page, last, Answer(201, {"id": "s"}), Answer(200, [7]))
    assert anyio.run(use) == [{"results": []}, [1, 2], {"id": "s"}]
    assert b"1,a" in server.asked[4].body and (tmp_path / "out").read_bytes() == b"[7]"

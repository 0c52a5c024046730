"""Running web processes: no letter of a secret comes back or stays anywhere, and what is revoked is so everywhere."""

from __future__ import annotations

import re
import subprocess
import time
import uuid
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import httpx
import psycopg
import pytest

from assay.kept import FRESH_SECONDS
from assay.settings import env
from assay.supervisor import free_port, web_command
from assay.token_form import SECRET_LENGTH
from tests.integration.rig import wait_for
from tests.stack import Stack

pytestmark = pytest.mark.stack
WINDOW = 6  # letters of a secret that no text has by accident: 62 ** 6 is 57 billion


@contextmanager
def web(environment: dict[str, str], log: Path) -> Iterator[str]:
    """One more web process on the stack's servers: its address."""
    port = free_port()
    with log.open("wb") as output:
        process = subprocess.Popen(
            web_command("127.0.0.1", port, 2), env=env.for_child(environment), stdout=output, stderr=output
        )
    address = f"http://127.0.0.1:{port}"

    def answers() -> bool:
        try:
            return httpx.get(f"{address}/livez").is_success
        except httpx.TransportError:
            return False

    try:
        wait_for(answers, what="the web process", seconds=60)
        yield address
    finally:
        process.terminate()
        process.wait(30)


def made(client: httpx.Client, **limits: Any) -> dict[str, Any]:
    answer = client.post("/api/v1/tokens", json={"name": f"t-{uuid.uuid4()}", "scopes": ["score", "jobs"], **limits})
    assert answer.status_code == 201, answer.text
    token: dict[str, Any] = answer.json()
    return token


def test_a_change_counts_in_every_web_process_within_a_second(stack: Stack, tmp_path: Path) -> None:
    with web(stack.environment, tmp_path / "second.log") as second:
        token = made(stack.client)
        headers = {"Authorization": f"Bearer {token['secret']}"}
        address = f"/api/v1/tokens/{token['id']}"
        with httpx.Client(base_url=second, headers=headers) as other:

            def status() -> int:
                time.sleep(2 * FRESH_SECONDS)
                return other.get("/api/v1/jobs").status_code

            statuses, networks = [status()], "allowed_networks"
            for field, value in (("scopes", "score"), ("scopes", "jobs"), (networks, "192.0.2.0/24"), (networks, None)):
                change = {field: [value] if value else []}
                assert stack.client.patch(address, json=change).is_success
                statuses.append(status())
            assert stack.client.post(f"{address}/revoke").is_success
            statuses.append(status())
    assert statuses == [200, 403, 200, 403, 200, 401]


def failing(client: httpx.Client, secret: str) -> Iterator[httpx.Response]:
    """Everywhere a token may be put by mistake, on paths that fail and on some that do not."""
    bearer = {"Authorization": f"Bearer {secret}"}
    for header in (
        f"Bearer: {secret}", f"Bearer  {secret}", f"bearer {secret}x", f"Bearer {secret[:-1]}", f"Token {secret}",
        f"Bearer {secret} {secret}", f'Bearer "{secret}"', secret, f"Basic {secret}", f"Bearer\t{secret}",
    ):  # fmt: skip
        yield client.get("/v1/models", headers={"Authorization": header})
    for path in (
        f"/v1/models/{secret}",
        f"/api/v1/models/{secret}",
        f"/{secret}",
        f"/jobs/{secret}/",
        f"/static/{secret}",
    ):
        yield client.get(path, headers=bearer)
        yield client.get(path, headers={"Accept": "text/html"})
    quoted = "".join(f"%{ord(letter):02x}" for letter in secret)
    for query in (
        f"token={secret}",
        f"access_token={quoted}",
        f"name={secret}&page_size=1",
        f"cursor={secret}",
        secret,
    ):
        yield client.get(f"/api/v1/jobs?{query}", headers=bearer)
        yield client.get(f"/accounts/login/?{query}", headers={"Accept": "text/html"})
    for name in ("X-Request-Id", "X-Timeout-Ms", "Idempotency-Key", "User-Agent", "X-Api-Key", "Origin", "Referer"):
        yield client.post("/rerank", json={"query": "q", "documents": []}, headers={**bearer, name: secret})
        yield client.post("/api/v1/jobs", json={"model": "x"}, headers={**bearer, name: secret})
    yield client.get("/v1/models", headers={"Cookie": f"assay_session={secret}; csrftoken={secret}"})
    bodies: list[dict[str, Any]] = [
        {secret: 1}, {"model": secret, "query": "q", "documents": ["d"]}, {"query": secret, "documents": []},
        {"query": "q", "documents": ["d"], "top_n": secret}, {"query": "q", "documents": {"text": secret}, "top_n": 0},
        {"query": "q", "documents": ["d"], "truncation": secret}, {"query": f"{secret}\0", "documents": ["d"]},
        {"query": "q", "documents": ["d"], "rank_fields": secret},
        {"query": "q", "documents": [{secret: {}}], "top_n": 0},
    ]  # fmt: skip
    for body in bodies:
        yield client.post("/rerank", json=body, headers=bearer)
    bodies = [
        {"document_set": secret, "query_set": secret, "model": secret}, {"name": secret},
        {"stages": [{"method": secret}]},
        {"start_at": secret}, {"priority": secret},
    ]  # fmt: skip
    for body in bodies:
        yield client.post("/api/v1/jobs", json=body, headers=bearer)
    for text in (f'{{"query": "{secret}"', f'{{"query": {secret}}}', secret, f"\ud83d{secret}"):
        content = text.encode("utf-8", "surrogatepass")
        yield client.post("/rerank", content=content, headers={**bearer, "Content-Type": "application/json"})
        yield client.post("/rerank", content=content, headers={**bearer, "Content-Type": f"text/{secret}"})
    file = (f"{secret}.csv", f"id,text\n1,{uuid.uuid4()}\n".encode())
    for fields in ({}, {"name": f"set {secret}"}, {"mapping": secret}, {secret: "x"}):
        yield client.post("/api/v1/document-sets", files={"file": file}, data=fields, headers=bearer)
    yield client.post("/api/v1/document-sets", files={"file": (secret, b"")}, headers=bearer)
    form = {"username": secret, "password": secret}
    yield client.post("/accounts/login/", data=form)
    yield client.request("REPORT", f"/api/v1/jobs#{secret}", headers=bearer)


def leaks(text: str, secrets: list[str]) -> list[str]:
    """Every piece of a secret behind its prefix that stands in ``text``."""
    found = []
    for secret in secrets:
        prefix, tail = secret[:-SECRET_LENGTH], secret[-SECRET_LENGTH:]
        found += re.findall(f".{{0,80}}{prefix}[0-9a-zA-Z]+.{{0,40}}", text)
        found += [piece for at in range(SECRET_LENGTH - WINDOW + 1) if (piece := tail[at : at + WINDOW]) in text]
    return found


def test_no_letter_of_a_secret_is_repeated_or_kept(stack: Stack, tmp_path: Path) -> None:
    live, revoked = made(stack.client), made(stack.client)
    assert stack.client.post(f"/api/v1/tokens/{revoked['id']}/revoke").is_success
    secrets = [token["secret"] for token in (live, revoked)]
    broken = dict(stack.environment, DATABASE_URL=urlsplit(stack.database_url)._replace(path="/nowhere").geturl())
    statuses = []
    broken_log = tmp_path / "broken.log"
    with web(broken, broken_log) as failing_address:
        for address in (stack.base_url, failing_address):
            for secret in secrets:
                with httpx.Client(base_url=address, timeout=60) as client:
                    for answer in failing(client, secret):
                        said = f"{answer.headers} {answer.text}"
                        assert leaks(said, secrets) == [], (answer.request.method, answer.request.url, said)
                        statuses.append(answer.status_code)
    assert {200, 201, 400, 401, 403, 404, 415, 422, 500} <= set(statuses), sorted(set(statuses))
    logs = {path.name: path.read_text(errors="replace") for path in stack.platform.log_path("web").parent.glob("*.log")}
    logs["broken"] = broken_log.read_text(errors="replace")
    assert "Traceback" in logs["broken"] and live["prefix"] in logs["web.log"]
    assert {name: found for name, log in logs.items() if (found := leaks(log, secrets))} == {}
    assert leaks(stack.client.get("/metrics").text, secrets) == []
    for table, rows in tables(stack.database_url):
        assert leaks(rows, secrets) == [], table


def tables(database_url: str) -> Iterator[tuple[str, str]]:
    """Every table of the database as text."""
    with closing(psycopg.connect(database_url)) as connection:
        names = connection.execute("SELECT tablename FROM pg_tables WHERE schemaname = 'public'").fetchall()
        for (name,) in names:
            rows = connection.execute(f'SELECT "{name}"::text FROM "{name}"').fetchall()
            yield name, "\n".join(row[0] for row in rows)

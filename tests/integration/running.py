"""What tests of the running platform do over and over: register, submit, look into the database, wait."""

from __future__ import annotations

import json
from typing import Any

import httpx
import numpy as np
import numpy.typing as npt
import psycopg

from scoring.services.bundled import MINILM
from tests.integration.rig import wait_for

WORDS = [
    "river",
    "rain",
    "bridge",
    "honey",
    "bees",
    "hive",
    "nectar",
    "engine",
    "piston",
    "valve",
    "bread",
    "dough",
    "oven",
    "yeast",
    "violin",
    "string",
    "bow",
]
FINAL = ("completed", "completed_with_errors", "cancelled", "failed")
LOOK_SECONDS = 0.25  # each look is work for the web server, on the cores that the waited-for workers need


def checked(response: httpx.Response) -> dict[str, Any]:
    assert response.is_success, f"{response.request.url}: {response.status_code} {response.text}"
    answer: dict[str, Any] = response.json()
    return answer


def registered(client: httpx.Client, name: str, **fields: Any) -> str:
    """A late-interaction model over MiniLM in float32, served when this returns."""
    body = {"name": name, "kind": "late-interaction", "source": MINILM, "dtype": "float32", **fields}
    response = client.post("/api/v1/models", json=body)
    assert response.status_code in (201, 409), response.text

    def state() -> str:
        return str(checked(client.get(f"/api/v1/models/{name}"))["state"])

    settled = ("available", "rejected")
    wait_for(lambda: state() in settled, seconds=300, what=f"the self-test of {name}", every=LOOK_SECONDS)
    assert state() == "available"
    return name


def text(number: int, length: int) -> str:
    return " ".join(WORDS[(number * 7 + step * (number % 5 + 1)) % len(WORDS)] for step in range(length))


def submitted(
    client: httpx.Client, model: str, *, chunks: int, length: int = 60, queries: int = 8, distinct: bool = False
) -> dict[str, Any]:
    """A job of that many chunks: 64 documents each, of ``length`` words. Few of them differ, and what is known need not
    be encoded, unless they are to be ``distinct``."""
    texts = [text(n, length) + (f" {n}" if distinct else "") for n in range(64 * chunks)]
    return submitted_texts(client, model, documents=texts, queries=[text(3 * n + 1, 5) for n in range(queries)])


def submitted_texts(client: httpx.Client, model: str, *, documents: list[str], queries: list[str]) -> dict[str, Any]:
    """A job over these texts, whose ids are their places."""
    sets = {}
    for kind, texts in (("document", documents), ("query", queries)):
        content = "".join(json.dumps({"id": n, "text": each}) + "\n" for n, each in enumerate(texts))
        upload = client.post(
            f"/api/v1/{kind}-sets",
            files={"file": (f"{kind}.jsonl", content.encode())},
            data={"name": f"{kind} {len(texts)}", "use_existing": "true"},
        )
        sets[f"{kind}_set"] = checked(upload)["id"]
    return checked(client.post("/api/v1/jobs", json={"model": model, **sets}))


def finished(client: httpx.Client, job: dict[str, Any], *, seconds: float = 180) -> dict[str, Any]:
    path, what = f"/api/v1/jobs/{job['id']}", f"the end of job {job['id']}"
    wait_for(lambda: checked(client.get(path))["state"] in FINAL, seconds=seconds, what=what, every=LOOK_SECONDS)
    return checked(client.get(path))


class Rows:
    """The stack's database, looked at from outside."""

    def __init__(self, database_url: str) -> None:
        self._connection = psycopg.connect(database_url, autocommit=True)

    def __call__(self, sql: str, *parameters: Any) -> list[tuple[Any, ...]]:
        return self._connection.execute(sql, parameters).fetchall()

    def chunks_in(self, job: dict[str, Any], state: str) -> list[int]:
        found = self(
            "SELECT index FROM scoring_chunk WHERE job_id = %s AND state = %s ORDER BY index", job["id"], state
        )
        return [index for (index,) in found]

    def scores(self, job: dict[str, Any]) -> npt.NDArray[np.float32]:
        """Every stored score of a job of one stage: a row per query, a column per document, however it was cut."""
        places = "query_start, query_count, document_start, document_count, raw_scores"
        found = self(f"SELECT {places} FROM scoring_chunk WHERE job_id = %s", job["id"])
        queries = max(row[0] + row[1] for row in found)
        documents = max(row[2] + row[3] for row in found)
        grid = np.full((queries, documents), np.nan, np.float32)
        for query, query_count, document, document_count, raw in found:
            block = np.frombuffer(raw, "<f4").reshape(query_count, document_count)
            grid[query : query + query_count, document : document + document_count] = block
        return grid

    def alive(self) -> list[str]:
        found = self(
            "SELECT name FROM scoring_worker "
            "WHERE state = 'ready' AND heartbeat_at > now() - interval '3 s' ORDER BY name"
        )
        return [name for (name,) in found]

    def close(self) -> None:
        self._connection.close()

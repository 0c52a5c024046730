"""`POST /api/v1/document-sets/{id}/rank`: a query against all documents of a stored set, encoded before."""

from __future__ import annotations

import json
import time
from typing import Any, Final

from house import MINILM, House
from load import Target, load, summary
from texts import Texts

CLIENTS: Final = (1, 16)
ENCODE_SECONDS: Final = 900


def rank(house: House, texts: Texts, *, seconds: float, rounds: int) -> dict[str, Any]:
    house.model("late-set", kind="late-interaction", source=MINILM)
    lines = "\n".join(json.dumps({"id": str(n), "text": text}) for n, text in enumerate(texts.documents))
    made = house.client.post(
        "/api/v1/document-sets", files={"file": ("documents.jsonl", lines.encode())}, data={"name": "cranfield"}
    )
    if made.is_error:
        raise SystemExit(f"The set was refused: {made.status_code} {made.text[:500]}")
    path = f"/api/v1/document-sets/{made.json()['id']}/rank"
    house.until(f"document-sets/{made.json()['id']}", lambda found: found["state"] == "ready")
    bodies = [{"model": "late-set", "query": query, "top_n": 10} for query in texts.queries]
    target = Target(house.url, path, house.token)
    requests = [target.request(body) for body in bodies]
    if not _warm(house, path, bodies[0]):
        return {"rank": None}
    found = {}
    for clients in CLIENTS:
        heard = [
            load(house.url, lambda n: requests[n % len(requests)], clients=clients, seconds=seconds)
            for _ in range(rounds)
        ]
        found[f"rank_{clients}"] = summary(heard)
        print(f"rank, {len(texts.documents)} documents, {clients:2} clients: {found[f'rank_{clients}']}", flush=True)
    return found


def _warm(house: House, path: str, body: dict[str, Any]) -> bool:
    """Whether it is answered, once the documents are encoded."""
    give_up = time.monotonic() + ENCODE_SECONDS
    while not (answer := house.client.post(path, json=body)).is_success:
        if answer.status_code not in (409, 429, 503, 504) or time.monotonic() > give_up:
            print(f"rank: not measured, {path} answers {answer.status_code} {answer.text[:300]}")
            return False
        time.sleep(1)
    return True

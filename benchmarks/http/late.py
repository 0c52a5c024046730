"""Warm late interaction: 100 cached documents for a query that is new each time, beside encoding that query alone."""

from __future__ import annotations

from typing import Any, Final

from house import MINILM, House
from load import Heard, Target, load, summary
from texts import Texts

DOCUMENTS: Final = 100


def late(house: House, texts: Texts, *, seconds: float, rounds: int) -> dict[str, Any]:
    """``over_query_ms``: what the rerank takes longer than a request for the token vectors of its query."""
    house.model("late-100", kind="late-interaction", source=MINILM)
    documents = list(texts.documents[:DOCUMENTS])
    rerank, pooling = (Target(house.url, path, house.token) for path in ("/rerank", "/pooling"))
    kept = {"model": "late-100", "documents": documents, "return_documents": False}
    asks = {
        "rerank": [rerank.request({**kept, "query": f"{query} {n}"}) for n, query in enumerate(texts.queries)],
        "query": [
            pooling.request({"model": "late-100", "task": "token_embed", "input": f"{query} {n}"})
            for n, query in enumerate(texts.queries)
        ],
    }
    house.warm("/rerank", {**kept, "query": "warm"})
    heard: dict[str, list[Heard]] = {name: [] for name in asks}
    for number in range(rounds):
        for name, requests in asks.items():
            first = number * 1000
            heard[name].append(
                load(house.url, lambda n: requests[(first + n) % len(requests)], clients=1, seconds=seconds)  # noqa: B023
            )
    found = {name: summary(each) for name, each in heard.items()}
    found["over_query_ms"] = round(found["rerank"]["p50_ms"] - found["query"]["p50_ms"], 2)  # type: ignore[assignment]
    print(f"late, {DOCUMENTS} cached documents: {found}", flush=True)
    return {"late": found}

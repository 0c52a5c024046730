"""Warm late interaction: 100 cached documents for a query that is new each time, beside encoding that query alone."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from typing import Any, Final

from house import MINILM, House
from load import Heard, Target, load, summary
from texts import Texts

DOCUMENTS: Final = 100
NUMBER: Final = "00000000"  # stands in a request where its own number goes


def late(house: House, texts: Texts, *, seconds: float, rounds: int) -> dict[str, Any]:
    """``over_query_ms``: what the rerank takes longer than a request for the token vectors of its query."""
    house.model("late-100", kind="late-interaction", source=MINILM)
    documents = list(texts.documents[:DOCUMENTS])
    rerank, pooling = (Target(house.url, path, house.token) for path in ("/rerank", "/pooling"))
    kept = {"model": "late-100", "documents": documents, "return_documents": False}
    bodies = {
        "rerank": lambda query: rerank.request({**kept, "query": query}),
        "query": lambda query: pooling.request({"model": "late-100", "task": "token_embed", "input": query}),
    }
    asks = {name: [make(f"{query} {NUMBER}") for query in texts.queries] for name, make in bodies.items()}
    house.warm("/rerank", {**kept, "query": "warm"})
    heard: dict[str, list[Heard]] = {name: [] for name in asks}
    numbers = itertools.count()
    for _ in range(rounds):
        for name, requests in asks.items():
            heard[name].append(load(house.url, _new(requests, numbers), clients=1, seconds=seconds))
    found = {name: summary(each) for name, each in heard.items()}
    found["over_query_ms"] = round(found["rerank"]["p50_ms"] - found["query"]["p50_ms"], 2)  # type: ignore[assignment]
    print(f"late, {DOCUMENTS} cached documents: {found}", flush=True)
    return {"late": found}


def _new(requests: list[bytes], numbers: Iterator[int]) -> Callable[[int], bytes]:
    """Each with a number of its own in its query, so that no query is found in a cache."""

    def request(_: int) -> bytes:
        number = next(numbers)
        return requests[number % len(requests)].replace(NUMBER.encode(), f"{number:08}".encode(), 1)

    return request

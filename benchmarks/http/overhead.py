"""What web, queue and reply cost: a warm request whose engine time is next to nothing."""

from __future__ import annotations

from typing import Any

from house import MINILM, House
from load import Target, load, summary

CLIENTS = (1, 64)


def overhead(house: House, *, seconds: float, rounds: int) -> dict[str, Any]:
    """One cached document in late interaction. ``cpu_ms`` is each part's user and system time for one request."""
    house.model("late", kind="late-interaction", source=MINILM)
    body = {"model": "late", "query": "honey", "documents": ["bees make honey"]}
    request = Target(house.url, "/rerank", house.token).request(body)
    house.warm("/rerank", body)
    load(house.url, lambda _: request, clients=max(CLIENTS), seconds=1)
    found: dict[str, Any] = {}
    for clients in CLIENTS:
        before, heard = house.cpu_seconds(), []
        for _ in range(rounds):
            heard.append(load(house.url, lambda _: request, clients=clients, seconds=seconds))
        answered = sum(sum(each.statuses.values()) for each in heard)
        spent = {name: 1000 * (now - before[name]) / answered for name, now in house.cpu_seconds().items()}
        figures = {**summary(heard), "cpu_ms": {name: round(each, 2) for name, each in spent.items()}}
        print(f"overhead, {clients:2} clients: {figures}", flush=True)
        found[f"overhead_{clients}"] = figures
    return found

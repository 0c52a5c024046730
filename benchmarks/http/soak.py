"""Minutes of mixed traffic at nine tenths of what this machine can do: nothing is refused, and nothing grows."""

from __future__ import annotations

import threading
from typing import Any, Final

from house import MINILM, House
from load import Heard, Target, load, summary
from texts import Texts

CLIENTS: Final = 8
SHARE: Final = 0.9
WARM_SECONDS: Final = 20.0


def soak(house: House, texts: Texts, *, minutes: float) -> dict[str, Any]:
    """Memory (MiB by part) and connections of PostgreSQL once it is warm and at the end."""
    house.model("soak-late", kind="late-interaction", source=MINILM)
    house.model("soak-dense", kind="bi-encoder", source=MINILM)
    rerank, embed = (Target(house.url, path, house.token) for path in ("/rerank", "/v1/embeddings"))
    kinds = [
        texts.asking(rerank, "soak-late", 10),
        texts.asking(rerank, "soak-dense", 20),
        lambda n: embed.request({"model": "soak-dense", "input": texts.queries[n % len(texts.queries)]}),
    ]

    def mixed(number: int) -> bytes:
        return kinds[number % len(kinds)](number // len(kinds))

    load(house.url, mixed, clients=CLIENTS, seconds=WARM_SECONDS)  # what is encoded once is no part of it
    full = load(house.url, mixed, clients=CLIENTS, seconds=WARM_SECONDS)
    pause = (CLIENTS / full.rate) * (1 / SHARE - 1)
    load(house.url, mixed, clients=CLIENTS, seconds=WARM_SECONDS, pause=pause)
    start = (house.memory_mib(), house.connections())
    heard = _for_minutes(house, mixed, minutes, pause)
    end = (house.memory_mib(), house.connections())
    found = {
        "minutes": minutes,
        "capacity": round(full.rate, 2),
        **summary([heard]),
        "memory_mib": {name: [before, end[0][name]] for name, before in start[0].items()},
        "connections": [start[1], end[1]],
    }
    print(f"soak: {found}", flush=True)
    return {"soak": found}


def _for_minutes(house: House, mixed: Any, minutes: float, pause: float) -> Heard:
    """A line each minute tells that it goes on."""
    done = threading.Event()

    def tell() -> None:
        minute = 0
        while not done.wait(60):
            minute += 1
            print(f"soak, minute {minute}: {house.memory_mib()}, {house.connections()} connections", flush=True)

    teller = threading.Thread(target=tell, daemon=True)
    teller.start()
    try:
        return load(house.url, mixed, clients=CLIENTS, seconds=60 * minutes, pause=pause)
    finally:
        done.set()
        teller.join()

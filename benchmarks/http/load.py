"""Clients that keep their connections and send the next request as soon as the last one is answered."""

from __future__ import annotations

import asyncio
import json
import statistics
import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import urlsplit


@dataclass(frozen=True, slots=True)
class Target:
    """A path of one server. ``token``: none for servers that ask for none."""

    url: str
    path: str
    token: str = ""

    def request(self, body: dict[str, Any]) -> bytes:
        content = json.dumps(body).encode()
        auth = f"Authorization: Bearer {self.token}\r\n" if self.token else ""
        head = (
            f"POST {self.path} HTTP/1.1\r\nHost: {urlsplit(self.url).netloc}\r\n{auth}"
            f"Content-Type: application/json\r\nContent-Length: {len(content)}\r\n\r\n"
        )
        return head.encode() + content


@dataclass(slots=True)
class Heard:
    """What one round of load brought. ``times`` in seconds, of answers with status 200 only."""

    times: list[float] = field(default_factory=list)
    statuses: Counter[int] = field(default_factory=Counter)
    seconds: float = 0.0

    @property
    def rate(self) -> float:
        return self.statuses[200] / self.seconds

    @property
    def refused(self) -> dict[int, int]:
        return {status: count for status, count in self.statuses.items() if status != 200}

    def add(self, other: Heard) -> None:
        self.times += other.times
        self.statuses += other.statuses
        self.seconds += other.seconds


def percentile(times: Sequence[float], share: float) -> float:
    """Milliseconds."""
    ordered = sorted(times)
    return 1000 * ordered[min(int(len(ordered) * share), len(ordered) - 1)] if ordered else float("nan")


def summary(rounds: Sequence[Heard]) -> dict[str, Any]:
    """p50 and p99 over all rounds, the median of their rates, and what was not answered with 200."""
    times = [each for heard in rounds for each in heard.times]
    refused: Counter[int] = sum((Counter(heard.refused) for heard in rounds), Counter())
    return {
        "p50_ms": round(percentile(times, 0.5), 2),
        "p99_ms": round(percentile(times, 0.99), 2),
        "per_second": round(statistics.median(heard.rate for heard in rounds), 2),
        **({"refused": dict(refused)} if refused else {}),
    }


def load(url: str, body_of: Callable[[int], bytes], *, clients: int, seconds: float, pause: float = 0.0) -> Heard:
    """``body_of`` gives the whole request by its number, counted over all clients; ``pause``: of a client, between an
    answer and its next request."""
    heard, numbers = Heard(), iter(range(10**12))

    async def client(until: float) -> None:
        reader, writer = await asyncio.open_connection(urlsplit(url).hostname, urlsplit(url).port)
        while (started := time.perf_counter()) < until:
            writer.write(body_of(next(numbers)))
            status = await _answered(reader)
            heard.statuses[status] += 1
            if status == 200:
                heard.times.append(time.perf_counter() - started)
            if pause:
                await asyncio.sleep(pause)
        writer.close()

    async def run() -> None:
        began = time.perf_counter()
        await asyncio.gather(*(client(began + seconds) for _ in range(clients)))
        heard.seconds = time.perf_counter() - began

    asyncio.run(run())
    return heard


async def _answered(reader: asyncio.StreamReader) -> int:
    head = (await reader.readuntil(b"\r\n\r\n")).lower()
    length = next(int(line[15:]) for line in head.split(b"\r\n") if line.startswith(b"content-length:"))
    await reader.readexactly(length)
    return int(head.split(b" ", 2)[1])

"""``assay bench``: a small load test of ``/v1/rerank``."""

from __future__ import annotations

import random
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Annotated, Final

import anyio
import typer

from assay.cli.inputs import Model, documents_of
from assay.cli.output import AsJson, show_fields, show_json
from assay.client import ApiError, AsyncClient, UnreachableError
from assay.client.shapes import Document

WORDS: Final = (
    "river",
    "rain",
    "bridge",
    "honey",
    "bees",
    "hive",
    "engine",
    "valve",
    "bread",
    "dough",
    "oven",
    "violin",
)
QUERY: Final = "how do bees make honey?"


@dataclass
class Load:
    """What was seen: the milliseconds of every request that was answered, and what the others ended in, by code."""

    seconds: float = 0.0
    milliseconds: list[float] = field(default_factory=list)
    errors: Counter[str] = field(default_factory=Counter)


@dataclass(frozen=True)
class Figures:
    requests: int
    concurrency: int
    documents: int
    requests_per_second: float
    documents_per_second: float
    p50_ms: float | None
    p95_ms: float | None
    p99_ms: float | None
    errors: dict[str, int]


def add_to(app: typer.Typer) -> None:
    app.command()(bench)


def bench(
    concurrency: Annotated[int, typer.Option("--concurrency", "-c", min=1, help="Requests in flight.")] = 16,
    requests: Annotated[int, typer.Option("--requests", "-n", min=1, help="In all.")] = 200,
    documents: Annotated[int, typer.Option(min=1, help="Per request.")] = 10,
    words: Annotated[int, typer.Option(min=1, help="Per document.")] = 60,
    file: Annotated[Path | None, typer.Option(help="Send these documents each time instead.")] = None,
    same: Annotated[
        bool, typer.Option("--same", help="Send the same documents each time, which caches then know.")
    ] = False,
    model: Model = None,
    as_json: AsJson = False,
) -> None:
    """Rerank over and over, and say how fast. Nothing is tried again; fails if a request did.

    \b
    assay bench -c 16 -n 200 --documents 10 --model minilm
    """
    bodies = _repeated(documents_of(file, None, None, None)) if file else _made(documents, words, same=same)
    load = anyio.run(_run, bodies, requests, concurrency, model)
    per_request = len(next(bodies))
    figures = _figures(load, concurrency, per_request)
    if as_json:
        show_json(asdict(figures))
    else:
        show_fields({name.replace("_", " "): value for name, value in asdict(figures).items() if value != {}})
    if load.errors:
        raise typer.Exit(1)


async def _run(bodies: Iterator[Sequence[Document]], requests: int, concurrency: int, model: str | None) -> Load:
    load, turns = Load(), iter(range(requests))

    async def ask(client: AsyncClient) -> None:
        for _ in turns:
            documents = next(bodies)
            started = time.perf_counter()
            try:
                await client.rerank(QUERY, documents, model=model, return_documents=False)
            except ApiError as error:
                load.errors[error.code] += 1
            except UnreachableError:
                load.errors["unreachable"] += 1
            else:
                load.milliseconds.append(1000 * (time.perf_counter() - started))

    async with AsyncClient(retries=0) as client:
        await client.rerank(QUERY, next(bodies), model=model)  # loads the model; a refusal ends the test at once
        started = time.perf_counter()
        async with anyio.create_task_group() as tasks:
            for _ in range(min(concurrency, requests)):
                tasks.start_soon(ask, client)
        load.seconds = time.perf_counter() - started
    return load


def _figures(load: Load, concurrency: int, documents: int) -> Figures:
    answered = len(load.milliseconds)
    rate = round(answered / load.seconds, 1)
    p50, p95, p99 = (percentile(load.milliseconds, share) for share in (0.5, 0.95, 0.99))
    return Figures(
        requests=answered + load.errors.total(),
        concurrency=concurrency,
        documents=documents,
        requests_per_second=rate,
        documents_per_second=round(rate * documents, 1),
        p50_ms=p50,
        p95_ms=p95,
        p99_ms=p99,
        errors=dict(load.errors),
    )


def percentile(values: Sequence[float], share: float) -> float | None:
    """The smallest value that at least this share of all does not exceed; None of nothing."""
    if not values:
        return None
    return round(sorted(values)[max(0, -int(-share * len(values) // 1) - 1)], 2)


def _repeated(documents: Sequence[Document]) -> Iterator[Sequence[Document]]:
    while True:
        yield documents


def _made(count: int, words: int, *, same: bool) -> Iterator[Sequence[Document]]:
    choice = random.Random(7)
    documents = [" ".join(choice.choices(WORDS, k=words)) for _ in range(count)]
    for number in range(1 << 62):
        yield documents if same else [f"{number} {document}" for document in documents]

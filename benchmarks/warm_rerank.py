"""A rerank of documents that are in the cache: python benchmarks/warm_rerank.py [FOLDER]

One query of its own each time against 1,000 documents, late interaction through ``Engine.submit``, beside what it
cannot do without: encoding the query, and MaxSim over vectors that lie ready in one piece. FOLDER holds
``documents.jsonl`` and ``queries.jsonl`` (``id``, ``text``); without it the texts are made up. The last line is
JSON."""

from __future__ import annotations

import itertools
import json
import random
import statistics
import sys
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

import torch
from cranfield import bundled_model, lines

from workers.engine import (
    EncodingRequest,
    Engine,
    EngineConfig,
    ModelKind,
    ModelSpec,
    PoolingRequest,
    PoolingTask,
    ScoringRequest,
    TextRole,
)
from workers.engine.pooling.maxsim import maxsim

DOCUMENTS, ROUNDS = 1000, 15
WORDS = ("pressure", "wing", "flow", "heat", "layer", "speed", "shock", "edge", "of", "the", "a", "in", "over", "and")


def texts(folder: Path | None) -> tuple[list[str], list[str]]:
    if folder is not None:
        documents, queries = (list(lines(folder / f"{name}.jsonl").values()) for name in ("documents", "queries"))
        return [text for text in documents if text.strip()][:DOCUMENTS], queries
    choose = random.Random(0)
    made = [" ".join(choose.choices(WORDS, k=choose.randint(120, 260))) for _ in range(DOCUMENTS)]
    return made, [" ".join(choose.choices(WORDS, k=12)) for _ in range(200)]


def milliseconds(run: Callable[[], object]) -> float:
    started = time.perf_counter()
    run()
    return 1000 * (time.perf_counter() - started)


def main(folder: Path | None) -> None:
    documents, queries = texts(folder)
    engine = Engine(EngineConfig())
    engine.load(ModelSpec("late", bundled_model(), ModelKind.LATE_INTERACTION))
    engine.submit(ScoringRequest("late", ("warm-up",), ("The first run is slow.",))).result()

    def rerank(query: str) -> None:
        engine.submit(ScoringRequest("late", (query,), tuple(documents))).result()

    def encode(inputs: tuple[str, ...], role: TextRole) -> list[torch.Tensor]:
        request = PoolingRequest("late", inputs, PoolingTask.TOKEN_EMBED, role=role)
        return [torch.from_numpy(text.token_vectors) for text in engine.submit_pooling(request).result().data]

    cold = milliseconds(lambda: engine.pre_encode(EncodingRequest("late", tuple(documents))).result())
    vectors = encode(tuple(documents), TextRole.DOCUMENT)
    lengths, packed = [len(document) for document in vectors], torch.cat(vectors)
    del vectors
    figures: dict[str, list[float]] = {"warm": [], "encode": [], "maxsim": []}
    fresh = (f"{query} {number}" for number in itertools.count() for query in queries)
    for _ in range(ROUNDS):  # in turns, so that whatever else the machine does meets all three alike
        figures["warm"].append(milliseconds(partial(rerank, next(fresh))))
        query = (next(fresh),)
        figures["encode"].append(milliseconds(partial(encode, query, TextRole.QUERY)))
        (own,) = encode(query, TextRole.QUERY)
        figures["maxsim"].append(milliseconds(partial(maxsim, own, [len(own)], packed, lengths)))
    engine.close()
    warm, encoding, products = (statistics.median(figures[name]) for name in ("warm", "encode", "maxsim"))
    print(f"torch {torch.__version__}, {torch.get_num_threads()} threads")
    print(f"{len(lengths)} documents, {sum(lengths)} vectors of {packed.shape[1]} dimensions")
    print(f"warm p50 {warm:.1f} ms; query encoding {encoding:.1f} ms, MaxSim {products:.1f} ms; cold {cold:.0f} ms")
    found = {"warm_ms": warm, "query_encoding_ms": encoding, "maxsim_ms": products, "cold_ms": cold}
    rounded = {name: round(value, 2) for name, value in found.items()}
    ratio = round((warm - encoding) / products, 3)  # wanted: at most 1.3
    print(json.dumps({**rounded, "cold_to_warm": round(cold / warm, 1), "ratio": ratio}))


if __name__ == "__main__":
    main(Path(sys.argv[1]) if len(sys.argv) > 1 else None)

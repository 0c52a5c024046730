"""What smaller token vectors cost and save: python benchmarks/compression.py FOLDER

Late interaction over Cranfield (``documents.jsonl``, ``queries.jsonl``, ``qrels.txt``) with the document cache in the
model's own dtype, in float16 and in int8: nDCG@10, bytes per document, the largest change of a score. Each document is
encoded once; what the cache would keep is then scored as the engine scores it. The last line is JSON."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import ir_measures
import numpy as np
import torch
from cranfield import bundled_model, lines
from ir_measures import nDCG

from workers.engine import Engine, EngineConfig, ModelKind, ModelSpec, PoolingRequest, PoolingTask, TextRole
from workers.engine.caches.compression import CACHE_DTYPES, compressed
from workers.engine.pooling.encoding import Encoding
from workers.engine.pooling.scattered_maxsim import ScatteredMaxSim


def main(folder: Path, cache: Path | None) -> None:
    documents, queries = lines(folder / "documents.jsonl"), lines(folder / "queries.jsonl")
    documents = {name: text for name, text in documents.items() if text.strip()}
    qrels = [(q, d, int(grade > "0")) for q, _, d, grade in map(str.split, (folder / "qrels.txt").open())]
    judged = [ir_measures.Qrel(q, d, relevance) for q, d, relevance in qrels]
    engine = Engine(EngineConfig(cache_folder=cache))
    engine.load(ModelSpec("late", bundled_model(), ModelKind.LATE_INTERACTION))

    def encode(texts: tuple[str, ...], role: TextRole) -> list[Encoding]:
        output = engine.submit_pooling(PoolingRequest("late", texts, PoolingTask.TOKEN_EMBED, role=role)).result()
        return [Encoding(tokens=torch.from_numpy(text.token_vectors)) for text in output.data]

    names, texts = list(documents), list(documents.values())
    encoded = [e for at in range(0, len(texts), 64) for e in encode(tuple(texts[at : at + 64]), TextRole.DOCUMENT)]
    asked = [e.tokens for e in encode(tuple(queries.values()), TextRole.QUERY)]
    engine.close()
    packed, lengths = torch.cat(asked), [len(vectors) for vectors in asked]
    exact, found, scattered = None, {}, ScatteredMaxSim()
    for dtype in CACHE_DTYPES:
        kept = [compressed(encoding, dtype) for encoding in encoded]
        scores = scattered(packed, lengths, kept).numpy()
        exact = scores if exact is None else exact
        run = [
            ir_measures.ScoredDoc(query, names[place], float(row[place]))
            for query, row in zip(queries, scores, strict=True)
            for place in np.argsort(-row, kind="stable")[:100]
        ]
        value = ir_measures.calc_aggregate([nDCG @ 10], judged, run)[nDCG @ 10]
        size = sum(encoding.bytes for encoding in kept) / len(kept)
        change = float(np.abs(scores - exact).max())
        print(f"{dtype:<8} nDCG@10 {value:.4f}, {size:,.0f} bytes a document, scores change by at most {change:.4f}")
        found[dtype] = {"ndcg_at_10": round(value, 4), "bytes_per_document": round(size), "largest_change": change}
    ratio = round(found["model"]["bytes_per_document"] / found["int8"]["bytes_per_document"], 2)
    print(json.dumps({**found, "ratio": ratio}))


if __name__ == "__main__":
    if len(sys.argv) < 2:
        print("Skipped: give the folder of the Cranfield collection (documents.jsonl, queries.jsonl, qrels.txt).")
        sys.exit()
    main(Path(sys.argv[1]), Path(sys.argv[2]) if len(sys.argv) > 2 else None)

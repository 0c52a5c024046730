"""Computes ``pylate.json``: what PyLate makes of the texts and checkpoints of ``checkpoints.py``.

Run from the repository's root, in an environment that has PyLate: ``python -m tests.engine.golden.make_pylate``."""

from __future__ import annotations

import json
import sys
import tempfile
from importlib.metadata import version
from pathlib import Path
from typing import Any

import torch
from pylate import models, scores  # type: ignore[import-not-found]

from tests.engine.golden.checkpoints import DOCUMENTS, LAYOUTS, QUERIES, build, digest

DIGITS = 7


def encode(model: Any, texts: tuple[str, ...], *, is_query: bool) -> list[dict[str, Any]]:
    """Ids and vectors of the tokens that are compared, text by text in one batch."""
    role = "query" if is_query else "document"
    prompt = model.prompts.get(role)
    shared = {"prompt": prompt or None, "is_query": is_query, "batch_size": len(texts), "show_progress_bar": False}
    vectors = model.encode(list(texts), convert_to_numpy=False, **shared)
    whole = model.encode(list(texts), output_value=None, convert_to_numpy=False, **shared)
    return [
        {"ids": ids[mask].tolist(), "vectors": [[round(x, DIGITS) for x in row] for row in own.tolist()]}
        for ids, mask, own in zip(whole["input_ids"], whole["masks"], vectors, strict=True)
    ]


def values(layout: str, folder: Path) -> dict[str, Any]:
    build(layout, folder)
    model = models.ColBERT(str(folder), device="cpu")
    queries = encode(model, QUERIES, is_query=True)
    documents = encode(model, DOCUMENTS, is_query=False)
    sides = [[torch.tensor([text["vectors"]]) for text in side] for side in (queries, documents)]
    matrix = [[round(float(scores.colbert_scores(q, d)), DIGITS) for d in sides[1]] for q in sides[0]]
    return {"weights": digest(folder), "queries": queries, "documents": documents, "scores": matrix}


def main() -> None:
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as temporary:
        found = {layout: values(layout, Path(temporary) / layout) for layout in LAYOUTS}
    versions = {name: version(name) for name in ("pylate", "sentence-transformers", "transformers", "torch")}
    path = Path(__file__).with_name("pylate.json")
    path.write_text(json.dumps({"versions": versions, "layouts": found}) + "\n")
    sys.stdout.write(f"{path}: {path.stat().st_size:,} bytes\n")


if __name__ == "__main__":
    main()

"""What the sections send: queries and documents of the Cranfield collection, or words where its folder is not given."""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from load import Target

VARIANTS: Final = 40
WORDS: Final = ("flow", "wing", "heat", "plate", "shock", "wave", "layer", "drag", "mach", "number", "boundary")


@dataclass(frozen=True, slots=True)
class Texts:
    queries: Sequence[str]
    documents: Sequence[str]

    def asking(self, target: Target, model: str, count: int, *, seed: int = 0) -> Callable[[int], bytes]:
        """Requests by number: each of VARIANTS has its own query and its own ``count`` documents."""
        draw = random.Random(seed)
        made = [
            target.request(
                {
                    "model": model,
                    "query": draw.choice(self.queries),
                    "documents": draw.sample(list(self.documents), count),
                    "return_documents": False,
                }
            )
            for _ in range(VARIANTS)
        ]
        return lambda number: made[number % VARIANTS]


def texts(collection: Path | None) -> Texts:
    if collection is None:
        draw = random.Random(0)
        lengths = [(200, 5, 25), (1400, 40, 300)]
        made = [
            [" ".join(draw.choices(WORDS, k=draw.randint(low, high))) for _ in range(n)] for n, low, high in lengths
        ]
        return Texts(*made)
    return Texts(*(_texts_of(collection / f"{name}.jsonl") for name in ("queries", "documents")))


def _texts_of(file: Path) -> list[str]:
    rows: list[dict[str, Any]] = [json.loads(line) for line in file.open()]
    return [row["text"] for row in rows if row["text"].strip()]

"""How cost grows: python benchmarks/scaling.py

Tokens a second of the bundled encoder against length and batch size; memory of cached documents against the
arithmetic; time of a request against its number of documents, cold and cached.
"""

from __future__ import annotations

import json
import platform
import time
from collections.abc import Callable
from functools import partial

import numpy as np
import torch
from cranfield import bundled_model

from workers.engine import Engine, EngineConfig, ModelKind, ModelSpec, ScoringRequest
from workers.engine.forward.packed_batch import Piece
from workers.engine.loading.checkpoint import load_checkpoint

LENGTHS, BUDGETS = (16, 64, 256, 512), (256, 512, 1024, 2048, 4096)
COUNTS, WORDS = (20, 40, 80, 160), 60
QUERY = "shock waves at the leading edge"


def best_seconds(run: Callable[[], object], rounds: int = 3) -> float:
    times = []
    for _ in range(rounds):
        started = time.perf_counter()
        run()
        times.append(time.perf_counter() - started)
    return min(times)


def straightness(counts: tuple[int, ...], seconds: list[float]) -> tuple[float, float]:
    """R² of a straight line through the points, and the exponent of a power law through them."""
    x, y = np.array(counts, dtype=float), np.array(seconds)
    exponent = float(np.polyfit(np.log(x), np.log(y), 1)[0])
    return float(np.corrcoef(x, y)[0, 1] ** 2), exponent


def main() -> None:
    spec = ModelSpec("late", bundled_model(), ModelKind.LATE_INTERACTION, max_length=512)
    checkpoint = load_checkpoint(spec, EngineConfig())
    runner = checkpoint.runner
    print(f"{platform.machine()}, torch {torch.__version__}, {torch.get_num_threads()} threads, {runner.dtype}")
    print("tokens/s   " + "".join(f"{f'{budget} tokens':>14}" for budget in BUDGETS))
    table: dict[int, list[int | None]] = {}
    for length in LENGTHS:
        row: list[int | None] = []
        for budget in BUDGETS:
            batch = runner.pack([Piece([101, *range(2000, 1998 + length), 102])] * max(1, budget // length))
            seconds = best_seconds(partial(runner.forward, batch))
            row.append(round(length * len(batch.lengths_cpu) / seconds) if length <= budget else None)
        table[length] = row
        print(f"length {length:<4}" + "".join(f"{value or '-':>14}" for value in row))
    engine, random = Engine(EngineConfig()), np.random.default_rng(0)
    engine.load(spec)
    query_tokens = len(checkpoint.tokenizer.encode_surrounded([QUERY], 512)[0].ids)
    cold, warm, bytes_per_token = [], [], 0.0
    for count in COUNTS:
        texts = tuple(" ".join(map(str, random.integers(1000, size=WORDS))) for _ in range(count))
        request = ScoringRequest("late", (QUERY,), texts)
        before = engine.statistics().document_cache.bytes
        cold.append(best_seconds(lambda r=request: engine.submit(r).result(), rounds=1))  # type: ignore[misc]
        warm.append(best_seconds(lambda r=request: engine.submit(r).result(), rounds=9))  # type: ignore[misc]
        tokens = engine.submit(request).result().prompt_tokens - query_tokens
        bytes_per_token = (engine.statistics().document_cache.bytes - before) / tokens
        print(f"{count:>4} documents: cold {1000 * cold[-1]:8.1f} ms, cached {1000 * warm[-1]:6.1f} ms")
    engine.close()
    width = runner.model.config.hidden_size * runner.dtype.itemsize
    (r2, exponent), (warm_r2, warm_exponent) = straightness(COUNTS, cold), straightness(COUNTS, warm)
    print(f"cached: {bytes_per_token:.0f} bytes a token; {width} by dimensions x bytes of {runner.dtype}")
    print(
        f"documents: cold R² {r2:.4f}, exponent {exponent:.2f}; cached R² {warm_r2:.4f}, exponent {warm_exponent:.2f}"
    )
    print(json.dumps({"tokens_per_second": table, "bytes_per_token": bytes_per_token, "by_arithmetic": width,
                      "cold": {"r2": r2, "exponent": exponent}, "cached": {"r2": warm_r2, "exponent": warm_exponent},
                      "ratio": bytes_per_token / width}))  # fmt: skip


if __name__ == "__main__":
    main()

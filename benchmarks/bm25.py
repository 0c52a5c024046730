"""What a BM25 index takes: python benchmarks/bm25.py [DOCUMENTS]

Texts of 60 words that are as frequent as words are (Zipf, 200,000 different ones), read in streaming. Prints seconds
and the process's peak memory of building, bytes on the disk, and milliseconds per query of ten words.
"""

from __future__ import annotations

import platform
import resource
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import bm25s
import numpy as np

from workers.bm25 import Bm25Index, build

BM25 = {"variant": "lucene", "k1": 1.5, "b": 0.75, "stop_words": "english"}
WORDS, LENGTH, AT_ONCE, QUERIES = 200_000, 60, 1000, 20


def texts(count: int) -> Iterator[str]:
    random = np.random.default_rng(7)
    share = 1 / np.arange(1, WORDS + 1)
    for _ in range(0, count, AT_ONCE):
        for row in random.choice(WORDS, size=(AT_ONCE, LENGTH), p=share / share.sum()).tolist():
            yield " ".join(f"word{number}" for number in row)


def peak_mib() -> float:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


if __name__ == "__main__":
    count = int(sys.argv[1]) if sys.argv[1:] else 1_000_000
    before = peak_mib()
    print(f"{platform.machine()}, bm25s {bm25s.__version__}, {count:,} documents of {LENGTH} words")
    with tempfile.TemporaryDirectory() as folder:
        started = time.perf_counter()
        build(texts(count), Path(folder), BM25, lambda: None)
        print(f"built in {time.perf_counter() - started:.0f} s, {peak_mib() - before:,.0f} MiB more at the peak")
        size = sum(path.stat().st_size for path in Path(folder).iterdir())
        index = Bm25Index(Path(folder), BM25)
        asked = [" ".join(text.split()[:10]) for text in texts(AT_ONCE)][:QUERIES]
        index.search(asked[0], top_k=1000)
        started = time.perf_counter()
        for query in asked:
            index.search(query, top_k=1000)
        each = 1000 * (time.perf_counter() - started) / QUERIES
        print(f"{size / 1024**2:,.0f} MiB on the disk, {each:.1f} ms per query")

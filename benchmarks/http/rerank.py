"""`/rerank` of Cranfield documents beside vLLM and infinity on the same weights: documents a second, p50, p99.

All servers are up at once and idle but the one that is asked; each case goes around all of them, round by round, so
that whatever else the machine does meets all alike."""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Sequence
from pathlib import Path
from statistics import median
from typing import Any, Final

from house import House
from load import Heard, Target, load, summary
from peers import peers, serving
from texts import Texts

DOCUMENTS: Final = (10, 100)
CLIENTS: Final = (1, 16, 64)


def rerank(
    house: House,
    model: Path,
    texts: Texts,
    *,
    vllm: Path | None,
    infinity: Path | None,
    seconds: float,
    rounds: int,
    documents: Sequence[int] = DOCUMENTS,
    clients: Sequence[int] = CLIENTS,
) -> dict[str, Any]:
    """``model``: the folder of the cross-encoder. A round is longer than ``seconds`` where its requests are."""
    from assay.supervisor import free_port

    dtype = _native()
    house.model("pairs", kind="cross-encoder", source=str(model), self_test="numbers", dtype=dtype)
    with contextlib.ExitStack() as stack:
        targets = {"assay": Target(house.url, "/rerank", house.token)}
        for peer in peers(vllm, infinity, model, dtype=dtype):
            targets[peer.name] = stack.enter_context(serving(peer, free_port()))
        found: dict[str, Any] = {"dtype": dtype}
        for count, waiting in itertools.product(documents, clients):
            found[f"rerank_{count}_{waiting}"] = _compared(targets, texts, count, waiting, seconds, rounds)
        return found


def _compared(
    targets: dict[str, Target], texts: Texts, documents: int, clients: int, seconds: float, rounds: int
) -> dict[str, Any]:
    heard: dict[str, list[Heard]] = {name: [] for name in targets}
    for number in range(rounds + 1):  # the first one warms up
        for name, target in targets.items():
            # Every round has pairs of its own, so that no server may know a pair's score from before.
            asking = texts.asking(target, "pairs", documents, seed=number)
            one = load(target.url, asking, clients=clients, seconds=seconds if number else 1.0)
            heard[name] += [one] if number else []
    figures: dict[str, Any] = {}
    for name, found in heard.items():
        figures[name] = summary(found)
        figures[name]["documents_per_second"] = round(documents * figures[name]["per_second"], 1)
        print(f"rerank, {documents:3} documents, {clients:2} clients, {name:8}: {figures[name]}", flush=True)
    for name in heard.keys() - {"assay"}:
        paired = [
            ours.rate / theirs.rate for ours, theirs in zip(heard["assay"], heard[name], strict=True) if theirs.rate
        ]
        figures[f"over_{name}"] = round(median(paired), 2) if paired else None
    return figures


def _native() -> str:
    """bfloat16 where the machine computes it natively, else float32."""
    import torch

    from workers.engine.loading.checkpoint import resolve_dtype

    return str(resolve_dtype("auto", torch.device("cpu"))).removeprefix("torch.")

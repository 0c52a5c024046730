"""Runs the kernels in Triton's interpreter, which must be chosen before Triton is imported: a program of its own.

It prints one JSON object: for each case what it measured, for ``test_kernels.py`` to judge."""

from __future__ import annotations

import json
import sys
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import normalize

from workers.engine.kernels import label_logprobs, maxsim

DTYPES = {"float32": torch.float32, "float16": torch.float16}  # bfloat16 products are wrong in the interpreter


def vectors(tokens: int, dimensions: int, dtype: torch.dtype) -> Tensor:
    return normalize(torch.randn(tokens, dimensions), dim=-1).to(dtype)


def expected(queries: list[Tensor], documents: list[Tensor], pairs: list[tuple[int, int]]) -> tuple[Tensor, list[int]]:
    """The references, pair by pair; nothing where a side is empty."""
    scores, matches = [], []
    for q, d in pairs:
        if len(queries[q]) and len(documents[d]):
            score, match = maxsim.reference(queries[q], documents[d])
            scores.append(score)
            matches += match.tolist()
        else:
            scores.append(torch.tensor(torch.nan))
            matches += [-1] * len(queries[q])
    return torch.stack([score.double() for score in scores]), matches


def compare(query_lengths: list[int], document_lengths: list[int], dimensions: int, dtype: str, **options: Any) -> Any:
    """Largest errors against float64, ours and torch's in the same dtype, and how many matches differ from its."""
    queries = vectors(sum(query_lengths), dimensions, DTYPES[dtype])
    documents = vectors(sum(document_lengths), dimensions, DTYPES[dtype])
    every = [(q, d) for q in range(len(query_lengths)) for d in range(len(document_lengths))]
    pairs = [every[i] for i in options.pop("pick")] if "pick" in options else every
    if pairs is not every:
        columns = torch.tensor(pairs).numpy()
        options["pairs"] = columns[:, 0], columns[:, 1]
    ours, matches = maxsim.maxsim(queries, query_lengths, documents, document_lengths, **options)
    truth, places = expected(
        list(queries.double().split(query_lengths)), list(documents.double().split(document_lengths)), pairs
    )
    theirs, _ = expected(list(queries.split(query_lengths)), list(documents.split(document_lengths)), pairs)
    return {
        "ours": (ours - truth).abs().nan_to_num(0).max().item(),
        "torchs": (theirs - truth).abs().nan_to_num(0).max().item(),
        "size": truth.abs().nan_to_num(0).max().item(),
        "nan": torch.isnan(ours).tolist(),
        "nan_expected": torch.isnan(truth).tolist(),
        "matches": None if matches is None else matches.tolist(),
        "matches_expected": places,
    }


def poisoned(**options: Any) -> list[bool]:
    """Which scores are NaN when document 1 of 3 and query 1 of 2 hold one, last and first in their texts."""
    queries, documents = vectors(6, 32, torch.float32), vectors(90, 32, torch.float32)
    documents[59, 3] = queries[3, 0] = torch.nan
    scores, _ = maxsim.maxsim(queries, [3, 3], documents, [30, 30, 30], **options)
    return torch.isnan(scores).tolist()


def negative() -> list[float]:
    """Documents that point away, of 1 and of 50 tokens: neither the padding of a block nor a neighbour may win."""
    documents = torch.tensor([[-1.0, 0.0]] + [[-0.8, 0.6]] * 50)
    return maxsim.maxsim(torch.tensor([[1.0, 0.0]]), [1], documents, [1, 50])[0].tolist()


def labels(rows: int, vocabulary: int, hidden: int, dtype: str, bias: bool, softcap: float | None) -> Any:
    states = torch.randn(rows, hidden).to(DTYPES[dtype])
    weight = (torch.randn(vocabulary, hidden) / hidden**0.5).to(DTYPES[dtype])
    offsets = 3 * torch.randn(vocabulary).to(DTYPES[dtype]) if bias else None
    ours = label_logprobs.vocabulary_logsumexp(states, weight, offsets, softcap)
    truth = label_logprobs.reference(states.double(), weight, offsets, softcap)
    theirs = label_logprobs.reference(states, weight, offsets, softcap)
    return {
        "ours": (ours - truth).abs().max().item(),
        "torchs": (theirs - truth).abs().max().item(),
        "size": truth.abs().max().item(),
    }


def labels_with_nan() -> list[bool]:
    states = torch.randn(3, 8)
    states[1, 2] = torch.nan
    return torch.isnan(label_logprobs.vocabulary_logsumexp(states, torch.randn(70, 8))).tolist()


def measure() -> dict[str, Any]:
    torch.manual_seed(0)
    torch.set_num_threads(1)
    results: dict[str, Any] = {}
    for dtype in DTYPES:
        for dimensions in (96, 128, 384):
            for tokens in (1, 33, 300, 4096) if dtype == "float16" else (1, 300):
                results[f"maxsim {dtype} {dimensions} {tokens}"] = compare([32], [tokens, 5], dimensions, dtype)
    results["maxsim many"] = compare([3, 32, 0, 17], [40, 1, 0, 70, 64, 65], 48, "float32")
    results["maxsim all empty"] = compare([0, 2], [0, 0], 48, "float32")
    results["maxsim long query"] = compare([300, 5], [70, 1], 96, "float16", matches=True)
    results["maxsim parts"] = compare([32, 4], [1000, 3, 64, 65], 96, "float32", rows_per_part=64)
    results["maxsim parts by need"] = compare([32], [1500, 3], 96, "float32")
    results["maxsim matches"] = compare([32, 0, 7], [300, 1, 0, 129], 96, "float32", matches=True, rows_per_part=64)
    results["maxsim pairs"] = compare(
        [3, 5, 0], [40, 1, 0, 70], 20, "float32", pick=[5, 0, 11, 7, 2, 3, 0], matches=True
    )
    results["maxsim few dimensions"] = compare([3], [40], 7, "float32")
    results["maxsim wide"] = compare([40], [70, 3], 640, "float16")
    results["maxsim very wide"] = compare([20], [40, 3], 1024, "float32", matches=True)
    results["poisoned"] = poisoned()
    results["poisoned parts"] = poisoned(matches=True, rows_per_part=32)
    results["negative"] = negative()
    for dtype in DTYPES:
        for rows, vocabulary, hidden in ((1, 130, 32), (5, 1000, 96), (70, 257, 128)):
            for bias, softcap in ((False, None), (True, None), (True, 30.0)):
                name = f"labels {dtype} {rows} {vocabulary} {hidden} {bias} {softcap}"
                results[name] = labels(rows, vocabulary, hidden, dtype, bias, softcap)
    results["labels nan"] = labels_with_nan()
    return results


if __name__ == "__main__":
    json.dump(measure(), sys.stdout)

"""The kernels on a CUDA device: bfloat16, equality with the CPU path, no waiting, nothing compiled twice."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest
import torch
from torch.nn.functional import normalize

from workers.engine.forward.vocabulary import vocabulary_logsumexp
from workers.engine.pooling.maxsim import maxsim, maxsim_matches, maxsim_pairs

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="This machine has no CUDA device."),
]
DTYPES = (torch.float32, torch.float16, torch.bfloat16)
EPS = torch.finfo(torch.float32).eps


@pytest.fixture
def nothing_waits() -> Iterator[None]:
    """Whatever makes the CPU wait for the device is an error."""
    torch.cuda.set_sync_debug_mode("error")
    yield
    torch.cuda.set_sync_debug_mode("default")


def vectors(tokens: int, dimensions: int, dtype: torch.dtype) -> torch.Tensor:
    return normalize(torch.randn(tokens, dimensions), dim=-1).to(dtype)


def truth(queries: torch.Tensor, query_lengths: list[int], documents: torch.Tensor, lengths: list[int]) -> torch.Tensor:
    """``[Q, D]`` in float64 if the embeddings are, else with torch's own products in their dtype."""
    return torch.stack([
        torch.stack([(q @ d.T).amax(dim=1).double().sum() for d in documents.split(lengths)])
        for q in queries.split(query_lengths)
    ])  # fmt: skip


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("dimensions", [96, 128, 384, 1024])
@pytest.mark.parametrize("query_lengths", [[32], [3, 32, 17], [300]], ids=str)
def test_maxsim_is_no_further_from_float64_than_torch(
    query_lengths: list[int], dimensions: int, dtype: torch.dtype
) -> None:
    torch.manual_seed(0)
    lengths = [1, 33, 300, 4096, 64]
    queries, documents = vectors(sum(query_lengths), dimensions, dtype), vectors(sum(lengths), dimensions, dtype)
    expected = truth(queries.double(), query_lengths, documents.double(), lengths)
    torchs = (truth(queries.cuda(), query_lengths, documents.cuda(), lengths).cpu() - expected).abs().max()
    ours = maxsim(queries.cuda(), query_lengths, documents.cuda(), lengths).cpu()
    assert (ours - expected).abs().max() <= 2 * torchs + 2 * EPS * max(query_lengths)
    on_cpu = maxsim(queries, query_lengths, documents, lengths)
    torch.testing.assert_close(ours, on_cpu, rtol=0, atol=4 * EPS * max(query_lengths))


def test_empty_sides_and_nan_are_those_of_the_cpu() -> None:
    torch.manual_seed(1)
    queries, documents = vectors(7, 128, torch.bfloat16), vectors(400, 128, torch.bfloat16)
    documents[5, 3] = torch.nan
    arguments = [3, 0, 4], [10, 0, 390]
    ours = maxsim(queries.cuda(), arguments[0], documents.cuda(), arguments[1]).cpu()
    on_cpu = maxsim(queries, arguments[0], documents, arguments[1])
    torch.testing.assert_close(ours, on_cpu, rtol=0, atol=1e-5, equal_nan=True)


def test_chosen_pairs_and_their_matches_are_those_of_the_cpu() -> None:
    torch.manual_seed(3)
    queries, documents = vectors(40, 128, torch.bfloat16), vectors(900, 128, torch.bfloat16)
    lengths = [8, 0, 32], [300, 1, 0, 599]
    pairs = np.array([2, 0, 1, 2, 2]), np.array([3, 3, 0, 2, 0])
    chosen = maxsim_pairs(queries.cuda(), lengths[0], documents.cuda(), lengths[1], pairs).cpu()
    on_cpu = maxsim_pairs(queries, lengths[0], documents, lengths[1], pairs)
    torch.testing.assert_close(chosen, on_cpu, rtol=0, atol=1e-5, equal_nan=True)
    scores, matches = maxsim_matches(queries.cuda(), lengths[0], documents.cuda(), lengths[1], pairs)
    expected, places = maxsim_matches(queries, lengths[0], documents, lengths[1], pairs)
    torch.testing.assert_close(scores.cpu(), expected, rtol=0, atol=1e-5, equal_nan=True)
    assert matches.dtype == places.dtype and (matches.cpu() == places).float().mean() > 0.95  # ties within rounding


def test_maxsim_waits_for_nothing(nothing_waits: None) -> None:
    queries, documents = torch.ones(32, 128, device="cuda"), torch.ones(2000, 128, device="cuda")
    maxsim(queries, [32], documents, [100] * 20)
    maxsim(queries, [32], documents, [2000])
    maxsim_pairs(queries, [16, 16], documents, [100] * 20, (np.array([0, 1, 1]), np.array([3, 3, 19])))


def test_lengths_and_numbers_are_not_compiled_in() -> None:
    from workers.engine.kernels.maxsim import _best_tokens

    queries = torch.ones(32, 128, device="cuda", dtype=torch.bfloat16)
    for lengths in ([16], [17, 1], [40] * 33):
        maxsim(queries, [32], torch.ones(sum(lengths), 128, device="cuda", dtype=torch.bfloat16), lengths)
        compiled = {device: len(caches[0]) for device, caches in _best_tokens.device_caches.items()}
        if lengths == [16]:
            first = compiled
    assert compiled == first


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("rows", [1, 20, 200])
@pytest.mark.parametrize("softcap", [None, 30.0])
def test_the_sum_over_the_vocabulary_is_no_further_from_float64_than_torch(
    rows: int, dtype: torch.dtype, softcap: float | None
) -> None:
    torch.manual_seed(2)
    hidden, weight = torch.randn(rows, 256).to(dtype), (torch.randn(5003, 256) / 16).to(dtype)
    bias = torch.randn(5003).to(dtype)
    expected, _ = vocabulary_logsumexp(hidden.double(), weight, bias, softcap)
    logits = torch.nn.functional.linear(hidden.cuda(), weight.cuda(), bias.cuda())
    if softcap is not None:
        logits = softcap * torch.tanh(logits / softcap)
    torchs = (logits.float().logsumexp(dim=-1).cpu() - expected).abs().max()
    ours, reason = vocabulary_logsumexp(hidden.cuda(), weight.cuda(), bias.cuda(), softcap)
    assert reason is None
    assert (ours.cpu() - expected).abs().max() <= 2 * torchs + 2 * EPS * expected.abs().max()


def test_the_sum_over_the_vocabulary_waits_for_nothing(nothing_waits: None) -> None:
    hidden = torch.ones(3, 64, device="cuda")
    vocabulary_logsumexp(hidden, torch.ones(1000, 64, device="cuda"), None, None)

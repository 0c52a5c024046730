"""MaxSim on the CPU against float64, however it is cut into blocks; the kernel has its own tests."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pytest
import torch

from workers.engine.pooling import maxsim as module
from workers.engine.pooling.maxsim import maxsim, maxsim_matches, maxsim_pairs

QUERY_LENGTHS, DOCUMENT_LENGTHS = [3, 1, 0, 36], [5, 1, 0, 80, 2, 7, 33, 1]


def unit_vectors(generator: torch.Generator, tokens: int, dimensions: int = 16) -> torch.Tensor:
    return torch.nn.functional.normalize(torch.randn(tokens, dimensions, generator=generator), dim=-1)


def in_float64(
    queries: torch.Tensor, query_lengths: list[int], documents: torch.Tensor, document_lengths: list[int]
) -> npt.NDArray[np.float64]:
    expected = np.full((len(query_lengths), len(document_lengths)), np.nan)
    for i, query in enumerate(queries.double().split(query_lengths)):
        for j, document in enumerate(documents.double().split(document_lengths)):
            if len(query) and len(document):
                expected[i, j] = (query @ document.T).amax(dim=1).sum()
    return expected


@pytest.fixture
def texts() -> tuple[torch.Tensor, list[int], torch.Tensor, list[int]]:
    generator = torch.Generator().manual_seed(1)
    queries, documents = unit_vectors(generator, sum(QUERY_LENGTHS)), unit_vectors(generator, sum(DOCUMENT_LENGTHS))
    return queries, QUERY_LENGTHS, documents, DOCUMENT_LENGTHS


@pytest.mark.parametrize(("image", "chunk"), [(4, 2), (8, 8), (16, 4), (256, 16)])
def test_maxsim_equals_float64_wherever_blocks_end(
    texts: tuple[torch.Tensor, list[int], torch.Tensor, list[int]],
    image: int,
    chunk: int,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Blocks of a few rows cut through documents, are multiplied in small images, and are chunked finely."""
    monkeypatch.setitem(module._BLOCK_BYTES, "cpu", 4 * 40 * image)
    for name, value in (("IMAGE_ROWS", image), ("_CHUNK", chunk)):
        monkeypatch.setattr(module, name, value)
    np.testing.assert_allclose(maxsim(*texts).numpy(), in_float64(*texts), rtol=0, atol=1e-5)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16], ids=str)
@pytest.mark.parametrize("dimensions", [96, 128, 384])
def test_maxsim_equals_float64_at_full_size(dimensions: int, dtype: torch.dtype) -> None:
    """Nothing but the stored vectors is narrow: products are float32 whatever they are kept in."""
    generator = torch.Generator().manual_seed(dimensions)
    query_lengths, document_lengths = [32, 5], [4096, 1, 1023, 1024, 300, 0, 1500]
    queries = unit_vectors(generator, sum(query_lengths), dimensions).to(dtype)
    documents = unit_vectors(generator, sum(document_lengths), dimensions).to(dtype)
    scores = maxsim(queries, query_lengths, documents, document_lengths).numpy()
    expected = in_float64(queries, query_lengths, documents, document_lengths)
    np.testing.assert_allclose(scores, expected, rtol=0, atol=1e-5)


@pytest.mark.parametrize("dimensions", [7, 100, 128, 384, 1024])
def test_a_score_is_the_same_to_the_bit_whatever_is_scored_beside_it(dimensions: int) -> None:
    generator = torch.Generator().manual_seed(dimensions)
    query_lengths, document_lengths = [32, 5, 300], [700, 1, 255, 256, 20, 2000]
    queries = unit_vectors(generator, sum(query_lengths), dimensions)
    documents = unit_vectors(generator, sum(document_lengths), dimensions)
    together = maxsim(queries, query_lengths, documents, document_lengths)
    for q, query in enumerate(queries.split(query_lengths)):
        for d, document in enumerate(documents.split(document_lengths)):
            alone = maxsim(query, [len(query)], document, [len(document)])
            assert torch.equal(alone[0, 0], together[q, d]), (q, d)


def test_chosen_pairs_equal_the_whole_matrix(texts: tuple[torch.Tensor, list[int], torch.Tensor, list[int]]) -> None:
    """In any order, repeated, with empty sides; and no pairs at all."""
    pairs = np.array([3, 0, 0, 2, 1, 3, 0, 3]), np.array([3, 6, 2, 3, 7, 0, 6, 5])
    matrix = maxsim(*texts).numpy()
    chosen = maxsim_pairs(*texts, pairs).numpy()
    assert np.isnan(chosen).tolist() == [False, False, True, True, False, False, False, False]
    np.testing.assert_allclose(chosen, matrix[pairs], rtol=0, atol=1e-6)
    nothing = np.zeros(0, dtype=np.int64), np.zeros(0, dtype=np.int64)
    assert maxsim_pairs(*texts, nothing).shape == (0,)


def test_matches_are_the_best_tokens(texts: tuple[torch.Tensor, list[int], torch.Tensor, list[int]]) -> None:
    """Token for token those of float64; their products add up to the score."""
    queries, query_lengths, documents, document_lengths = texts
    pairs = np.array([3, 0, 1, 2, 3]), np.array([3, 6, 2, 3, 0])
    scores, matches = maxsim_matches(*texts, pairs)
    np.testing.assert_allclose(scores.numpy(), maxsim(*texts).numpy()[pairs], rtol=0, atol=1e-6)
    query_parts, document_parts = queries.double().split(query_lengths), documents.double().split(document_lengths)
    expected: list[int] = []
    for q, d in zip(*pairs, strict=True):
        query, document = query_parts[q], document_parts[d]
        expected += (query @ document.T).argmax(dim=1).tolist() if len(document) else [-1] * len(query)
    assert matches.dtype == torch.int32 and matches.tolist() == expected
    nothing = np.zeros(0, dtype=np.int64), np.zeros(0, dtype=np.int64)
    assert [len(part) for part in maxsim_matches(*texts, nothing)] == [0, 0]


def test_s2_all_products_negative() -> None:
    """Neither padding with zeros nor a longer neighbour may win the maximum."""
    query = torch.tensor([[1.0, 0.0]])
    documents = torch.tensor([[-1.0, 0.0]] + [[-0.8, 0.6]] * 50)
    together = maxsim(query, [1], documents, [1, 50])
    assert together.tolist() == [[-1.0, pytest.approx(-0.8)]]
    assert maxsim(query, [1], documents[:1], [1]).item() == together[0, 0]


def test_a_nan_stays_in_its_own_document_and_query() -> None:
    generator = torch.Generator().manual_seed(2)
    queries, documents = unit_vectors(generator, 4), unit_vectors(generator, 9)
    clean = maxsim(queries, [2, 2], documents, [3, 3, 3])
    documents[4, 0], queries[3, 1] = torch.nan, torch.nan
    scores = maxsim(queries, [2, 2], documents, [3, 3, 3])
    assert torch.isnan(scores).tolist() == [[False, True, False], [True, True, True]]
    torch.testing.assert_close(scores[0, [0, 2]], clean[0, [0, 2]])


def test_a_nan_stays_in_its_own_document_among_thousands_of_rows() -> None:
    """Where blocks are images and chunks are joined; also for chosen pairs and matches."""
    generator = torch.Generator().manual_seed(3)
    lengths = [700, 900, 1100, 37]
    query, documents = unit_vectors(generator, 8), unit_vectors(generator, sum(lengths))
    clean = maxsim(query, [8], documents, lengths)
    documents[700 + 450, 3] = torch.nan
    scores = maxsim(query, [8], documents, lengths)
    pairs = np.zeros(4, dtype=np.int64), np.arange(4)
    chosen, (found, matches) = (
        maxsim_pairs(query, [8], documents, lengths, pairs),
        maxsim_matches(query, [8], documents, lengths, pairs),
    )
    for each in (scores[0], chosen, found):
        assert torch.isnan(each).tolist() == [False, True, False, False]
        torch.testing.assert_close(each[[0, 2, 3]], clean[0, [0, 2, 3]])
    assert matches[8:16].tolist() == [450] * 8

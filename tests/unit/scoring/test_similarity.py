"""Rank similarity: worked by hand, and on random lists against the published formula and scipy."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from scipy.stats import kendalltau

from scoring.similarity import ABSENT, Pair, Rankings, inversions, kendall_tau, largest_moves, overlap_at
from scoring.similarity import rank_biased_overlap as rbo


def rankings(*lists: list[int]) -> Rankings:
    documents = np.array([document for one in lists for document in one], np.int64)
    return Rankings(documents, np.array([len(one) for one in lists], np.int64))


def pair(first: list[list[int]], second: list[list[int]]) -> Pair:
    return Pair.of(rankings(*first), rankings(*second))


def random_lists(seed: int, count: int) -> tuple[list[list[int]], list[list[int]]]:
    """Of lengths from 1 to 40, of documents of which about half are shared."""
    random = np.random.default_rng(seed)
    lengths = random.integers(1, 40, (2, count))
    return tuple([random.permutation(60)[:n].tolist() for n in side] for side in lengths)  # type: ignore[return-value]


def test_worked_by_hand() -> None:
    """[1, 2, 3] and [2, 1, 4]: overlaps 0, 2, 2 of depths 1, 2, 3."""
    one = pair([[1, 2, 3]], [[2, 1, 4]])
    p = 0.9
    by_hand = (1 - p) / p * (0 / 1 * p + 2 / 2 * p**2 + 2 / 3 * p**3) + 2 / 3 * p**3
    assert rbo(one, p)[0] == pytest.approx(by_hand)
    assert (overlap_at(one, 1)[0], overlap_at(one, 2)[0], overlap_at(one, 10)[0]) == (0, 1, 2 / 3)
    assert (kendall_tau(one)[0], one.shared[0]) == (-1, 2)


def test_of_different_lengths_by_hand() -> None:
    """[1] and [1, 2]: what is not known of the short list is taken to agree as it does up to its end."""
    p = 0.5
    by_hand = (1 - p) / p * (1 * p + 1 / 2 * p**2 + 1 * (2 - 1) / (1 * 2) * p**2) + (0 / 2 + 1 / 1) * p**2
    assert rbo(pair([[1]], [[1, 2]]), p)[0] == pytest.approx(by_hand) == pytest.approx(1)


def published(one: list[int], other: list[int], p: float) -> float:
    """Equation 32 of Webber, Moffat and Zobel (2010), sum by sum."""
    short, long = sorted((one, other), key=len)
    s, l = len(short), len(long)  # noqa: E741 - as there
    overlap = [len(set(short[:d]) & set(long[:d])) for d in range(l + 1)]
    seen = sum(overlap[d] / d * p**d for d in range(1, l + 1))
    unseen = sum(overlap[s] * (d - s) / (s * d) * p**d for d in range(s + 1, l + 1))
    return (1 - p) / p * (seen + unseen) + ((overlap[l] - overlap[s]) / l + overlap[s] / s) * p**l


@pytest.mark.parametrize("p", [0.5, 0.9])
def test_as_published(p: float) -> None:
    first, second = random_lists(1, 60)
    expected = [published(a, b, p) for a, b in zip(first, second, strict=True)]
    assert rbo(pair(first, second), p) == pytest.approx(np.array(expected), abs=1e-9)


def test_tau_is_scipys_over_the_shared_documents() -> None:
    first, second = random_lists(2, 60)
    both: Any = pair(first, second)
    expected = []
    for a, b in zip(first, second, strict=True):
        shared = [document for document in a if document in b]
        ranks = [b.index(document) for document in shared]
        expected.append(kendalltau(range(len(shared)), ranks).statistic if len(shared) > 1 else np.nan)
    assert kendall_tau(both) == pytest.approx(np.array(expected), nan_ok=True)
    assert both.shared.tolist() == [len(set(a) & set(b)) for a, b in zip(first, second, strict=True)]


def test_what_cannot_be_said_is_no_number() -> None:
    lists = pair([[], [5, 6], [7]], [[5, 6], [1, 2], [7]])
    assert np.isnan(rbo(lists, 0.9)).tolist() == [True, False, False]
    assert rbo(lists, 0.9)[1:].tolist() == [0, 1]
    assert overlap_at(lists, 10)[1:].tolist() == [0, 1]
    assert np.isnan(kendall_tau(lists)).all() and lists.shared.tolist() == [0, 0, 1]
    assert rbo(pair([[], []], [[], []]), 0.9).size == 2


def test_inversions_are_counted_by_owner() -> None:
    values, owners = np.array([3, 1, 2, 0, 7, 9, 8]), np.array([0, 0, 0, 0, 2, 2, 2])
    assert inversions(values, owners, 3).tolist() == [5, 0, 1]


def test_the_largest_move_is_the_one_that_counts_most() -> None:
    """A first place that is gone weighs more than a long way among the last ones."""
    moves = largest_moves(pair([[1, 2, 3], [4, 5], [8, 9]], [[9, 2, 3], [4, 5], [9, 8]]))
    assert moves.documents.tolist() == [1, ABSENT, 8]
    assert (moves.first_ranks[0], moves.second_ranks[0], moves.weights[0]) == (1, 0, 1)
    assert (moves.first_ranks[2], moves.second_ranks[2]) == (1, 2)

"""Cut-offs over judged pairs: by hand, against published intervals, and as laws."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.metrics import f1_score, precision_score, recall_score

from scoring.thresholds import MOST_CUT_OFFS, JudgedScores, best, candidates, cut_offs, wilson


def judged(rows: list[tuple[float, bool, int]]) -> JudgedScores:
    scores, relevant, queries = zip(*rows, strict=True)
    return JudgedScores(np.array(scores), np.array(relevant), np.array(queries))


# Six pairs of two queries, three of them relevant.
BY_HAND = judged([
    (0.9, True, 0), (0.8, True, 1), (0.7, False, 0), (0.6, True, 0), (0.4, False, 1), (0.1, False, 1),
])  # fmt: skip


def test_the_interval_is_wilsons() -> None:
    # Newcombe, Two-sided confidence intervals for the single proportion (1998), table I, method 3: four examples.
    for part, whole, low, high in (
        (81, 263, 0.2553, 0.3662),
        (15, 148, 0.0624, 0.1605),
        (0, 20, 0, 0.1611),
        (1, 29, 0.0061, 0.1718),
    ):
        assert wilson(part, whole) == pytest.approx((low, high), abs=5e-5)


def test_cut_offs_by_hand() -> None:
    found = {each.score: each for each in cut_offs(BY_HAND, candidates(BY_HAND))}
    assert list(found) == [0.1, 0.4, 0.6, 0.7, 0.8, 0.9]
    at = found[0.6]  # four pairs are as high, three of them relevant: all there are
    assert at.precision is not None
    assert (at.above, at.found, at.precision.value, at.recall.value) == (4, 3, 0.75, 1)
    assert at.f1.value == pytest.approx(2 * 0.75 / 1.75)
    assert (at.precision.low, at.precision.high) == pytest.approx((0.3006, 0.9544), abs=5e-5)  # two queries: Wilson's
    assert best(list(found.values())) is at


def test_a_cut_off_above_all_finds_nothing_and_has_no_precision() -> None:
    (found,) = cut_offs(BY_HAND, [1.0])
    assert found.precision is None and (found.above, found.recall.value, found.f1.value) == (0, 0, 0)
    assert found.recall.high == pytest.approx(wilson(0, 3)[1])


def test_few_certain_pairs_are_not_told_as_certain() -> None:
    """All that are as high are relevant in every resample; the interval still knows that they are few."""
    rows = [row for query in range(12) for row in ((0.9, True, query), (0.2, False, query), (0.1, True, query))]
    (found,) = cut_offs(judged(rows), [0.9])
    assert found.precision is not None and found.precision.value == 1
    assert found.precision.low == pytest.approx(wilson(12, 12)[0])


def test_pairs_of_one_query_that_are_alike_widen_the_interval() -> None:
    """Ten queries of a hundred pairs, each all relevant or all not: ten draws rather than a thousand."""
    rows = [(0.9, query < 5, query) for query in range(10) for _ in range(100)]
    (found,) = cut_offs(judged(rows), [0.9])
    low, high = wilson(500, 1000)
    assert found.precision is not None and found.precision.low < low - 0.1 and found.precision.high > high + 0.1


def test_many_scores_are_thinned_from_lowest_to_highest() -> None:
    many = judged([(float(place), place % 2 == 0, place) for place in range(1_000)])
    found = candidates(many)
    assert len(found) == MOST_CUT_OFFS and (found[0], found[-1]) == (0, 999)


rows = st.lists(
    st.tuples(st.integers(0, 20).map(float), st.booleans(), st.integers(0, 15)), min_size=1, max_size=60
).filter(lambda pairs: any(relevant for _, relevant, _ in pairs))


@settings(max_examples=30)
@given(rows)
def test_the_values_are_those_of_scikit_learn(pairs: list[tuple[float, bool, int]]) -> None:
    sample = judged(pairs)
    recalls = []
    for found in cut_offs(sample, candidates(sample)):
        above = sample.scores >= found.score
        assert found.precision is not None
        assert found.precision.value == pytest.approx(precision_score(sample.relevant, above))
        assert found.recall.value == pytest.approx(recall_score(sample.relevant, above))
        assert found.f1.value == pytest.approx(f1_score(sample.relevant, above))
        for estimate in (found.precision, found.recall, found.f1):
            assert 0 <= estimate.low <= estimate.value + 1e-9 and estimate.value - 1e-9 <= estimate.high <= 1
        recalls.append(found.recall.value)
    assert recalls == sorted(recalls, reverse=True)

"""Tests, intervals and corrections, worked by hand and against scipy."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from scoring.statistics import (
    ALPHA,
    SEED,
    Difference,
    Interval,
    Outcome,
    PairedTest,
    bootstrap_interval,
    corrected,
    differences,
    holm,
    p_words,
    paired_difference,
    randomisation_p,
    randomised_tukey,
)

# Measures are shares of few things: many ties, in steps that no binary number holds exactly.
VALUES = st.integers(0, 20).map(lambda step: step / 20)
PAIRS = st.lists(st.tuples(VALUES, VALUES), min_size=2, max_size=60)


def difference(changes: Sequence[float], test: PairedTest = PairedTest.T) -> Difference:
    return paired_difference(np.full(len(changes), 0.3), 0.3 + np.array(changes, np.float64), test=test)


def test_a_paired_t_test_worked_by_hand() -> None:
    # Mean 0.05, standard deviation 0.0707107, standard error 0.0316228, t = 1.581139 with 4 degrees of freedom, of
    # which the tables have 2.776445 at 0.975.
    found = difference([0.1, 0.0, 0.1, -0.05, 0.1])
    assert (found.n, found.better, found.equal, found.worse) == (5, 3, 1, 1)
    assert found.delta == pytest.approx(0.05) and found.p == pytest.approx(0.189, abs=0.0005)
    assert found.interval is not None
    assert found.interval.low == pytest.approx(0.05 - 2.776445 * 0.0316228, abs=1e-6)
    assert found.interval.high == pytest.approx(0.05 + 2.776445 * 0.0316228, abs=1e-6)
    assert found.outcome == Outcome.TESTED and found.words == "few queries (5): p = 0.19 decides nothing"


def test_a_randomisation_test_worked_by_hand() -> None:
    # Of the 16 sign flips of 0.1, 0.2, 0.3, -0.05 these sum to 0.55 or more, or to -0.55 or less: all the same sign
    # (2), and 0.05 alone the other way (2).
    assert difference([0.1, 0.2, 0.3, -0.05], PairedTest.RANDOMISATION).p == pytest.approx(4 / 16)
    assert difference([0.1] * 5, PairedTest.RANDOMISATION).p == pytest.approx(2 / 32)
    # 2^40 flips, of which two are as far: none of 10,000 will be.
    assert difference([0.1] * 40, PairedTest.RANDOMISATION).p == pytest.approx(1 / 10_001)


@settings(deadline=None)
@given(PAIRS)
def test_t_equals_scipy(pairs: list[tuple[float, float]]) -> None:
    baseline, other = np.array(pairs).T
    found = paired_difference(baseline, other)
    if found.outcome != Outcome.TESTED:
        assert np.ptp(other - baseline) < 1e-9
        return
    expected = stats.ttest_rel(other, baseline)
    interval = expected.confidence_interval(0.95)
    assert found.p == pytest.approx(expected.pvalue, rel=1e-6)
    assert found.interval is not None
    assert (found.interval.low, found.interval.high) == pytest.approx((interval.low, interval.high), abs=1e-9)


@settings(deadline=None, max_examples=50)
@given(st.lists(st.integers(-20, 20).map(lambda step: step / 20), min_size=2, max_size=9))
def test_the_exact_randomisation_test_equals_every_flip_counted(changes: list[float]) -> None:
    flips = [abs(math.fsum(sign * one for sign, one in zip(signs, changes, strict=True)))
             for signs in itertools.product((1, -1), repeat=len(changes))]  # fmt: skip
    expected = sum(flip >= abs(math.fsum(changes)) - 1e-9 for flip in flips) / len(flips)
    assert randomisation_p(np.array(changes)) == pytest.approx(expected)


def test_the_sampled_randomisation_test_agrees_with_scipy_s_and_repeats() -> None:
    changes = np.random.default_rng(7).normal(0.0, 0.1, 225)
    changes += 0.015 - changes.mean()
    found = randomisation_p(changes)
    expected = stats.permutation_test(
        (changes,), lambda x, axis: np.mean(x, axis=axis), permutation_type="samples", n_resamples=10_000, rng=1
    ).pvalue
    assert found == randomisation_p(changes) and found == pytest.approx(expected, abs=0.008)


def test_what_has_no_variance_is_told_in_words() -> None:
    same = difference([0.0] * 225)
    assert (same.outcome, same.p, same.words) == (Outcome.IDENTICAL, 1.0, "identical on all 225 queries")
    assert same.interval == Interval(0.0, 0.0) and same.equal == 225 and not same.significant
    constant = corrected([difference([0.1] * 225)])[0]
    assert constant.words == "the same difference on all 225 queries, p < 0.0001"
    assert constant.significant and constant.verdict == "higher"
    assert constant.interval == Interval(pytest.approx(0.1), pytest.approx(0.1))  # type: ignore[arg-type]
    # The same numbers added in another order are no difference.
    assert difference([1e-16, -1e-16, 0.0]).outcome == Outcome.IDENTICAL


def test_what_is_not_to_be_tested_has_its_numbers_and_no_p() -> None:
    values = np.linspace(0, 1, 30)
    part = paired_difference(values, values**2, untested=Outcome.INCOMPLETE)
    assert (part.p, part.interval, part.verdict, part.n) == (None, None, "incomplete", 30) and part.worse == 28
    assert "no test" in part.words and corrected([part])[0].p_corrected is None


def test_few_queries_decide_nothing() -> None:
    assert difference([]).words == "no test: 0 queries, two are needed" and difference([]).delta is None
    assert difference([0.1]).words == "no test: 1 query, two are needed" and difference([0.1]).p is None
    clear = [0.1 + 0.001 * place for place in range(20)]
    nineteen, twenty = (corrected([difference(clear[:n])])[0] for n in (19, 20))
    assert nineteen.p_corrected is not None and nineteen.p_corrected < 0.0001
    assert not nineteen.significant and nineteen.verdict == "few queries"
    assert twenty.significant and twenty.verdict == "higher"


@pytest.mark.parametrize("wrong", [math.nan, math.inf, -math.inf])
def test_what_is_no_number_is_refused(wrong: float) -> None:
    values = np.array([0.5, wrong])
    with pytest.raises(ValueError, match="Value 1 is"):
        paired_difference(np.zeros(2), values)
    with pytest.raises(ValueError, match="Value 1 is"):
        bootstrap_interval(values)
    with pytest.raises(ValueError, match="paired by query"):
        paired_difference(np.zeros(3), np.zeros(2))


def test_holm_worked_by_hand() -> None:
    # 0.01 x 4; 0.02 x 3; 0.03 x 2 is no smaller than what precedes it; 0.005 x 1 would be.
    assert holm([0.03, 0.01, 0.5, 0.02]) == pytest.approx([0.06, 0.04, 0.5, 0.06])
    assert holm([0.6, 0.7]) == [1.0, 1.0] and holm([]) == []
    # A test that was none makes the others no less sure.
    assert holm([0.03, None, math.nan]) == [0.03, None, None]


@given(st.lists(st.floats(0, 1), max_size=8))
def test_holm_equals_its_closed_form(p_values: list[float]) -> None:
    """The largest, over all tests with a p as small or smaller, of that p times the tests that are left."""
    m = len(p_values)
    order = sorted(range(m), key=lambda place: p_values[place])
    for rank, place in enumerate(order):
        expected = max(min(1.0, (m - j) * p_values[order[j]]) for j in range(rank + 1))
        assert holm(p_values)[place] == pytest.approx(expected)


def test_identical_systems_stay_outside_the_correction() -> None:
    changes = list(np.random.default_rng(3).normal(0.03, 0.1, 60))
    alone = corrected([difference(changes)])[0]
    beside, same, too_few = corrected([difference(changes), difference([0.0] * 60), difference([0.1])])
    assert beside.p_corrected == alone.p_corrected == alone.p
    assert same.p_corrected == 1.0 and same.words == "identical on all 60 queries"
    assert too_few.p_corrected is None
    twice = corrected([difference(changes), difference(changes)])
    assert twice[0].p_corrected == pytest.approx(2 * (alone.p or 0.0))


@settings(deadline=None, max_examples=20)
@given(st.lists(VALUES, min_size=2, max_size=60))
def test_the_bootstrap_interval_equals_scipy_s_and_repeats(values: list[float]) -> None:
    array = np.array(values)
    found = bootstrap_interval(array)
    assert found is not None and found == bootstrap_interval(array)
    if np.ptp(array) == 0:
        assert found == Interval(pytest.approx(array[0]), pytest.approx(array[0]))  # type: ignore[arg-type]
        return
    means = np.random.default_rng(1).choice(array, (10_000, len(array))).mean(axis=1)
    # Both are drawn: each bound lies where the other's, of a little more and a little less, would.
    low_least, low_most, high_least, high_most = np.percentile(means, [1.2, 3.8, 96.2, 98.8])
    assert low_least - 1e-12 <= found.low <= low_most + 1e-12
    assert high_least - 1e-12 <= found.high <= high_most + 1e-12
    assert bootstrap_interval(array[:1]) is None


def test_p_has_two_significant_digits() -> None:
    shown = {0.034: "p = 0.034", 0.2: "p = 0.20", 1.0: "p = 1.0", 0.000123: "p = 0.00012", 0.00001: "p < 0.0001"}
    assert {p: p_words(p) for p in shown} == shown and p_words(0.0) == "p < 0.0001"


def slow_tukey(values: Any, resamples: int) -> Any:
    """A permutation after the other, drawn as ``randomised_tukey`` draws them."""
    systems, queries = values.shape
    orders = list(itertools.permutations(range(systems)))
    rng = np.random.default_rng(SEED)
    drawn = [rng.integers(0, len(orders), resamples, np.uint8) for _ in range(queries)]
    as_far = np.zeros((systems, systems))
    for row in zip(*drawn, strict=True):
        permuted = np.array([values[list(orders[one]), query] for query, one in enumerate(row)])
        means = permuted.mean(axis=0)
        for one, other in np.ndindex(systems, systems):
            as_far[one, other] += means.max() - means.min() >= abs(values[one].mean() - values[other].mean()) - 1e-12
    return (as_far + 1) / (resamples + 1)


@pytest.mark.parametrize("systems", [2, 3, 4])
def test_the_randomised_tukey_test_equals_a_slow_one(systems: int) -> None:
    values = np.random.default_rng(systems).beta(1, 2, (systems, 15)).round(2)
    values[-1] += 0.1
    found = randomised_tukey(values, resamples=200)
    np.testing.assert_array_equal(found, slow_tukey(values, 200))
    np.testing.assert_array_equal(found, found.T)
    assert (np.diag(found) == 1).all()


def test_the_randomised_tukey_test_agrees_with_every_permutation_counted() -> None:
    values = np.array([[0.9, 0.4, 0.7], [0.2, 0.3, 0.5], [0.5, 0.4, 0.1]])
    ranges = []
    for orders in itertools.product(itertools.permutations(range(3)), repeat=3):
        ranges.append(np.ptp(np.mean([values[list(order), query] for query, order in enumerate(orders)], axis=0)))
    means = values.mean(axis=1)
    exact = (np.array(ranges)[:, None, None] >= np.abs(means[:, None] - means) - 1e-12).mean(axis=0)
    assert np.abs(randomised_tukey(values) - exact).max() < 0.02  # four standard deviations of 10,000 draws


def test_the_randomised_tukey_test_errs_once_in_twenty_families() -> None:
    """Four systems that do not differ, in queries of shared difficulty: 400 families."""
    rng = np.random.default_rng(11)
    wrong = 0
    for _ in range(400):
        values = rng.beta(1, 2, 40) + rng.normal(0, 0.1, (4, 40))
        wrong += int((randomised_tukey(values, resamples=300) <= ALPHA).any())
    assert 8 <= wrong <= 33  # 20 are expected, within three standard deviations


def test_tukey_s_family_is_what_is_tested() -> None:
    rng = np.random.default_rng(3)
    values = rng.beta(1, 2, 60) + rng.normal(0, 0.1, (4, 60))
    values[1] = values[0]
    values[2] += 0.05
    reasons = [None, None, Outcome.INCOMPLETE]
    identical, tested, incomplete = differences(values, test=PairedTest.RANDOMISED_TUKEY, untested=reasons)
    assert (identical.outcome, identical.p, identical.p_corrected) == (Outcome.IDENTICAL, 1.0, 1.0)
    assert (incomplete.outcome, incomplete.p_corrected) == (Outcome.INCOMPLETE, None)
    assert tested.p == tested.p_corrected == randomised_tukey(values[[0, 2]])[0, 1]
    every = differences(values[[0, 2, 3]], test=PairedTest.RANDOMISED_TUKEY)
    assert [one.p for one in every] == randomised_tukey(values[[0, 2, 3]])[0, 1:].tolist()

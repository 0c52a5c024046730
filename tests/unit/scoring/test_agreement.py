"""Agreement of judges, by published examples, by hand, and against other people's code."""

from __future__ import annotations

import krippendorff
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from sklearn.metrics import cohen_kappa_score

from scoring.agreement import (
    confusion,
    judges_agreement,
    ordinal_alpha,
    raw_agreement,
    set_agreement,
    spreads,
    weighted_kappa,
)

NONE = np.nan
GRADES = [0, 1, 2, 3]
# Krippendorff, Computing Krippendorff's Alpha-Reliability (2011), section E: four observers, twelve units.
OBSERVERS = np.array([
    [1, 2, 3, 3, 2, 1, 4, 1, 2, NONE, NONE, NONE],
    [1, 2, 3, 3, 2, 2, 4, 1, 2, 5, NONE, 3],
    [NONE, 3, 3, 3, 2, 3, 4, 2, 2, 5, 1, NONE],
    [1, 2, 3, 3, 2, 4, 4, 1, 2, 5, 1, NONE],
])  # fmt: skip
# The first two raters of `anxiety` in R's package irr, of whom its manual gives the squared-weights kappa 0.297.
ANXIETY = (
    [3, 3, 3, 4, 5, 5, 2, 3, 5, 2, 2, 6, 1, 5, 2, 2, 1, 2, 4, 3],
    [3, 6, 4, 6, 2, 4, 2, 4, 3, 3, 2, 3, 3, 3, 2, 2, 1, 3, 3, 4],
)

ratings = arrays(
    np.float64, st.tuples(st.integers(2, 5), st.integers(1, 30)), elements=st.sampled_from([*map(float, GRADES), NONE])
)


def test_alpha_of_the_published_example() -> None:
    found = set_agreement(OBSERVERS)
    assert found.alpha == pytest.approx(0.815, abs=5e-4)
    assert found.doubly_judged == 11  # the last unit has one observer only
    assert found.distribution == {1: 9, 2: 13, 3: 11, 4: 5, 5: 3} and not found.sentence


def test_kappa_of_the_published_example() -> None:
    first, second = (np.array(row, float) for row in ANXIETY)
    found = judges_agreement(first, second, grades=[1, 2, 3, 4, 5, 6])
    assert found.kappa == pytest.approx(0.297, abs=5e-4) and found.n == 20
    assert found.raw == pytest.approx(6 / 20)


def test_kappa_by_hand() -> None:
    # Ten pairs, five by five; two of the second row are one grade off: observed 2, expected 5 * 3 / 10 + 5 * 7 / 10.
    table = np.array([[5, 0], [2, 3]])
    assert weighted_kappa(table, [0, 1]) == pytest.approx(1 - 2 / (5 * 3 / 10 + 5 * 7 / 10))


def test_the_distance_of_grades_counts_not_their_place() -> None:
    by_one = weighted_kappa(np.array([[4, 1, 0], [0, 0, 0], [0, 0, 5]]), [0, 1, 3])
    by_three = weighted_kappa(np.array([[4, 0, 1], [0, 0, 0], [0, 0, 5]]), [0, 1, 3])
    assert by_one is not None and by_three is not None and by_one > by_three


def test_few_pairs_get_a_sentence_instead_of_a_coefficient() -> None:
    found = set_agreement(OBSERVERS[:, :9])
    assert found.alpha is None and found.sentence.startswith("9 pairs have two judgements")
    assert found.raw is not None  # what was counted is still told
    two = judges_agreement(OBSERVERS[0, :9], OBSERVERS[1, :9], grades=[1, 2, 3, 4])
    assert two.kappa is None and two.n == 9 and two.raw == pytest.approx(8 / 9)
    assert set_agreement(np.full((2, 3), NONE)).sentence.startswith("No pair has")


def test_one_grade_alone_has_no_coefficient() -> None:
    found = set_agreement(np.ones((2, 12)))
    assert found.alpha is None and "the same grade" in found.sentence and found.raw == 1
    assert judges_agreement(np.ones(12), np.ones(12), grades=GRADES).kappa is None


def test_a_spread_needs_two_judgements() -> None:
    found = spreads(np.array([[0, 1, NONE], [2, NONE, NONE], [3, NONE, NONE]]))
    assert found[0] == 3 and np.isnan(found[1:]).all()


@given(ratings)
def test_alpha_is_that_of_the_package_krippendorff(grades: np.ndarray) -> None:
    found = ordinal_alpha(grades)
    paired = grades[:, np.count_nonzero(~np.isnan(grades), axis=0) >= 2]
    if len(np.unique(paired[~np.isnan(paired)])) < 2:
        assert found is None
    else:
        assert found == pytest.approx(krippendorff.alpha(grades, level_of_measurement="ordinal"), abs=1e-9)


@given(ratings)
def test_kappa_is_that_of_scikit_learn(grades: np.ndarray) -> None:
    first, second = grades[0], grades[1]
    both = ~np.isnan(first) & ~np.isnan(second)
    found = weighted_kappa(confusion(first, second, grades=GRADES), GRADES)
    if not both.any() or len(set(first[both]) | set(second[both])) < 2:
        assert found is None
    else:
        theirs = cohen_kappa_score(first[both], second[both], labels=GRADES, weights="quadratic")
        assert found == pytest.approx(theirs, abs=1e-9)


@given(ratings, st.randoms(use_true_random=False))
def test_neither_the_order_of_judges_nor_of_pairs_matters(grades: np.ndarray, random: np.random.Generator) -> None:
    judges, pairs = list(range(grades.shape[0])), list(range(grades.shape[1]))
    random.shuffle(judges)
    random.shuffle(pairs)
    mixed = grades[judges][:, pairs]
    assert ordinal_alpha(mixed) == pytest.approx(ordinal_alpha(grades))
    assert raw_agreement(mixed) == pytest.approx(raw_agreement(grades))


@given(ratings)
def test_who_agree_on_all_have_one(grades: np.ndarray) -> None:
    same = np.where(np.isnan(grades), NONE, np.nanmax(np.nan_to_num(grades, nan=-1), axis=0))
    assert raw_agreement(same) in (None, 1)
    assert ordinal_alpha(same) in (None, 1)

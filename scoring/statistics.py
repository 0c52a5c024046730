"""How sure one may be of a measure: tests, intervals and corrections over values paired by query. Pure functions.

``values`` are float64 [n], one per query, in the same order for every system that is compared. References: Smucker,
Allan and Carterette, A comparison of statistical significance tests for information retrieval evaluation, CIKM 2007
(paired t and randomisation); Carterette, Multiple testing in statistical analysis of systems-based information
retrieval experiments, TOIS 2012 (randomised Tukey HSD); Efron and Tibshirani, An introduction to the bootstrap, 1993,
chapter 13 (percentile interval); Holm, A simple sequentially rejective multiple test procedure, Scandinavian Journal of
Statistics 1979; Phipson and Smyth, Permutation p-values should never be zero, 2010 (the + 1 in a randomisation test's
p).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from itertools import permutations
from typing import Any, Final

import numpy as np
import numpy.typing as npt
from scipy import stats

Floats = npt.NDArray[np.float64]

LEVEL: Final = 0.95  # of every interval
ALPHA: Final = 0.05  # a corrected p up to this is called a difference
FEW: Final = 20  # with fewer queries a test is shown only on request, and decides nothing
RESAMPLES: Final = 10_000
EXACT: Final = 13  # up to so many queries all 2^n signs are tried
SEED: Final = 20_070_611
NOISE: Final = 1e-12  # what differs by less is the order in which the same numbers were added
SMALLEST: Final = 0.0001  # p below it is not told more exactly
BLOCK: Final = 1_000_000  # numbers at once: bounds the memory


class PairedTest(StrEnum):
    T = "t"
    RANDOMISATION = "randomisation"
    RANDOMISED_TUKEY = "randomised_tukey"  # of all systems at once

    @property
    def words(self) -> str:
        return {
            PairedTest.T: "paired t-test, two-sided",
            PairedTest.RANDOMISATION: "randomisation test of the paired differences, two-sided, "
            f"{RESAMPLES:,} sign flips",
            PairedTest.RANDOMISED_TUKEY: f"randomised Tukey HSD test, {RESAMPLES:,} permutations of the rankings' "
            "values within each query",
        }[self]

    @property
    def correction(self) -> str:
        """How one measure's p are corrected for how many there are, by the name that reports give it."""
        return "tukey" if self == PairedTest.RANDOMISED_TUKEY else "holm"

    @property
    def correction_words(self) -> str:
        if self == PairedTest.RANDOMISED_TUKEY:
            return "in the test itself, over all pairs of rankings of one measure"
        return "Holm over the rankings of one measure"


class Outcome(StrEnum):
    """What a test could do with the differences."""

    TESTED = "tested"
    IDENTICAL = "identical"  # no query differs
    CONSTANT = "constant"  # all queries differ by the same
    TOO_FEW = "too_few"  # below two queries nothing varies
    INCOMPLETE = "incomplete"  # a system has not scored everything: its mean is a part of one
    COVERAGE = "coverage"  # tells what was judged, not how good a ranking is


UNTESTED: Final = {
    Outcome.INCOMPLETE: "incomplete: not every pair was scored, no test",
    Outcome.COVERAGE: "how much was judged, no test",
}


@dataclass(frozen=True, slots=True)
class Interval:
    low: float
    high: float


@dataclass(frozen=True, slots=True)
class Difference:
    """Of a system from the baseline over ``n`` queries, in the measure's unit. ``interval`` is the t interval of
    ``delta``, whichever the test; ``p`` is two-sided, None where there is no test; ``p_corrected`` is set by
    ``corrected``. A query is a tie where the two values differ by less than ``NOISE``."""

    n: int
    delta: float | None
    interval: Interval | None
    better: int
    equal: int
    worse: int
    outcome: Outcome
    p: float | None
    p_corrected: float | None = None

    @property
    def few(self) -> bool:
        return self.n < FEW

    @property
    def significant(self) -> bool:
        return not self.few and self.p_corrected is not None and self.p_corrected <= ALPHA

    @property
    def verdict(self) -> str:
        """In a word or two, by the corrected p."""
        if self.outcome == Outcome.TOO_FEW:
            return "no test"
        if self.outcome in (Outcome.IDENTICAL, Outcome.INCOMPLETE, Outcome.COVERAGE):
            return self.outcome.value
        if self.few:
            return "few queries"
        if not self.significant:
            return "no difference shown"
        return "higher" if (self.delta or 0.0) > 0 else "lower"

    @property
    def words(self) -> str:
        """What the test found, for a reader who sees nothing else."""
        if self.outcome in UNTESTED:
            return UNTESTED[self.outcome]
        queries = f"{self.n:,} {'query' if self.n == 1 else 'queries'}"
        if self.outcome == Outcome.TOO_FEW:
            return f"no test: {queries}, two are needed"
        if self.outcome == Outcome.IDENTICAL:
            return f"identical on all {queries}"
        shown = self.p if self.p_corrected is None else self.p_corrected
        assert shown is not None  # the two outcomes that are left have a p
        tested = p_words(shown)
        if self.outcome == Outcome.CONSTANT:
            tested = f"the same difference on all {queries}, {tested}"
        return f"few queries ({self.n}): {tested} decides nothing" if self.few else tested


def paired_changes(baseline: Floats, other: Floats) -> Floats:
    """``other`` - ``baseline`` [n], 0 where they differ by no more than the order of adding explains; NaN stays."""
    changes = other - baseline
    changes[np.abs(changes) < NOISE] = 0.0
    return changes


def paired_difference(
    baseline: Floats, other: Floats, *, test: PairedTest = PairedTest.T, untested: Outcome | None = None
) -> Difference:
    """``other`` - ``baseline``, both [n]; ``untested`` says why there shall be no test (INCOMPLETE, COVERAGE). Raises
    ValueError for another shape or a value that is no number."""
    if baseline.ndim != 1 or baseline.shape != other.shape:
        raise ValueError(
            f"Values are paired by query: shapes {baseline.shape} and {other.shape} cannot be; give [n] both."
        )
    _refuse_non_finite(baseline)
    _refuse_non_finite(other)
    changes = paired_changes(baseline, other)
    outcome, p = (untested, None) if untested else _tested(changes, test)
    return Difference(
        n=len(changes),
        delta=float(changes.mean()) if len(changes) else None,
        interval=None if untested or len(changes) < 2 else t_interval(changes),
        better=int(np.count_nonzero(changes > 0)),
        equal=int(np.count_nonzero(changes == 0)),
        worse=int(np.count_nonzero(changes < 0)),
        outcome=outcome,
        p=p,
    )


def differences(
    values: Floats, *, test: PairedTest = PairedTest.T, untested: Sequence[Outcome | None] | None = None
) -> list[Difference]:
    """Of ``values[1:]`` from ``values[0]``, [systems, n], with their p corrected; ``untested`` [systems - 1] says of
    which there shall be no test. Raises ValueError as ``paired_difference`` does.

    In a randomised Tukey test p is corrected as it comes, over all pairs of those that are tested and the baseline.
    """
    reasons = untested or [None] * (len(values) - 1)
    alone = PairedTest.T if test == PairedTest.RANDOMISED_TUKEY else test
    found = [
        paired_difference(values[0], other, test=alone, untested=reason)
        for other, reason in zip(values[1:], reasons, strict=True)
    ]
    if test != PairedTest.RANDOMISED_TUKEY:
        return corrected(found)
    family = [place for place, one in enumerate(found) if one.outcome in (Outcome.TESTED, Outcome.CONSTANT)]
    p_values = randomised_tukey(values[[0, *(place + 1 for place in family)]])[0, 1:]
    for place, p in zip(family, p_values.tolist(), strict=True):
        found[place] = replace(found[place], outcome=Outcome.TESTED, p=p)
    return [replace(one, p_corrected=one.p) for one in found]


def _tested(changes: Floats, test: PairedTest) -> tuple[Outcome, float | None]:
    if len(changes) < 2:
        return Outcome.TOO_FEW, None
    if not changes.any():
        return Outcome.IDENTICAL, 1.0
    if test == PairedTest.RANDOMISATION:
        return Outcome.TESTED, randomisation_p(changes)
    if _is_constant(changes):  # without variance t is infinite
        return Outcome.CONSTANT, 0.0
    return Outcome.TESTED, t_p(changes)


def corrected(family: Sequence[Difference]) -> list[Difference]:
    """The differences of one measure from one baseline with their p corrected by Holm. Identical systems are no test:
    their p stays 1 and makes no other p larger."""
    tested = [one.p if one.outcome in (Outcome.TESTED, Outcome.CONSTANT) else None for one in family]
    adjusted = holm(tested)
    return [
        replace(one, p_corrected=one.p if found is None else found) for one, found in zip(family, adjusted, strict=True)
    ]


def holm(p_values: Sequence[float | None]) -> list[float | None]:
    """Adjusted p in the given order; None and NaN stay None and do not count as tests."""
    tests = sorted((p, place) for place, p in enumerate(p_values) if p is not None and not np.isnan(p))
    adjusted: list[float | None] = [None] * len(p_values)
    highest = 0.0
    for rank, (p, place) in enumerate(tests):
        highest = max(highest, min(1.0, p * (len(tests) - rank)))
        adjusted[place] = highest
    return adjusted


def t_p(changes: Floats) -> float:
    """Two-sided p of the paired t-test of ``changes`` [n], n >= 2, not all the same."""
    return float(stats.ttest_1samp(changes, 0.0).pvalue)


def t_interval(changes: Floats) -> Interval:
    """Of the mean of ``changes`` [n], n >= 2; of no width where all are the same."""
    mean = float(changes.mean())
    if _is_constant(changes):
        return Interval(mean, mean)
    half = float(stats.t.ppf((1 + LEVEL) / 2, len(changes) - 1) * stats.sem(changes))
    return Interval(mean - half, mean + half)


def randomisation_p(changes: Floats) -> float:
    """Two-sided p of ``changes`` [n] when each sign might as well be the other: the share of sign flips whose mean is
    as far from 0. All flips for n <= 13, else 10,000 with a fixed seed and p = (as far + 1) / (10,000 + 1)."""
    if len(changes) <= EXACT:
        found = stats.permutation_test(
            (changes,), _distance, permutation_type="samples", alternative="greater", n_resamples=2**EXACT
        )
        return float(found.pvalue)
    rng = np.random.default_rng(SEED)

    def flipped(size: tuple[int, ...]) -> Any:
        bits = np.unpackbits(np.frombuffer(rng.bytes(-(-int(np.prod(size)) // 8)), np.uint8))
        return np.where(bits[: int(np.prod(size))].reshape(size), changes, -changes)

    # permutation_test shuffles each resample by itself, twenty times as slow as drawing the signs as bits.
    found = stats.monte_carlo_test(
        changes, flipped, _distance, alternative="greater", n_resamples=RESAMPLES, batch=max(1, BLOCK // len(changes))
    )
    return float(found.pvalue)


def randomised_tukey(values: Floats, *, resamples: int = RESAMPLES) -> Floats:
    """p [systems, systems] of the difference of each two, corrected for all of them: the share of permutations in which
    the highest and the lowest mean are as far apart, (as far + 1) / (``resamples`` + 1), with a fixed seed.

    Each query's ``values`` [systems, n], of two to five systems, are permuted, as if any system might have had any."""
    systems, queries = values.shape
    orders = np.array(list(permutations(range(systems))))
    rng, sums = np.random.default_rng(SEED), np.zeros((resamples, systems))
    for own in values.T:  # a query at a time, in all resamples: its permutations stay in the nearest cache
        sums += own[orders].take(rng.integers(0, len(orders), resamples, np.uint8), axis=0)
    ranges = np.sort(np.ptp(sums / queries, axis=1))
    means = values.mean(axis=1)
    # Less than NOISE apart is the same sum in another order.
    below = np.searchsorted(ranges, np.abs(means[:, None] - means) - NOISE)
    return (resamples - below + 1) / (resamples + 1)


def bootstrap_interval(values: Floats) -> Interval | None:
    """Of the mean of ``values`` [n] over queries: percentiles of 10,000 resamples with a fixed seed. None for n < 2,
    of no width where all are the same. Raises ValueError for a value that is no number."""
    _refuse_non_finite(values)
    if len(values) < 2:
        return None
    if _is_constant(values):
        mean = float(values.mean())
        return Interval(mean, mean)
    found = stats.bootstrap(
        (values,), np.mean, confidence_level=LEVEL, method="percentile", n_resamples=RESAMPLES,
        batch=max(1, BLOCK // len(values)), rng=np.random.default_rng(SEED),
    ).confidence_interval  # fmt: skip
    return Interval(float(found.low), float(found.high))


def p_words(p: float) -> str:
    """ "p = 0.034": two significant digits, and nothing more exact below 0.0001."""
    return "p < 0.0001" if p < SMALLEST else f"p = {p:#.2g}"


def _distance(changes: Any, axis: int) -> Any:
    """Rounded, so that flips with the same sum in another order are as far."""
    return np.round(np.abs(np.mean(changes, axis=axis)), 12)


def _is_constant(values: Floats) -> bool:
    return bool(np.ptp(values) < NOISE)


def _refuse_non_finite(values: Floats) -> None:
    wrong = np.flatnonzero(~np.isfinite(values))
    if len(wrong):
        raise ValueError(f"Value {wrong[0]:,} is {values[wrong[0]]}, no number; leave the query out on both sides.")

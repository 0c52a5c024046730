"""How far judges agree: Krippendorff's alpha for any number of them, quadratic-weighted kappa for two.

``ratings`` is float64 [J, N]: the grade that judge j gave pair n, NaN where there is none. Grades are ordinal: 0 and 3
are further apart than 0 and 1. No coefficient is given for fewer than ``FEWEST`` pairs with two judgements, where one
more judgement could turn it round, nor where all grades are the same, so that no disagreement was to be expected.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import numpy.typing as npt

Ratings = npt.NDArray[np.float64]
Counts = npt.NDArray[np.int64]
FEWEST: Final = 10
ALL_THE_SAME: Final = "All judgements are the same grade, so that a coefficient, which is against chance, has no value."


@dataclass(frozen=True, slots=True)
class SetAgreement:
    """``doubly_judged``: pairs with two judgements or more; ``raw``: of all two judgements of one pair, the share with
    the same grade; ``distribution``: judgements by grade. ``alpha`` is None where ``sentence`` says why."""

    doubly_judged: int
    raw: float | None
    alpha: float | None
    distribution: dict[int, int]
    sentence: str


@dataclass(frozen=True, slots=True)
class JudgesAgreement:
    """Of two judges over the ``n`` pairs that both judged. ``table`` int64 [K, K] counts them by the grade of the first
    (row) and of the second (column), of ``grades``. ``kappa`` is None where ``sentence`` says why."""

    n: int
    raw: float | None
    kappa: float | None
    grades: list[int]
    table: Counts
    sentence: str


def set_agreement(ratings: Ratings) -> SetAgreement:
    grades, counts = np.unique(ratings[~np.isnan(ratings)], return_counts=True)
    doubly = int(np.count_nonzero(_judged(ratings) >= 2))
    alpha = ordinal_alpha(ratings) if doubly >= FEWEST else None
    return SetAgreement(
        doubly_judged=doubly,
        raw=raw_agreement(ratings),
        alpha=alpha,
        distribution=dict(zip(grades.astype(int).tolist(), counts.tolist(), strict=True)),
        sentence=_sentence(doubly, alpha),
    )


def judges_agreement(first: Ratings, second: Ratings, *, grades: list[int]) -> JudgesAgreement:
    """``first`` and ``second``: float64 [N] over the same pairs; ``grades``: those of the scale."""
    table = confusion(first, second, grades=grades)
    n = int(table.sum())
    kappa = weighted_kappa(table, grades) if n >= FEWEST else None
    return JudgesAgreement(
        n=n,
        raw=float(np.trace(table)) / n if n else None,
        kappa=kappa,
        grades=grades,
        table=table,
        sentence=_sentence(n, kappa),
    )


def coincidences(ratings: Ratings) -> tuple[Ratings, Ratings]:
    """Values [K] that occur in pairs with two judgements, ascending, and how often each meets each, float64 [K, K]: in
    both orders, a pair with m judgements counting m in all."""
    judged = _judged(ratings)
    paired = ratings[:, judged >= 2]
    weights = 1 / (judged[judged >= 2] - 1)
    values = np.unique(paired[~np.isnan(paired)])
    counts = (paired[None] == values[:, None, None]).sum(axis=1).astype(float)  # [K, N]
    return values, (counts * weights) @ counts.T - np.diag(counts @ weights)


def ordinal_alpha(ratings: Ratings) -> float | None:
    """Krippendorff (Computing Krippendorff's Alpha-Reliability, 2011): 1 - observed / expected disagreement, with the
    ordinal distance: the square of how many judgements lie between two grades, half of those at both ends."""
    values, met = coincidences(ratings)
    if len(values) < 2:
        return None
    totals = met.sum(axis=1)
    middle = np.cumsum(totals) - totals / 2
    distance = (middle[:, None] - middle[None]) ** 2
    observed = (met * distance).sum()
    expected = (np.outer(totals, totals) * distance).sum() / (totals.sum() - 1)
    return float(1 - observed / expected)


def raw_agreement(ratings: Ratings) -> float | None:
    """Of all two judgements of one pair by different judges, the share with the same grade; None without any."""
    judged = _judged(ratings)
    both = float((judged * (judged - 1) / 2).sum())
    values = np.unique(ratings[~np.isnan(ratings)])
    counts = (ratings[None] == values[:, None, None]).sum(axis=1)  # [K, N]
    return float((counts * (counts - 1) / 2).sum()) / both if both else None


def confusion(first: Ratings, second: Ratings, *, grades: list[int]) -> Counts:
    """Pairs that both judged, int64 [K, K]: row by the grade of ``first``, column by that of ``second``."""
    both = ~np.isnan(first) & ~np.isnan(second)
    places = np.array(grades)
    table = np.zeros((len(grades), len(grades)), np.int64)
    np.add.at(table, (np.searchsorted(places, first[both]), np.searchsorted(places, second[both])), 1)
    return table


def weighted_kappa(table: Counts, grades: list[int]) -> float | None:
    """Cohen's kappa (1968) with quadratic weights, from ``table`` int64 [K, K]; None where chance alone would have the
    two agree on every pair."""
    places = np.array(grades, float)
    weights = (places[:, None] - places[None]) ** 2
    n = table.sum()
    expected = (np.outer(table.sum(axis=1), table.sum(axis=0)) / n * weights).sum() if n else 0.0
    return float(1 - (table * weights).sum() / expected) if expected else None


def spreads(ratings: Ratings) -> Any:
    """Highest less lowest grade of each pair, float64 [N]; NaN for a pair with fewer than two judgements."""
    found = np.full(ratings.shape[1], np.nan)
    doubly = _judged(ratings) >= 2
    found[doubly] = np.nanmax(ratings[:, doubly], axis=0) - np.nanmin(ratings[:, doubly], axis=0)
    return found


def _judged(ratings: Ratings) -> Counts:
    """Judgements of each pair, int64 [N]."""
    return np.count_nonzero(~np.isnan(ratings), axis=0)


def _sentence(doubly_judged: int, coefficient: float | None) -> str:
    if doubly_judged < FEWEST:
        had = (
            "No pair has"
            if not doubly_judged
            else "1 pair has"
            if doubly_judged == 1
            else f"{doubly_judged} pairs have"
        )
        return (
            f"{had} two judgements; a coefficient is told from {FEWEST} on, as one judgement more could turn it round."
        )
    return "" if coefficient is not None else ALL_THE_SAME

"""From which score on to call a document relevant: precision, recall and F1 of cut-offs over judged pairs.

n judged pairs, Q queries with such, C cut-offs, B resamples. All three are shares: of the pairs at or above the cut-off
those that are relevant, of the relevant those at or above it, and F1 = 2 j / (1 + j), where j is the relevant at or
above it as a share of all that are relevant or at or above it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import numpy.typing as npt

Z: Final = 1.959964  # of a normal distribution, 95 % lie within it
RESAMPLES: Final = 1_000
SEED: Final = 20_071
FEWEST_QUERIES: Final = 10  # for intervals by query
MOST_CUT_OFFS: Final = 100


@dataclass(frozen=True, slots=True)
class JudgedScores:
    """``scores`` float64 [n], ``relevant`` bool [n], ``queries`` int64 [n]: any number that tells queries apart."""

    scores: npt.NDArray[np.float64]
    relevant: npt.NDArray[np.bool_]
    queries: npt.NDArray[np.int64]

    @property
    def query_count(self) -> int:
        return len(np.unique(self.queries))

    @property
    def relevant_count(self) -> int:
        return int(np.count_nonzero(self.relevant))


@dataclass(frozen=True, slots=True)
class Estimate:
    """``value`` with its 95 % interval."""

    value: float
    low: float
    high: float


@dataclass(frozen=True, slots=True)
class CutOff:
    """``above``: judged pairs with a score of at least ``score``; ``found``: of these, the relevant ones. ``precision``
    is None where no pair is as high."""

    score: float
    above: int
    found: int
    precision: Estimate | None
    recall: Estimate
    f1: Estimate


def candidates(judged: JudgedScores) -> list[float]:
    """Scores to cut at, ascending: each that occurs, or where there are many, some of them evenly spread by rank."""
    distinct = np.unique(judged.scores)
    places = np.linspace(0, len(distinct) - 1, min(len(distinct), MOST_CUT_OFFS)).round().astype(int)
    return [float(score) for score in distinct[places]]


def best(cut_offs: Sequence[CutOff]) -> CutOff:
    """The one of the highest F1; of several the highest, which lets the fewest pairs through."""
    return max(cut_offs, key=lambda each: (each.f1.value, each.score))


def cut_offs(judged: JudgedScores, scores: Sequence[float]) -> list[CutOff]:
    """One per score of ``scores``. There must be a relevant pair.

    An interval is the wider one, end by end, of Wilson's over pairs and the percentiles of ``RESAMPLES`` resamples of
    whole queries (fixed seed): Wilson's knows how few pairs there are, the other that those of one query are alike.
    With fewer than ``FEWEST_QUERIES`` queries it is Wilson's alone.
    """
    _, query = np.unique(judged.queries, return_inverse=True)
    over = judged.scores[:, None] >= np.array(scores)[None]  # [n, C]
    above = _by_query(query, over)  # [Q, C]
    found = _by_query(query, over & judged.relevant[:, None])
    relevant = _by_query(query, judged.relevant[:, None])  # [Q, 1]
    sides = (found, above), (found, relevant + 0 * above), (found, above + relevant - found)
    estimates = zip(*(_shares(part, whole) for part, whole in sides), strict=True)
    return [
        CutOff(score, int(above[:, c].sum()), int(found[:, c].sum()), precision, _there(recall), _f1(_there(overlap)))
        for c, (score, (precision, recall, overlap)) in enumerate(zip(scores, estimates, strict=True))
    ]


def wilson(part: int, whole: int) -> tuple[float, float]:
    """Wilson's 95 % score interval (1927) of ``part`` of ``whole``."""
    share = part / whole
    centre = share + Z**2 / (2 * whole)
    half = Z * (share * (1 - share) / whole + Z**2 / (4 * whole**2)) ** 0.5
    return max((centre - half) / (1 + Z**2 / whole), 0.0), min((centre + half) / (1 + Z**2 / whole), 1.0)


def _by_query(query: Any, flags: Any) -> Any:
    """Counts int64 [Q, C] of bool [n, C]."""
    counts = np.zeros((int(query.max()) + 1, flags.shape[1]), np.int64)
    np.add.at(counts, query, flags)
    return counts


def _shares(part: Any, whole: Any) -> list[Estimate | None]:
    """Of each column of int64 [Q, C]."""
    draws = _draws(len(part))
    with np.errstate(invalid="ignore"):  # a resample without any such pair says nothing
        resampled = (draws @ part) / (draws @ whole)  # [B, C]
    found: list[Estimate | None] = []
    for column, (p, w) in enumerate(zip(part.sum(axis=0).tolist(), whole.sum(axis=0).tolist(), strict=True)):
        if not w:
            found.append(None)
            continue
        low, high = wilson(p, w)
        if draws.size:
            ends = np.nanpercentile(resampled[:, column], (2.5, 97.5))
            low, high = min(low, float(ends[0])), max(high, float(ends[1]))
        found.append(Estimate(p / w, low, high))
    return found


def _draws(queries: int) -> Any:
    """How often each query is in each resample, float32 [B, Q]: no row at all for few queries."""
    if queries < FEWEST_QUERIES:
        return np.empty((0, queries), np.float32)
    generator = np.random.default_rng(SEED)
    return generator.multinomial(queries, np.full(queries, 1 / queries), RESAMPLES).astype(np.float32)


def _there(estimate: Estimate | None) -> Estimate:
    if estimate is None:
        raise ValueError("No pair is relevant, so that there is nothing to find.")
    return estimate


def _f1(overlap: Estimate) -> Estimate:
    return Estimate(*(2 * share / (1 + share) for share in (overlap.value, overlap.low, overlap.high)))

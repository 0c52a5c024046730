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
DRAWS_AT_ONCE: Final = 5_000_000  # of queries, so that many queries take no memory that shows


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
    """One per score of ``scores``, which ascend. There must be a relevant pair.

    An interval is the wider one, end by end, of Wilson's over pairs and the percentiles of ``RESAMPLES`` resamples of
    whole queries (fixed seed): Wilson's knows how few pairs there are, the other that those of one query are alike.
    With fewer than ``FEWEST_QUERIES`` queries it is Wilson's alone.
    """
    names, query = np.unique(judged.queries, return_inverse=True)
    reached = np.searchsorted(np.array(scores), judged.scores, side="right")  # how many cut-offs, [n]
    above = _by_query(query, reached, shape=(len(names), len(scores)))
    found = _by_query(query[judged.relevant], reached[judged.relevant], shape=above.shape)
    relevant = np.bincount(query[judged.relevant], minlength=len(names))[:, None].repeat(len(scores), axis=1)
    sides = (found, above), (found, relevant), (found, above + relevant - found)
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


def _by_query(query: Any, reached: Any, *, shape: tuple[int, int]) -> Any:
    """Pairs int64 [Q, C] of each query, ``query`` [n], that reach each cut-off, of which ``reached`` [n] are the first
    ones."""
    width = shape[1] + 1
    counts = np.bincount(query * width + reached, minlength=shape[0] * width).reshape(shape[0], width)
    return counts[:, ::-1].cumsum(axis=1)[:, ::-1][:, 1:]


def _shares(part: Any, whole: Any) -> list[Estimate | None]:
    """Of each column of int64 [Q, C]."""
    resampled = _resampled(part, whole)
    found: list[Estimate | None] = []
    for column, (p, w) in enumerate(zip(part.sum(axis=0).tolist(), whole.sum(axis=0).tolist(), strict=True)):
        if not w:
            found.append(None)
            continue
        low, high = wilson(p, w)
        if len(resampled):
            ends = np.nanpercentile(resampled[:, column], (2.5, 97.5))
            low, high = min(low, float(ends[0])), max(high, float(ends[1]))
        found.append(Estimate(p / w, low, high))
    return found


def _resampled(part: Any, whole: Any) -> Any:
    """The same shares in each resample, float64 [B, C], NaN where one has no such pair; no row for few queries."""
    queries = len(part)
    if queries < FEWEST_QUERIES:
        return np.empty((0, part.shape[1]))
    generator = np.random.default_rng(SEED)
    blocks = []
    for start in range(0, RESAMPLES, step := max(DRAWS_AT_ONCE // queries, 1)):
        size = min(step, RESAMPLES - start)
        draws = generator.multinomial(queries, np.full(queries, 1 / queries), size).astype(np.float64)  # [b, Q]
        with np.errstate(invalid="ignore"):
            blocks.append((draws @ part) / (draws @ whole))
    return np.concatenate(blocks)


def _there(estimate: Estimate | None) -> Estimate:
    if estimate is None:
        raise ValueError("No pair is relevant, so that there is nothing to find.")
    return estimate


def _f1(overlap: Estimate) -> Estimate:
    return Estimate(*(2 * share / (1 + share) for share in (overlap.value, overlap.low, overlap.high)))

"""How alike two rankings are. Pure functions of ranks over many queries at once; scores play no part.

References: Webber, Moffat and Zobel, A similarity measure for indefinite rankings, TOIS 2010 (rank-biased overlap,
extrapolated, their equation 32); Kendall's tau-b, which over two rankings without ties is tau.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import numpy.typing as npt

Integers = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]
ABSENT: Final = -1


@dataclass(frozen=True, slots=True)
class Rankings:
    """Ranked lists of Q queries: ``documents`` int64 [sum of lengths], one list after the other, best first, none of
    them twice in a list; ``lengths`` int64 [Q]."""

    documents: Integers
    lengths: Integers

    @property
    def owners(self) -> Integers:
        """Of every document the query whose list it is in."""
        return np.repeat(np.arange(len(self.lengths)), self.lengths)

    @property
    def ranks(self) -> Integers:
        """Of every document its place in its list, from 0."""
        starts = np.cumsum(self.lengths) - self.lengths
        return np.arange(len(self.documents)) - np.repeat(starts, self.lengths)


@dataclass(frozen=True, slots=True)
class Pair:
    """Two rankings of the same Q queries. ``other`` int64 [documents of ``first``]: the rank in ``second``, from 0, or
    ABSENT. The three arrays of shared documents are in the order of the queries, and of ``first`` within one."""

    first: Rankings
    second: Rankings
    other: Integers
    owners: Integers
    first_ranks: Integers
    second_ranks: Integers

    @classmethod
    def of(cls, first: Rankings, second: Rankings) -> Pair:
        other = _ranks_in(first, second)
        shared = other != ABSENT
        return cls(first, second, other, first.owners[shared], first.ranks[shared], other[shared])

    @property
    def size(self) -> int:
        return len(self.first.lengths)

    @property
    def shared(self) -> Integers:
        """Documents in both lists, by query."""
        return np.bincount(self.owners, minlength=self.size)


def _ranks_in(first: Rankings, second: Rankings) -> Integers:
    width = 1 + max(int(ranking.documents.max(initial=0)) for ranking in (first, second))
    keys = second.owners * width + second.documents
    order = np.argsort(keys, kind="stable")
    wanted = first.owners * width + first.documents
    if not len(keys):
        return np.full(len(wanted), ABSENT, np.int64)
    places = order[np.minimum(np.searchsorted(keys, wanted, sorter=order), len(keys) - 1)]
    return np.where(keys[places] == wanted, second.ranks[places], ABSENT)


def rank_biased_overlap(pair: Pair, p: float) -> Floats:
    """[Q] from 0 (nothing shared) to 1 (the same list), extrapolated beyond the ends of lists of any two lengths; NaN
    where one of them is empty. With a ``p`` of 0.9 the first ten ranks have 86 % of the weight, with 0.5 the first two
    89 %.
    """
    short, long = np.minimum(pair.first.lengths, pair.second.lengths), np.maximum(*_lengths(pair))
    depths = int(long.max(initial=0))
    there = np.zeros(pair.size * depths, np.int64)
    if depths:
        seen = pair.owners * depths + np.maximum(pair.first_ranks, pair.second_ranks)
        there = np.bincount(seen, minlength=len(there))
    overlap = np.cumsum(there.reshape(pair.size, depths), axis=1)
    at = np.arange(1, depths + 1)
    weights = p**at
    powers, harmonic = (np.concatenate([[0.0], np.cumsum(part)]) for part in (weights, weights / at))
    agreed = np.where(at <= long[:, None], overlap * (weights / at), 0.0).sum(axis=1)
    everything = np.concatenate([np.zeros((pair.size, 1), np.int64), overlap], axis=1)
    rows = np.arange(pair.size)
    short_overlap, long_overlap = everything[rows, short], everything[rows, long]
    with np.errstate(invalid="ignore", divide="ignore"):
        assumed = short_overlap * ((powers[long] - powers[short]) / short - (harmonic[long] - harmonic[short]))
        beyond = ((long_overlap - short_overlap) / long + short_overlap / short) * p**long
        value = (1 - p) / p * (agreed + assumed) + beyond
    return np.where(short > 0, np.clip(value, 0.0, 1.0), np.nan)


def overlap_at(pair: Pair, k: int) -> Floats:
    """[Q] the share of the first ``k`` documents, or of as many as the longer list has, that are among the first ``k``
    of both; NaN where one of them is empty."""
    top = (pair.first_ranks < k) & (pair.second_ranks < k)
    shared = np.bincount(pair.owners[top], minlength=pair.size)
    of = np.minimum(np.maximum(*_lengths(pair)), k)
    empty = np.minimum(*_lengths(pair)) == 0
    return np.where(empty, np.nan, shared / np.maximum(of, 1))


def kendall_tau(pair: Pair) -> Floats:
    """[Q] tau-b of the order of the documents in both lists, from -1 to 1; NaN where these are fewer than two."""
    n = pair.shared
    discordant = inversions(pair.second_ranks, pair.owners, pair.size)
    with np.errstate(invalid="ignore", divide="ignore"):
        return np.where(n < 2, np.nan, 1.0 - 4.0 * discordant / (n * (n - 1.0)))


def inversions(values: Integers, owners: Integers, size: int) -> Integers:
    """[size] by owner, the pairs whose later value is the smaller one. ``owners`` ascend; within one no value is twice.

    One bit of the values after the other, the highest first: two values are told apart by the first bit in which they
    differ, and among those that agree so far each 0 is out of order with every 1 before it.
    """
    counts = np.zeros(size, np.int64)
    group = owners.astype(np.int64)
    for bit in reversed(range(int(values.max(initial=0)).bit_length())):
        high = (values >> bit) & 1
        before = np.cumsum(high) - high
        begins = np.flatnonzero(np.diff(group, prepend=-1))
        inside = before - np.repeat(before[begins], np.diff(np.append(begins, len(group))))
        counts += np.bincount(owners, weights=inside * (1 - high), minlength=size).astype(np.int64)
        group = group * 2 + high
        order = np.argsort(group, kind="stable")
        values, owners, group = values[order], owners[order], group[order]
    return counts


@dataclass(frozen=True, slots=True)
class Moves:
    """By query the document about which two rankings disagree the most: ``documents``, ABSENT where they do not;
    ``first_ranks`` and ``second_ranks`` from 1, 0: not in that list; ``weights`` from 0 to 1. All [Q]."""

    documents: Integers
    first_ranks: Integers
    second_ranks: Integers
    weights: Floats


def largest_moves(pair: Pair) -> Moves:
    """A disagreement is the difference of what a rank counts for in nDCG, 1 / log2(rank + 1); absence counts for 0."""
    second_only = np.ones(len(pair.second.documents), bool)
    begins = np.cumsum(pair.second.lengths) - pair.second.lengths
    second_only[begins[pair.owners] + pair.second_ranks] = False
    documents = np.concatenate([pair.first.documents, pair.second.documents[second_only]])
    owners = np.concatenate([pair.first.owners, pair.second.owners[second_only]])
    first = np.concatenate([pair.first.ranks, np.full(int(second_only.sum()), ABSENT)]) + 1
    second = np.concatenate([pair.other, pair.second.ranks[second_only]]) + 1
    weights = np.abs(_discount(first) - _discount(second))
    most = np.zeros(pair.size)
    np.maximum.at(most, owners, weights)
    moved = np.flatnonzero((weights > 0) & (weights == most[owners]))
    found, places = np.unique(owners[moved], return_index=True)
    largest = moved[places]
    nowhere = np.zeros(pair.size, np.int64)
    moves = Moves(nowhere + ABSENT, nowhere.copy(), nowhere.copy(), np.zeros(pair.size))
    moves.documents[found], moves.weights[found] = documents[largest], weights[largest]
    moves.first_ranks[found], moves.second_ranks[found] = first[largest], second[largest]
    return moves


def _discount(ranks: Integers) -> Floats:
    return np.where(ranks > 0, 1.0 / np.log2(np.maximum(ranks, 1) + 1.0), 0.0)


def _lengths(pair: Pair) -> tuple[Any, Any]:
    return pair.first.lengths, pair.second.lengths

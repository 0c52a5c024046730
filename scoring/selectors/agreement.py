"""How far the judges of a pool agree, and about which pairs they do not.

People are told apart from models. Counted are verdicts that were given without seeing ranks or other verdicts: by hand
and blind, or imported. "Cannot judge" is no grade."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import Final

import numpy as np
from django.db.models import F
from django.db.models import QuerySet as Rows

from scoring.agreement import JudgesAgreement, Ratings, SetAgreement, judges_agreement, set_agreement, spreads
from scoring.judging import grade_combined
from scoring.models import Judge, JudgingRule, Pool, PoolPair, Verdict, VerdictSource

INDEPENDENT: Final = (VerdictSource.BLIND, VerdictSource.IMPORTED)
SERIOUS: Final = 2  # grades apart


@dataclass(frozen=True, slots=True)
class PoolRatings:
    """``grades`` float64 [J, N] of ``judges`` over ``pairs`` (keys of PoolPair), NaN where there is none."""

    judges: list[Judge]
    pairs: list[int]
    grades: Ratings

    def of(self, people: bool) -> PoolRatings:
        own = [place for place, judge in enumerate(self.judges) if (judge.model_id is None) == people]
        return PoolRatings([self.judges[place] for place in own], self.pairs, self.grades[own])


@dataclass(frozen=True, slots=True)
class TwoJudges:
    """``second`` is None for all people together, by the pool's rule."""

    first: Judge
    second: Judge | None
    found: JudgesAgreement


@dataclass(frozen=True, slots=True)
class PoolAgreement:
    """``people``: over all people, and each two of them; ``models``: each model against all people and each of them.
    ``conflicts``: pairs about which people disagree, and ``serious`` those by two grades or more; none of them
    adjudicated yet."""

    people: SetAgreement
    two: list[TwoJudges]
    models: list[TwoJudges]
    conflicts: int
    serious: int


@dataclass(frozen=True, slots=True)
class Conflict:
    """A pair with what each person said of it. ``spread``: highest less lowest grade."""

    pair: PoolPair
    verdicts: list[Verdict]
    spread: int
    adjudication: Verdict | None


def pool_ratings(pool: Pool) -> PoolRatings:
    judges = list(Judge.objects.filter(pool=pool).select_related("model").order_by("pk"))
    verdicts = Verdict.objects.filter(
        pair__pool=pool, grade__isnull=False, source__in=(*INDEPENDENT, VerdictSource.MODEL)
    )
    rows = list(verdicts.values_list("judge_id", "pair_id", "grade"))
    pairs = sorted({pair for _, pair, _ in rows})
    place_of = {pair: place for place, pair in enumerate(pairs)}
    row_of = {judge.pk: row for row, judge in enumerate(judges)}
    grades = np.full((len(judges), len(pairs)), np.nan)
    for judge, pair, grade in rows:
        grades[row_of[judge], place_of[pair]] = grade
    told = np.flatnonzero(~np.isnan(grades).all(axis=1)).tolist()
    return PoolRatings([judges[row] for row in told], pairs, grades[told])


def pool_agreement(pool: Pool) -> PoolAgreement:
    ratings = pool_ratings(pool)
    people, models = ratings.of(people=True), ratings.of(people=False)
    scale = list(range(len(pool.scale)))
    apart = _open_spreads(pool, people)
    return PoolAgreement(
        people=set_agreement(people.grades),
        two=[
            TwoJudges(people.judges[a], people.judges[b], _two(people.grades[a], people.grades[b], scale))
            for a, b in combinations(range(len(people.judges)), 2)
        ],
        models=_models(pool, people, models, scale),
        conflicts=sum(spread > 0 for spread in apart.values()),
        serious=sum(spread >= SERIOUS for spread in apart.values()),
    )


def _models(pool: Pool, people: PoolRatings, models: PoolRatings, scale: list[int]) -> list[TwoJudges]:
    combined = _combined(pool, people)
    found = []
    for row, model in enumerate(models.judges):
        found.append(TwoJudges(model, None, _two(models.grades[row], combined, scale)))
        if len(people.judges) > 1:
            found += [
                TwoJudges(model, judge, _two(models.grades[row], people.grades[place], scale))
                for place, judge in enumerate(people.judges)
            ]
    return found


def _two(first: Ratings, second: Ratings, scale: list[int]) -> JudgesAgreement:
    return judges_agreement(first, second, grades=scale)


def _combined(pool: Pool, people: PoolRatings) -> Ratings:
    """The grade of all people together, float64 [N]: as the pool's rule has it, adjudications above all."""
    ruled = dict(_adjudications(pool).values_list("pair_id", "grade"))
    combined = np.full(len(people.pairs), np.nan)
    for place, pair in enumerate(people.pairs):
        own = people.grades[:, place]
        grades = own[~np.isnan(own)].astype(int).tolist()
        grade = ruled[pair] if pair in ruled else grade_combined(JudgingRule(pool.rule), grades)
        combined[place] = np.nan if grade is None else grade
    return combined


def _adjudications(pool: Pool) -> Rows[Verdict]:
    return Verdict.objects.filter(pair__pool=pool, source=VerdictSource.ADJUDICATED)


def _open_spreads(pool: Pool, people: PoolRatings) -> Mapping[int, int]:
    """By pair, of those with two verdicts of people and without an adjudication."""
    if not people.judges:
        return {}
    ruled = set(_adjudications(pool).values_list("pair_id", flat=True))
    found = zip(people.pairs, spreads(people.grades).tolist(), strict=True)
    return {pair: int(spread) for pair, spread in found if not np.isnan(spread) and pair not in ruled}


def conflicts_queue(pool: Pool) -> list[int]:
    """Keys of the pairs about which people disagree and nobody has decided: the widest spread first."""
    apart = _open_spreads(pool, pool_ratings(pool).of(people=True))
    return sorted((pair for pair, spread in apart.items() if spread), key=lambda pair: (-apart[pair], pair))


def pairs_of_cell(pool: Pool, *, first: Judge, second: Judge | None, grades: tuple[int, int]) -> list[int]:
    """Keys of the pairs in one cell of a confusion table: ``first`` gave the one grade, ``second`` (None: all people
    together) the other."""
    ratings = pool_ratings(pool)
    people = ratings.of(people=True)
    rows = {judge.pk: row for row, judge in enumerate(ratings.judges)}
    if first.pk not in rows or (second is not None and second.pk not in rows):
        return []
    other = _combined(pool, people) if second is None else ratings.grades[rows[second.pk]]
    there = (ratings.grades[rows[first.pk]] == grades[0]) & (other == grades[1])
    return [ratings.pairs[place] for place in np.flatnonzero(there).tolist()]


def conflicts_shown(pool: Pool, pairs: Sequence[int]) -> list[Conflict]:
    """``pairs`` in the order given, with what everybody said of them, people first."""
    rows = PoolPair.objects.filter(pool=pool).in_bulk(list(pairs))
    given: dict[int, list[Verdict]] = {pair: [] for pair in pairs}
    verdicts = Verdict.objects.filter(pair__in=pairs).select_related("judge")
    for verdict in verdicts.order_by(F("judge__model_id").asc(nulls_first=True), "judge__name"):
        given[verdict.pair_id].append(verdict)
    return [_conflict(rows[pair], given[pair]) for pair in pairs]


def _conflict(pair: PoolPair, verdicts: Sequence[Verdict]) -> Conflict:
    ruling = next((one for one in verdicts if one.source == VerdictSource.ADJUDICATED), None)
    own = [one.grade for one in verdicts if one.source in INDEPENDENT and one.grade is not None]
    return Conflict(pair, [one for one in verdicts if one is not ruling], max(own) - min(own) if own else 0, ruling)

"""Reads about comparisons: whose they are, means, and queries filtered and ordered by what was computed."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from django.db.models import Prefetch, Q, QuerySet

from assay.api.principal import Principal
from scoring.models import ComparedStage, Comparison, JudgementSet, Query, Stage
from scoring.selectors.comparison_measures import Measured
from scoring.selectors.evaluation import EVALUATED
from scoring.selectors.sets import newest_version
from scoring.selectors.texts import texts_gone
from scoring.states import StageState
from scoring.statistics import paired_changes

LETTERS: Final = "ABCD"
OFFERED: Final = 60
SAME: Final = 0.99999
# By how alike the two rankings of a query are: from which rank-biased overlap on.
BANDS: Final = {"same": SAME, "close": 0.9, "changed": 0.5, "different": 0.0}
JUDGED: Final = ("improved", "regressed", "equal", "unjudged")
ORDERS: Final = {"change": "largest change first", "rbo": "least alike first", "query": "as uploaded"}


def comparisons_of(principal: Principal) -> QuerySet[Comparison]:
    """The team's, with their stages, jobs and sets."""
    columns = ComparedStage.objects.order_by("position").select_related(
        "stage__model", "stage__run_set", "stage__source__model", "stage__source__run_set",
        "stage__job__document_set", "stage__job__query_set",
    )  # fmt: skip
    rows = Comparison.objects.for_team(principal.team).select_related("judgement_set", "created_by")
    return rows.prefetch_related(Prefetch("compared", columns))


def stages_compared(comparison: Comparison) -> list[Stage]:
    """The baseline first."""
    return [column.stage for column in comparison.compared.all()]


def judgements_newer(comparison: Comparison) -> JudgementSet | None:
    """The newest version of the judgements that the comparison was computed with, if that is another one."""
    pinned = comparison.judgement_set
    newest = pinned and newest_version(pinned)
    return newest if newest != pinned else None


def judgements_deleted(comparison: Comparison, measured: Measured | None) -> bool:
    """Whether its numbers are all that is left of the judgements that it was computed with."""
    return measured is not None and measured.judged and comparison.judgement_set is None


def stages_comparable(principal: Principal, query_set: Any) -> list[Stage]:
    """The newest ranked stages over the query set, which may be compared with one another."""
    stages = Stage.objects.filter(job__team=principal.team, job__query_set=query_set, state=StageState.DONE)
    ranked = stages.filter(job__state__in=EVALUATED).select_related("job__document_set", "job__query_set")
    return list(ranked.select_related("model", "run_set").order_by("-job__queued_at", "index")[:OFFERED])


@dataclass(frozen=True, slots=True)
class Similarity:
    """Means over the ``queries`` for which both rankings have documents; None: there is none."""

    queries: int
    rbo: float | None
    rbo_top: float | None
    overlap: float | None
    tau: float | None
    tau_queries: int


def similarities(measured: Measured) -> list[Similarity]:
    """Of the baseline with each of the others."""
    return [
        Similarity(
            queries=int(np.count_nonzero(~np.isnan(measured.arrays["rbo"][place]))),
            **{name: _mean(measured.arrays[name][place]) for name in ("rbo", "rbo_top", "overlap", "tau")},
            tau_queries=int(np.count_nonzero(~np.isnan(measured.arrays["tau"][place]))),
        )
        for place in range(len(measured.arrays["rbo"]))
    ]


def _mean(values: Any) -> float | None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)  # of nothing at all
        mean = float(np.nanmean(values)) if values.size else np.nan
    return None if np.isnan(mean) else mean


def change_of(measured: Measured, other: int) -> Any:
    """[Q] of the primary measure, ``other`` (1 to S - 1) against the baseline; NaN for what nobody judged."""
    values = measured.arrays["values"]
    return paired_changes(values[0, 0], values[other, 0])


def query_kinds(measured: Measured, other: int) -> dict[str, Any]:
    """The queries by what became of them, as masks [Q]: with judgements better or worse, without how alike."""
    rbo = measured.arrays["rbo"][other - 1]
    if measured.judged:
        change = change_of(measured, other)
        masks = (change > 0, change < 0, change == 0, np.isnan(change))
        return dict(zip(JUDGED, masks, strict=True))
    kinds, below = {}, np.inf
    for name, least in BANDS.items():
        kinds[name] = (rbo >= least) & (rbo < below)
        below = least
    return {**kinds, "incomplete": np.isnan(rbo)}


def query_order(measured: Measured, other: int, *, order: str, kind: str, among: Sequence[int] | None) -> list[int]:
    """Positions of the queries of ``kind`` (empty: all) that are ``among`` these, in ``order`` of ``ORDERS``."""
    rbo = np.nan_to_num(measured.arrays["rbo"][other - 1], nan=2.0)  # the incomplete come last
    positions = np.arange(len(rbo))
    keys = [positions, rbo]
    if order == "change" and measured.judged:
        keys.append(-np.nan_to_num(np.abs(change_of(measured, other)), nan=-1.0))
    found = positions if order == "query" else np.lexsort(keys)
    kinds = query_kinds(measured, other)
    chosen = kinds[kind].copy() if kind in kinds else np.ones(len(rbo), bool)
    if among is not None:
        chosen &= np.isin(positions, among)
    return [int(position) for position in found[chosen[found]]]


def queries_found(stage: Stage, search: str) -> list[int] | None:
    """Positions of the queries whose id or text holds ``search``; None where nothing is searched for."""
    if not search:
        return None
    query_set = stage.job.query_set
    wanted = Q(external_id__icontains=search)
    if not texts_gone(query_set):
        wanted |= Q(text__icontains=search)
    return list(Query.objects.filter(wanted, query_set=query_set).values_list("position", flat=True))


def disagreements(measured: Measured, other: int, count: int) -> list[int]:
    """Positions of the queries in which one document's ranks differ the most, the first ``count``."""
    weights = measured.arrays["moved_weight"][other - 1]
    rbo = np.nan_to_num(measured.arrays["rbo"][other - 1], nan=2.0)
    order = np.lexsort((np.arange(len(weights)), rbo, -weights))
    return [int(position) for position in order[:count] if weights[position] > 0]

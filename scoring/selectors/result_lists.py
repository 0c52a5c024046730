"""Which queries of a stage have something to look at, and how its scores lie."""

from __future__ import annotations

from typing import Any, Final

import numpy as np
from django.contrib.auth.models import User
from django.db.models import BinaryField, Exists, F, Func, IntegerField, OuterRef, Q, QuerySet, Sum, TextChoices, Value

from scoring.models import Annotation, QueryResult, Stage
from scoring.ranking import FLOAT, Floats
from scoring.selectors.packed import packed_part
from scoring.selectors.sets import tagged
from scoring.selectors.texts import texts_gone
from scoring.states import ITEM_STATUSES, ItemStatus

SCORES_READ: Final = 100_000  # of one ranking: as many as a histogram needs to be true


class Having(TextChoices):
    """What the queries of a list have in common."""

    TRUNCATED = "truncated", "documents that were cut"
    EMPTY = "empty", "empty documents"
    FAILED = "failed", "documents that failed"
    TIES = "ties", "ties"
    TIES_AT_TOP = "ties-at-top", "ties across the top ten"
    BOOKMARKS = "bookmarks", "my bookmarks"
    NOTES = "notes", "my notes"


class _Place(Func):
    """Where bytes are found within a column of them, counted from 1; 0: nowhere."""

    template = "position(%(expressions)s)"
    arg_joiner = " in "
    output_field = IntegerField()


def results_having(results: QuerySet[QueryResult], having: str, *, user: User | None) -> QuerySet[QueryResult]:
    """Of ``results``, those whose ranking has it; all of them for what is no ``Having``."""
    match having:
        case Having.TIES:
            return results.filter(tied_pairs__gt=0)
        case Having.TIES_AT_TOP:
            return results.filter(tied_at_top__gt=0)
        case Having.BOOKMARKS | Having.NOTES:
            own = Annotation.objects.filter(
                user=user, job=OuterRef("stage__job"), query_position=OuterRef("query_position")
            )
            return results.filter(Exists(own.filter(Q(bookmarked=True) if having == Having.BOOKMARKS else ~Q(note=""))))
        case Having.TRUNCATED | Having.EMPTY | Having.FAILED:
            byte = bytes([ITEM_STATUSES.index(ItemStatus(having))])
            place = _Place(Value(byte, output_field=BinaryField()), F("statuses"))
            return results.alias(first_such=place).filter(first_such__gt=0)
    return results


def results_searched(
    results: QuerySet[QueryResult], stage: Stage, search: str, *, tag: str = ""
) -> QuerySet[QueryResult]:
    """Of ``results``, those whose query's id or text holds ``search``, and that have ``tag``."""
    if tag:
        results = results.none() if texts_gone(stage.job.query_set) else results.filter(tagged(tag, "query__"))
    if not search:
        return results
    named = Q(query__external_id__icontains=search)
    return results.filter(named if texts_gone(stage.job.query_set) else named | Q(query__text__icontains=search))


def stage_ties(stage: Stage) -> dict[str, int | None]:
    """``tied_pairs`` and ``tied_at_top`` over all queries; None where that was not counted when it was ranked."""
    totals: dict[str, Any] = QueryResult.objects.filter(stage=stage).aggregate(
        tied_pairs=Sum("tied_pairs"), tied_at_top=Sum("tied_at_top")
    )
    return totals


def scores_of(result: QueryResult) -> Floats:
    """float32 [n], n ≤ SCORES_READ: what its best documents scored, without those that have no score."""
    columns = [packed_part(name, FLOAT.itemsize, count=SCORES_READ) for name in ("scores", "raw_scores")]
    scores, raw = QueryResult.objects.filter(pk=result.pk).values_list(*columns).get()
    values = np.frombuffer(scores or raw, FLOAT)
    return values[~np.isnan(values)]

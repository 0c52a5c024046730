"""Rankings for one query set measured against one version of the judgements, best first, with how sure that is."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from django.db.models import QuerySet

from assay.api.principal import Principal
from assay.errors import AssayError
from scoring.models import Evaluation, JudgementSet
from scoring.selectors.comparison_statistics import JUDGED
from scoring.selectors.evaluations import EvaluationArrays, evaluations_of
from scoring.statistics import Difference, Outcome, corrected, paired_difference

MOST: Final = 50
MOST_POINTS: Final = 200  # of a history
APART: Final = 0.05  # of shares judged


@dataclass(frozen=True, slots=True)
class LeaderboardRow:
    """``difference`` from the baseline, None for itself; ``judged``: Judged at the measure's cut-off, and whether that
    is so far from the baseline's that it may be all that the means differ by."""

    evaluation: Evaluation
    mean: float
    judged: float | None
    judged_apart: bool
    difference: Difference | None


@dataclass(frozen=True, slots=True)
class Leaderboard:
    """``n``: queries that all of the rows evaluated, over which every number is. ``left``: evaluations that are not
    shown, as there are more than ``MOST``."""

    measure: str
    n: int
    baseline: Evaluation | None
    rows: list[LeaderboardRow]
    left: int = 0

    @property
    def judged_apart(self) -> bool:
        return any(row.judged_apart for row in self.rows)


@dataclass(frozen=True, slots=True)
class HistoryPoint:
    """What ``system`` (a model, a run or BM25) reached when it was measured. Each mean is over the queries of its own
    evaluation."""

    evaluation: Evaluation
    system: str
    mean: float


def leaderboard_boards(principal: Principal) -> QuerySet[Any]:
    """What there are leaderboards of: query set and judgement version, by how many evaluations."""
    complete = evaluations_of(principal).filter(incomplete=False, judgement_set__isnull=False)
    return complete.select_related(None).values_list("stage__job__query_set_id", "judgement_set_id").distinct()


def leaderboard(
    principal: Principal, *, query_set: Any, judgements: JudgementSet, measure: str, baseline: Any = None
) -> Leaderboard:
    """Complete evaluations only, the newest of each stage, over the queries that all of them evaluated; the baseline is
    the oldest unless another is named. p is Holm-corrected over all but the baseline.

    Raises AssayError 404 ``not_found`` for a baseline that is not among them, 422 ``unknown_measure`` for one that none
    of them has.
    """
    every = evaluations_of(principal).filter(
        stage__job__query_set=query_set, judgement_set=judgements, incomplete=False, only_relevant=False
    )
    rows = every.filter(measures__contains=[measure])
    newest: dict[int, Evaluation] = {}
    for evaluation in rows.order_by("-created_at"):
        if evaluation.stage.finished_at == evaluation.ranked_at:
            newest.setdefault(evaluation.stage_id, evaluation)
    found = sorted(newest.values(), key=lambda one: one.created_at)
    if not found and baseline is None:
        _check_measure(measure, every)
        return Leaderboard(measure, 0, None, [])
    first = found[0] if baseline is None else next((one for one in found if one.pk == baseline), None)
    if first is None:
        message = f"The evaluation {baseline} is not among the {len(found)} of this leaderboard; give one of them."
        raise AssayError("not_found", message, status=404, param="baseline")
    ranked = sorted(found, key=lambda one: -(_mean(one, measure) or 0.0))
    shown = [one for one in ranked if one.pk == first.pk or one in ranked[:MOST]]
    packed = dict(Evaluation.objects.filter(pk__in=[one.pk for one in shown]).values_list("pk", "arrays"))
    arrays = [EvaluationArrays.unpack(bytes(packed[one.pk])) for one in shown]
    values, n = _common(shown, arrays, measure)
    own = shown.index(first)
    others = [place for place in range(len(shown)) if place != own]
    untested = Outcome.COVERAGE if measure.startswith(JUDGED) else None
    differences = [paired_difference(values[own], values[one], untested=untested) for one in others]
    tested = dict(zip(others, corrected(differences), strict=True))
    judged = [_figure(one, measure)["judged"] for one in shown]
    board = [
        LeaderboardRow(
            evaluation=one,
            mean=float(values[place].mean()) if n else 0.0,
            judged=judged[place],
            judged_apart=_apart(judged[place], judged[own]),
            difference=tested.get(place),
        )
        for place, one in enumerate(shown)
    ]
    board.sort(key=lambda row: -row.mean)
    return Leaderboard(measure, n, first, board, left=len(ranked) - len(shown))


def leaderboard_history(
    principal: Principal, *, query_set: Any, judgements: JudgementSet, measure: str
) -> list[HistoryPoint]:
    """Complete evaluations by any version of the judgements, the oldest first; the newest ``MOST_POINTS`` of them."""
    rows = evaluations_of(principal).filter(
        stage__job__query_set=query_set, judgement_set__root=judgements.root, incomplete=False, only_relevant=False,
        measures__contains=[measure],
    )  # fmt: skip
    points = [
        HistoryPoint(evaluation, str(evaluation.stage), mean)
        for evaluation in rows.order_by("-created_at")[:MOST_POINTS]
        if (mean := _mean(evaluation, measure)) is not None
    ]
    return points[::-1]


def _apart(share: float | None, baseline: float | None) -> bool:
    return share is not None and baseline is not None and abs(share - baseline) > APART


def _figure(evaluation: Evaluation, measure: str) -> dict[str, Any]:
    return next(figure for figure in evaluation.figures if figure["measure"] == measure)


def _mean(evaluation: Evaluation, measure: str) -> float | None:
    mean: float | None = _figure(evaluation, measure)["mean"]
    return mean


def _check_measure(measure: str, evaluations: QuerySet[Any]) -> None:
    named = {name for names in evaluations.select_related(None).values_list("measures", flat=True) for name in names}
    if named and measure not in named:
        message = f"No evaluation here has '{measure}'; there are {', '.join(sorted(named))}."
        raise AssayError("unknown_measure", message, status=422, param="measure")


def _common(evaluations: Sequence[Evaluation], arrays: Sequence[EvaluationArrays], measure: str) -> tuple[Any, int]:
    """float64 [evaluations, n] over the queries for which each has a number."""
    columns = []
    for evaluation, own in zip(evaluations, arrays, strict=True):
        row = own.values[evaluation.measures.index(measure)]
        defined = ~np.isnan(row)
        columns.append(dict(zip(own.positions[defined].tolist(), row[defined].tolist(), strict=True)))
    common = sorted(set(columns[0]).intersection(*columns[1:]))
    return np.array([[column[position] for position in common] for column in columns]), len(common)

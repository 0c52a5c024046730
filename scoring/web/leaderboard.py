"""The leaderboard of one query set and one version of the judgements."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Final
from uuid import UUID

from django.views.generic import TemplateView

from accounts.scopes import Scope
from assay.errors import AssayError
from assay.web.mixins import PrincipalMixin
from scoring.measures import DEFAULT_MEASURES
from scoring.models import JudgementSet, QuerySet
from scoring.selectors.comparison_statistics import JUDGED
from scoring.selectors.evaluations import evaluations_of
from scoring.selectors.leaderboard import HistoryPoint, leaderboard, leaderboard_boards, leaderboard_history
from scoring.web.evaluation_page import judged_tone
from scoring.web.figures import Chart

MOST_LINES: Final = 6  # as many as there are colours


@dataclass(frozen=True, slots=True)
class Board:
    """A choice of the form: which queries and which judgements."""

    query_set: QuerySet
    judgements: JudgementSet

    @property
    def key(self) -> str:
        return f"{self.query_set.pk}_{self.judgements.pk}"


class LeaderboardView(PrincipalMixin, TemplateView):
    """Everything stands in the address: query set, judgement set, measure, baseline."""

    required_scope: ClassVar[str] = Scope.JOBS
    template_name = "evaluations/leaderboard.html"

    def get_context_data(self, **kwargs: Any) -> dict[str, Any]:
        boards, given = self._boards(), self.request.GET
        pair = given.get("board") or f"{given.get('query_set', '')}_{given.get('judgement_set', '')}"
        chosen = next((board for board in boards if board.key == pair), boards[0] if boards else None)
        if chosen is None:
            return super().get_context_data(boards=boards, **kwargs)
        measures = self._measures(chosen)
        measure = given.get("measure", "")
        measure = measure if measure in measures else measures[0]
        context: dict[str, Any] = {"boards": boards, "chosen": chosen, "measures": measures, "measure": measure}
        try:
            found = leaderboard(
                self.principal, query_set=chosen.query_set, judgements=chosen.judgements, measure=measure,
                baseline=_id(given.get("baseline", "")),
            )  # fmt: skip
        except AssayError as refusal:
            return super().get_context_data(refusal=refusal.message, **context, **kwargs)
        points = leaderboard_history(
            self.principal, query_set=chosen.query_set, judgements=chosen.judgements, measure=measure
        )
        context |= {"points": points[::-1], "history": history_chart(points, measure)}
        rows = [(row, judged_tone(row.judged)) for row in found.rows]
        return super().get_context_data(board=found, rows=rows, **context, **kwargs)

    def _boards(self) -> list[Board]:
        pairs = list(leaderboard_boards(self.principal))
        query_sets = QuerySet.objects.in_bulk([query_set for query_set, _ in pairs])
        versions = JudgementSet.objects.in_bulk([judgements for _, judgements in pairs])
        boards = [Board(query_sets[query_set], versions[judgements]) for query_set, judgements in pairs]
        return sorted(boards, key=lambda board: board.judgements.created_at, reverse=True)

    def _measures(self, board: Board) -> Sequence[str]:
        own = evaluations_of(self.principal).filter(
            stage__job__query_set=board.query_set, judgement_set=board.judgements, incomplete=False
        )
        rows = own.select_related(None).values_list("measures", flat=True)
        found = dict.fromkeys(name for names in rows for name in names)
        # The usual one first; how much was judged, which says nothing about which ranking is better, last.
        return sorted(found, key=lambda name: (name != DEFAULT_MEASURES[0], name.startswith(JUDGED)))


def history_chart(points: Sequence[HistoryPoint], measure: str) -> Chart | None:
    """A line for each system, those measured last; None for a single evaluation."""
    if len(points) < 2:
        return None
    drawn = list(dict.fromkeys(point.system for point in reversed(points)))[:MOST_LINES]
    return Chart(
        "line",
        [f"{point.evaluation.created_at:%Y-%m-%d %H:%M}" for point in points],
        {name: [point.mean if point.system == name else None for point in points] for name in sorted(drawn)},
        measure,
        points=True,
    )


def _id(given: str) -> UUID | None:
    try:
        return UUID(given) if given else None
    except ValueError:
        return UUID(int=0)  # which none has: the page says that it is not among them

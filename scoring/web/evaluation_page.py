"""One evaluation: summary, queries, one query, coverage, stages."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Final

from django.http import Http404, HttpRequest, HttpResponse
from django.shortcuts import render
from django.urls import reverse
from django.views.generic.base import View

from accounts.scopes import Scope
from assay.web.mixins import PrincipalMixin
from scoring.ingest.tags import tags_of
from scoring.measures import measure_named
from scoring.models import Evaluation, Query, Stage
from scoring.ranking import TOP
from scoring.selectors.cascade import stage_cuts
from scoring.selectors.comparisons import queries_found
from scoring.selectors.evaluation_queries import LISTS, QueryValues, coverage, query_order, query_values, slices
from scoring.selectors.evaluations import EvaluationArrays, Stale, evaluation_arrays, evaluation_stale
from scoring.selectors.judged_documents import JudgedDocument, judged_documents
from scoring.selectors.tags import query_tags
from scoring.selectors.texts import texts_shown
from scoring.web.evaluations import evaluation_or_404
from scoring.web.figures import histogram
from scoring.web.measure_words import meaning, substituted
from scoring.web.paging import SayingPaginator
from scoring.web.reports import report_choices

TABS: Final = {"detail": "Summary", "queries": "Queries", "coverage": "Coverage", "stages": "Stages"}
QUERIES_PER_PAGE: Final = 50
BESIDE: Final = {"judged": "Judged@10", "relevant": "Relevant", "kept": "Ranked", "unjudged": "Unjudged in top 10",
                 "tags": "Tags"}  # fmt: skip
LOW, LOWEST = 0.8, 0.5  # shares judged below which a mean is to be doubted


@dataclass(frozen=True, slots=True)
class Figure:
    """One measure of the summary. ``tone``: how far its cut-off has been judged."""

    name: str
    meaning: str
    mean: float | None
    judged: float | None
    worst: float | None
    best: float | None
    tie_sensitive: bool

    @property
    def tone(self) -> str:
        return judged_tone(self.judged)


@dataclass(frozen=True, slots=True)
class Tab:
    title: str
    url: str
    current: bool


@dataclass(frozen=True, slots=True)
class EvaluationPage:
    evaluation: Evaluation
    arrays: EvaluationArrays
    stale: Stale | None

    @property
    def stage(self) -> Stage:
        return self.evaluation.stage

    @property
    def figures(self) -> list[Figure]:
        return [
            Figure(
                name=figure["measure"],
                meaning=meaning(measure_named(figure["measure"])),
                **{name: figure[name] for name in ("mean", "judged", "worst", "best", "tie_sensitive")},
            )
            for figure in self.evaluation.figures
        ]


def judged_tone(share: float | None) -> str:
    return "" if share is None else "bad" if share < LOWEST else "warn" if share < LOW else "ok"


class EvaluationView(PrincipalMixin, View):
    """A page of one evaluation; subclasses name their tab and add their context."""

    required_scope: ClassVar[str] = Scope.JOBS
    tab: ClassVar[str]
    template_name: ClassVar[str]

    def get(self, request: HttpRequest, **kwargs: Any) -> HttpResponse:
        evaluation = evaluation_or_404(self)
        page = EvaluationPage(evaluation, evaluation_arrays(evaluation), evaluation_stale(evaluation))
        tabs = [
            Tab(title, reverse(f"web:evaluation_{name}", args=[evaluation.pk]), name == self.tab)
            for name, title in TABS.items()
        ]
        context = {"page": page, "evaluation": evaluation, "tabs": tabs, "view": self, **self.context(page)}
        return render(request, self.template_name, context)

    def context(self, page: EvaluationPage) -> dict[str, Any]:
        return {}


class EvaluationDetailView(EvaluationView):
    tab = "detail"
    template_name = "evaluations/summary.html"

    def context(self, page: EvaluationPage) -> dict[str, Any]:
        exports = report_choices("evaluation", page.evaluation.pk)
        return {"slices": slices(page.evaluation, page.arrays), "exports": exports}


class EvaluationCoverageView(EvaluationView):
    tab = "coverage"
    template_name = "evaluations/coverage.html"

    def context(self, page: EvaluationPage) -> dict[str, Any]:
        found = coverage(page.arrays)
        shown = _queries(page.evaluation, [position for position, _ in found.worst])
        bars = [(str(count), queries) for count, queries in enumerate(found.histogram)]
        return {
            "coverage": found,
            "shares": [(cutoff, share, judged_tone(share)) for cutoff, share in found.judged.items()],
            "histogram": histogram(bars, caption=f"unjudged documents among the first {TOP}", unit="queries"),
            "worst": [(shown[position], count) for position, count in found.worst],
            "top": TOP,
        }


class EvaluationStagesView(EvaluationView):
    tab = "stages"
    template_name = "evaluations/stages.html"

    def context(self, page: EvaluationPage) -> dict[str, Any]:
        return {"cuts": stage_cuts(page.evaluation, page.arrays, job_stages(page.evaluation))}


def job_stages(evaluation: Evaluation) -> list[Stage]:
    stages = Stage.objects.filter(job=evaluation.stage.job_id).select_related("model", "run_set", "source")
    found = list(stages.order_by("index"))
    for stage in found:
        stage.job = evaluation.stage.job
    return found


@dataclass(frozen=True, slots=True)
class QueryRow:
    query: Query
    values: QueryValues
    cells: list[tuple[str, float | int | str | None]]  # column, what it holds


def columns_of(evaluation: Evaluation) -> list[str]:
    """What there is of each query: its measures, and what stands beside them unless it is one."""
    return [*evaluation.measures, *(name for name, title in BESIDE.items() if title not in evaluation.measures)]


@dataclass(frozen=True, slots=True)
class QueryList:
    """What the address says about the list of queries."""

    chosen: str
    order: str
    tag: str
    search: str
    columns: list[str]

    @classmethod
    def of(cls, evaluation: Evaluation, request: HttpRequest) -> QueryList:
        given, columns = request.GET, columns_of(evaluation)
        order, chosen = given.get("order", ""), given.get("list", "")
        wanted = [name for name in columns if name in given.getlist("columns")]
        return cls(
            chosen=chosen if chosen in LISTS else "evaluated",
            order=order if order.removeprefix("-") in (*evaluation.measures, "query", "unjudged") else "",
            tag=given.get("tag", ""),
            search=given.get("search", "")[:200],
            columns=wanted or [name for name in columns if name in evaluation.measures or name == "judged"],
        )

    def positions(self, page: EvaluationPage, tags: dict[str, list[int]]) -> list[int]:
        among: list[Sequence[int]] = [tags.get(self.tag, [])] if self.tag else []
        found = queries_found(page.stage, self.search)
        among += [] if found is None else [found]
        order = self.order or page.evaluation.measures[0]
        return query_order(page.arrays, page.evaluation.measures, chosen=self.chosen, order=order, among=among)


class EvaluationQueriesView(EvaluationView):
    tab = "queries"
    template_name = "evaluations/queries.html"

    def context(self, page: EvaluationPage) -> dict[str, Any]:
        state, tags = QueryList.of(page.evaluation, self.request), query_tags(page.stage.job.query_set)
        positions = state.positions(page, tags)
        queries = SayingPaginator(positions, QUERIES_PER_PAGE).get_page(self.request.GET.get("page"))
        lists = {name: len(found) for name, found in page.arrays.lists().items()}
        return {
            "state": state,
            "queries": queries,
            "rows": _rows(page, list(queries), state.columns),
            "lists": [(name, LISTS[name], count) for name, count in lists.items()],
            "tags": list(tags),
            "columns": [(name, BESIDE.get(name, name), name in state.columns) for name in columns_of(page.evaluation)],
            "shown": [(name, BESIDE.get(name, name)) for name in state.columns],
            "sortable": [*page.evaluation.measures, "unjudged"],
        }


def _queries(evaluation: Evaluation, positions: Sequence[int]) -> dict[int, Query]:
    query_set = evaluation.stage.job.query_set
    rows = texts_shown(Query.objects.filter(query_set=query_set, position__in=positions), query_set)
    return {query.position: query for query in rows}


def _rows(page: EvaluationPage, positions: Sequence[int], columns: Sequence[str]) -> list[QueryRow]:
    values = query_values(page.evaluation, page.arrays, positions)
    queries = _queries(page.evaluation, positions)
    return [
        QueryRow(
            queries[position],
            values[position],
            [(column, _cell(queries[position], values[position], column)) for column in columns],
        )
        for position in positions
    ]


def _cell(query: Query, values: QueryValues, column: str) -> float | int | str | None:
    match column:
        case "judged":
            return values.judged[TOP]
        case "relevant" | "kept":
            return values.relevant if column == "relevant" else values.kept
        case "unjudged":
            return values.unjudged_at_top
        case "tags":
            return ", ".join(tags_of(query.metadata))
        case _:
            return values.values[column]


@dataclass(frozen=True, slots=True)
class Worked:
    """A measure of one query, with its numbers put into the formula."""

    name: str
    meaning: str
    value: float | None
    substituted: str


class EvaluationQueryView(EvaluationView):
    """One query; the one before and the one after are those of the list it was opened from."""

    tab = "queries"
    template_name = "evaluations/query.html"

    def context(self, page: EvaluationPage) -> dict[str, Any]:
        position = self.kwargs["position"]
        query = _queries(page.evaluation, [position]).get(position)
        if query is None:
            raise Http404
        state = QueryList.of(page.evaluation, self.request)
        ordered = state.positions(page, query_tags(page.stage.job.query_set) if state.tag else {})
        place = ordered.index(position) if position in ordered else None
        stages = job_stages(page.evaluation)
        documents = judged_documents(page.evaluation, stages, query)
        values = query_values(page.evaluation, page.arrays, [position])[position]
        own = [stage.pk for stage in stages].index(page.stage.pk)
        return {
            "query": query,
            "position": position,
            "stages": stages,
            "own": own,
            "documents": documents,
            "values": values,
            "worked": _worked(page, values, documents, own) if documents else [],
            "missed": sum(row.is_relevant and (row.places[own].rank or TOP + 1) > TOP for row in documents),
            "top": TOP,
            "place": None if place is None else place + 1,
            "count": len(ordered),
            "before": ordered[place - 1] if place else None,
            "after": ordered[place + 1] if place is not None and place + 1 < len(ordered) else None,
        }


def _worked(page: EvaluationPage, values: QueryValues, documents: Sequence[JudgedDocument], own: int) -> list[Worked]:
    found = sorted((rank, row.grade) for row in documents if (rank := row.places[own].rank))
    grades, kept = [row.grade for row in documents], values.kept or 0
    parsed = [measure_named(name) for name in page.evaluation.measures]
    return [
        Worked(str(one), meaning(one), values.values[str(one)], substituted(one, found, grades, kept)) for one in parsed
    ]

"""One comparison: summary, queries, one query side by side, settings, notes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar, Final

from django import forms
from django.contrib import messages
from django.http import Http404, HttpRequest
from django.http.response import HttpResponseBase
from django.shortcuts import redirect, render
from django.urls import reverse
from django.views.generic.base import View

from accounts.scopes import Scope
from assay.web.mixins import PrincipalMixin
from scoring.models import Comparison, JudgementSet, Stage
from scoring.selectors.comparability import Comparability, comparability, settings_of
from scoring.selectors.comparison_measures import Measured
from scoring.selectors.comparison_statistics import coverage_remarks
from scoring.selectors.comparisons import (
    LETTERS,
    ORDERS,
    disagreements,
    judgements_deleted,
    judgements_newer,
    queries_found,
    query_kinds,
    query_order,
    similarities,
    stages_compared,
)
from scoring.services.comparisons import FEWEST, comparison_change, comparison_measures
from scoring.statistics import PairedTest
from scoring.web.comparison_figures import cell_rows
from scoring.web.comparison_queries import query_rows, side_by_side
from scoring.web.comparisons import comparison_or_404
from scoring.web.paging import SayingPaginator
from scoring.web.reports import report_choices

QUERIES_PER_PAGE: Final = 50
DISAGREEMENTS_SHOWN: Final = 10
SLIDE: Final = "slide-body"  # the element over the list that a query is opened in
TOPS: Final = (10, 20, 50, 100)
TABS: Final = {"detail": "Summary", "queries": "Queries", "settings": "Settings", "notes": "Notes"}
# What became of a query: with judgements, without them.
KIND_WORDS: Final = {
    "improved": "improved",
    "regressed": "regressed",
    "equal": "equal",
    "unjudged": "not judged",
    "same": "the same",
    "close": "close",
    "changed": "changed",
    "different": "different",
    "incomplete": "incomplete",
}
KIND_MEANINGS: Final = {
    "improved": "the first measure is higher than the baseline's",
    "regressed": "the first measure is lower than the baseline's",
    "equal": "the first measure is the same",
    "unjudged": "nobody judged a document of this query",
    "same": "the same documents in the same order",
    "close": "RBO from 0.9 on",
    "changed": "RBO from 0.5 to 0.9",
    "different": "RBO below 0.5",
    "incomplete": "one of both has no ranking that can be compared",
}


@dataclass(frozen=True, slots=True)
class Column:
    letter: str
    position: int
    stage: Stage


@dataclass(frozen=True, slots=True)
class ComparisonPage:
    """``measured`` None: a job of it is being ranked anew, or was deleted. ``other``: which column the baseline is
    compared with, 1 to the last. ``newer``: a version of the judgements that came after those it was computed with."""

    comparison: Comparison
    columns: list[Column]
    comparability: Comparability
    measured: Measured | None
    other: int
    newer: JudgementSet | None

    @property
    def stages(self) -> list[Stage]:
        return [column.stage for column in self.columns]

    @property
    def baseline(self) -> Column:
        return self.columns[0]

    @property
    def against(self) -> Column:
        return self.columns[self.other]

    @property
    def too_few(self) -> bool:
        return len(self.columns) < FEWEST

    @property
    def judgements_deleted(self) -> bool:
        return judgements_deleted(self.comparison, self.measured)

    @property
    def first_measure(self) -> str:
        return self.measured.table.measures[0] if self.measured and self.measured.table else ""


@dataclass(frozen=True, slots=True)
class Tab:
    title: str
    url: str
    current: bool


@dataclass(frozen=True, slots=True)
class Kind:
    name: str
    words: str
    meaning: str
    count: int


class ComparisonView(PrincipalMixin, View):
    """A page of one comparison; subclasses name their tab and add their context."""

    required_scope: ClassVar[str] = Scope.JOBS
    tab: ClassVar[str]
    template_name: ClassVar[str]

    def get(self, request: HttpRequest, **kwargs: Any) -> HttpResponseBase:
        page = self.page()
        tabs = [
            Tab(title, reverse(f"web:comparison_{name}", args=[page.comparison.pk]), name == self.tab)
            for name, title in TABS.items()
        ]
        return render(request, self.template_name, {"page": page, "tabs": tabs, "view": self, **self.context(page)})

    def page(self) -> ComparisonPage:
        comparison = comparison_or_404(self)
        stages = stages_compared(comparison)
        columns = [Column(LETTERS[place], place, stage) for place, stage in enumerate(stages)]
        given = self.request.GET.get("with", "")
        other = LETTERS.find(given) if len(given) == 1 else 1
        measured = comparison_measures(comparison=comparison)
        compared = comparability(stages, comparison.judgement_set)
        return ComparisonPage(
            comparison, columns, compared, measured, other if 0 < other < len(columns) else 1,
            judgements_newer(comparison),
        )  # fmt: skip

    def context(self, page: ComparisonPage) -> dict[str, Any]:
        return {}


class ComparisonDetailView(ComparisonView):
    tab = "detail"
    template_name = "comparisons/summary.html"

    def context(self, page: ComparisonPage) -> dict[str, Any]:
        if page.measured is None:
            return {}
        others = zip(page.columns[1:], similarities(page.measured), strict=True)
        positions = disagreements(page.measured, page.other, DISAGREEMENTS_SHOWN)
        return {
            "similar": list(others),
            **_measures(page),
            "kinds": _kinds(page),
            "disagreements": query_rows(page.measured, page.stages, page.other, positions, with_documents=True),
        }


class ComparisonQueriesView(ComparisonView):
    tab = "queries"
    template_name = "comparisons/queries.html"

    def context(self, page: ComparisonPage) -> dict[str, Any]:
        if page.measured is None:
            return {}
        ordered, state = _ordered(page, self.request)
        queries = SayingPaginator(ordered, QUERIES_PER_PAGE).get_page(self.request.GET.get("page"))
        rows = query_rows(page.measured, page.stages, page.other, list(queries))
        orders = {name: words for name, words in ORDERS.items() if name != "change" or page.measured.judged}
        return {"queries": queries, "rows": rows, "kinds": _kinds(page), "orders": orders, **state}


class ComparisonQueryView(ComparisonView):
    """One query side by side; the one before and the one after are those of the list it was opened from."""

    tab = "queries"
    template_name = "comparisons/query.html"

    def get(self, request: HttpRequest, **kwargs: Any) -> HttpResponseBase:
        if request.headers.get("HX-Target") != SLIDE:
            return super().get(request, **kwargs)
        page = self.page()
        return render(request, "comparisons/_query.html", {"page": page, "slide": True, **self.context(page)})

    def context(self, page: ComparisonPage) -> dict[str, Any]:
        position = self.kwargs["position"]
        if page.too_few or position >= page.baseline.stage.job.query_count:
            raise Http404
        given = self.request.GET.get("top", "")
        top = int(given) if given in map(str, TOPS) else TOPS[0]
        show = self.request.GET.get("show", "")
        context: dict[str, Any] = {
            "side": side_by_side(page.comparison, page.stages, page.other, position, top, page.comparability.ranks),
            "position": position,
            "top": top,
            "more": next((larger for larger in TOPS if larger > top), None),
            "show": show if show in LETTERS[: len(page.columns)] and show else page.baseline.letter,
        }
        if page.measured is None:
            return context
        ordered, state = _ordered(page, self.request)
        place = ordered.index(position) if position in ordered else None
        numbers = query_rows(page.measured, page.stages, page.other, [position])
        return {
            **context,
            **state,
            "numbers": numbers[0],
            "place": None if place is None else place + 1,
            "count": len(ordered),
            "before": ordered[place - 1] if place else None,
            "after": ordered[place + 1] if place is not None and place + 1 < len(ordered) else None,
        }


class ComparisonSettingsView(ComparisonView):
    tab = "settings"
    template_name = "comparisons/settings.html"

    def context(self, page: ComparisonPage) -> dict[str, Any]:
        rows = settings_of(page.stages)
        differing = [row for row in rows if row.differs]
        return {"rows": rows if "all" in self.request.GET else differing, "same": len(rows) - len(differing)}


class NotesForm(forms.Form):
    name = forms.CharField(max_length=200)
    notes = forms.CharField(
        required=False, max_length=20_000, strip=False, widget=forms.Textarea(attrs={"rows": 10}),
        help_text="What was found, and what was decided. Everybody in the team reads and changes them.",
    )  # fmt: skip


class ComparisonNotesView(ComparisonView):
    tab = "notes"
    template_name = "comparisons/notes.html"
    form: NotesForm | None = None

    def context(self, page: ComparisonPage) -> dict[str, Any]:
        known = {"name": page.comparison.name, "notes": page.comparison.notes}
        return {"form": self.form or NotesForm(initial=known)}

    def post(self, request: HttpRequest, **kwargs: Any) -> HttpResponseBase:
        comparison = comparison_or_404(self)
        self.form = NotesForm(request.POST)
        if not self.form.is_valid():
            return self.get(request, **kwargs)
        comparison_change(principal=self.principal, comparison=comparison, **self.form.cleaned_data)
        messages.success(request, "Saved.")
        return redirect("web:comparison_notes", pk=comparison.pk)


def _measures(page: ComparisonPage) -> dict[str, Any]:
    table = page.measured.table if page.measured else None
    if table is None:
        return {}
    test = PairedTest(page.comparison.test)
    return {"table": table, "measures": cell_rows(table.by_measure), "test": test, "coverage": coverage_remarks(table),
            "exports": report_choices("comparison", page.comparison.pk)}  # fmt: skip


def _kinds(page: ComparisonPage) -> list[Kind]:
    masks = query_kinds(page.measured, page.other) if page.measured else {}
    return [Kind(name, KIND_WORDS[name], KIND_MEANINGS[name], int(mask.sum())) for name, mask in masks.items()]


def _ordered(page: ComparisonPage, request: HttpRequest) -> tuple[list[int], dict[str, str]]:
    """The queries as the address filters and orders them, and what it says."""
    assert page.measured is not None
    given = request.GET
    order, kind, search = given.get("order", ""), given.get("kind", ""), given.get("search", "").strip()
    if order not in ORDERS:
        order = "change" if page.measured.judged else "rbo"
    if kind not in query_kinds(page.measured, page.other):
        kind = ""
    among = queries_found(page.baseline.stage, search)
    ordered = query_order(page.measured, page.other, order=order, kind=kind, among=among)
    return ordered, {"order": order, "kind": kind, "search": search}

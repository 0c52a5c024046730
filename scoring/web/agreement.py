"""How far the judges of a pool agree: coefficients, the pairs they do not agree about, decisions, models as judges."""

from __future__ import annotations

import re
from typing import Any, ClassVar, Final

from django import forms
from django.http import Http404
from django.urls import reverse
from django.views.generic import TemplateView

from accounts.scopes import Scope
from assay.errors import AssayError
from assay.web.mixins import PrincipalMixin
from scoring.models import Judge, ModelJudging, Pool, PoolPair
from scoring.selectors.agreement import Conflict, conflicts_queue, conflicts_shown, pairs_of_cell, pool_agreement
from scoring.selectors.models import models_served, models_usable
from scoring.selectors.pools import PairShown, pairs_shown
from scoring.services.adjudication import adjudication_withdraw, pair_adjudicate
from scoring.services.model_judges import JUDGES, model_judge_ask
from scoring.web.actions import ActionView
from scoring.web.figures import histogram
from scoring.web.paging import SayingPaginator
from scoring.web.pools import pool_or_404

PAIRS_PER_PAGE: Final = 10
SMALL_NUMBER: Final = re.compile(r"\d{1,18}", re.ASCII)


class PoolAgreementView(PrincipalMixin, TemplateView):
    required_scope: ClassVar[str] = Scope.JOBS
    template_name = "judging/agreement.html"

    def get_context_data(self, **kwargs: Any) -> dict[str, Any]:
        pool = pool_or_404(self)
        found = pool_agreement(pool)
        given = found.people.distribution
        counts = [(f"{grade} {name}", given.get(grade, 0)) for grade, name in enumerate(pool.scale)]
        served = models_usable(models_served().filter(kind__in=JUDGES), self.principal)
        return super().get_context_data(
            pool=pool,
            found=found,
            grades=histogram(counts, caption="grade", unit="verdicts"),
            scale=list(enumerate(pool.scale)),
            judgings=ModelJudging.objects.filter(pool=pool).select_related("judge__model", "job", "created_by"),
            served=list(served.order_by("name")),
            evenly=", ".join(f"{grade / len(pool.scale):.3g}" for grade in range(1, len(pool.scale))),
            **kwargs,
        )


class PoolConflictsView(PrincipalMixin, TemplateView):
    """The pairs that people disagree about; with ``first``, ``second``, ``row`` and ``column`` those of one cell of a
    confusion table instead (no ``second``: all people together)."""

    required_scope: ClassVar[str] = Scope.JOBS
    template_name = "judging/conflicts.html"

    def get_context_data(self, **kwargs: Any) -> dict[str, Any]:
        pool = pool_or_404(self)
        cell = self._cell(pool)
        page = SayingPaginator(cell["pairs"] if cell else conflicts_queue(pool), PAIRS_PER_PAGE).get_page(
            self.request.GET.get("page")
        )
        conflicts = conflicts_shown(pool, list(page.object_list))
        return super().get_context_data(
            pool=pool, cell=cell, page=page, rows=_with_texts(pool, conflicts), scale=list(enumerate(pool.scale)),
            **kwargs,
        )  # fmt: skip

    def _cell(self, pool: Pool) -> dict[str, Any]:
        if "first" not in self.request.GET:
            return {}
        first = self._judge(pool, "first")
        second = self._judge(pool, "second") if "second" in self.request.GET else None
        grades = self._number("row"), self._number("column")
        if max(grades) >= len(pool.scale):
            raise Http404
        pairs = pairs_of_cell(pool, first=first, second=second, grades=grades)
        names = pool.scale[grades[0]], pool.scale[grades[1]]
        return {"first": first, "second": second, "names": names, "pairs": pairs}

    def _judge(self, pool: Pool, field: str) -> Judge:
        judge = Judge.objects.filter(pool=pool, pk=self._number(field)).first()
        if judge is None:
            raise Http404
        return judge

    def _number(self, field: str) -> int:
        given = self.request.GET.get(field, "")
        if not SMALL_NUMBER.fullmatch(given):
            raise Http404
        return int(given)


def _with_texts(pool: Pool, conflicts: list[Conflict]) -> list[tuple[Conflict, PairShown | None]]:
    shown = {each.pair.pk: each for each in pairs_shown(pool, [conflict.pair for conflict in conflicts])}
    return [(conflict, shown.get(conflict.pair.pk)) for conflict in conflicts]


class PoolAdjudicateView(ActionView):
    """``pair`` and ``grade``; an empty grade takes the decision back."""

    required_scope: ClassVar[str] = Scope.JOBS

    def act(self) -> str:
        pool, given = pool_or_404(self), self.request.POST
        if not SMALL_NUMBER.fullmatch(given.get("pair", "")):
            raise Http404
        pair = PoolPair.objects.filter(pool=pool, pk=int(given["pair"])).select_related("pool").first()
        if pair is None:
            raise Http404
        if not given.get("grade"):
            adjudication_withdraw(principal=self.principal, pair=pair)
            return f"The decision about {pair.document_id} for {pair.query_id} is taken back."
        if not re.fullmatch(r"[0-5]", given["grade"]):
            raise Http404
        decided = pair_adjudicate(principal=self.principal, pair=pair, grade=int(given["grade"]))
        return f"Decided: {pair.document_id} for {pair.query_id} is {pool.scale[decided.grade or 0]}."

    def after(self) -> str:
        return f"{reverse('web:pool_conflicts', args=[self.kwargs['pk']])}?{self.request.GET.urlencode()}"


class ModelJudgeForm(forms.Form):
    model = forms.SlugField()
    cut_offs = forms.CharField(max_length=200)

    def clean_cut_offs(self) -> list[float]:
        parts = [part for part in re.split(r"[\s,;]+", self.cleaned_data["cut_offs"]) if part]
        try:
            return [float(part) for part in parts]
        except ValueError as error:
            message = "The cut-offs are no numbers; give them with commas between, such as 0.25, 0.5, 0.75."
            raise forms.ValidationError(message) from error


class PoolModelJudgeView(ActionView):
    required_scope: ClassVar[str] = Scope.JOBS

    def act(self) -> str:
        pool, form = pool_or_404(self), ModelJudgeForm(self.request.POST)
        if not form.is_valid():
            message = next(iter(form.errors.values()))[0]
            raise AssayError("invalid", str(message), status=422)
        served = models_usable(models_served(), self.principal)
        model = served.filter(name=form.cleaned_data["model"]).first()
        if model is None:
            raise Http404
        asked = model_judge_ask(
            principal=self.principal, pool=pool, model=model, cut_offs=form.cleaned_data["cut_offs"]
        )
        return f"The job “{asked.job}” scores the pairs; its verdicts are here when it has ended."

    def after(self) -> str:
        return reverse("web:pool_agreement", args=[self.kwargs["pk"]])

"""Pools of pairs to judge: the list, the form of a new one, one pool with its progress, and the buttons."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar, Final

from django import forms
from django.core.exceptions import ValidationError
from django.http import Http404, HttpRequest, HttpResponse
from django.shortcuts import redirect, render
from django.urls import reverse
from django.views.generic import TemplateView

from accounts.scopes import Scope
from assay.api.principal import Principal
from assay.errors import AssayError
from assay.web.mixins import PrincipalMixin
from scoring.filters import PoolFilter
from scoring.models import JudgementSet, JudgingRule, Pool, RunSet, Stage, Verdict, VerdictSource
from scoring.models.judgement_set import DEFAULT_SCALE
from scoring.selectors.agreement import pool_agreement
from scoring.selectors.comparisons import stages_comparable
from scoring.selectors.evaluation import EVALUATED
from scoring.selectors.jobs import jobs_of
from scoring.selectors.pools import DEEPEST, judging_pace, pool_candidates, pool_progress, pools_of
from scoring.services.pools import (
    LONGEST_GUIDELINES,
    USUAL_DEPTH,
    pool_close,
    pool_create,
    pool_delete,
    pool_open,
    pool_sets,
)
from scoring.services.publishing import BY_PEOPLE, pool_publish, publication_of
from scoring.web.actions import ActionView
from scoring.web.columns import ColumnsMixin
from scoring.web.filtered import FilteredListView
from scoring.web.forms import SetChoice, ready_sets

DEEDS: Final = ("close", "open", "delete", "publish")
JOBS_OFFERED: Final = 100
UNSEEN: Final = tuple(source for source in BY_PEOPLE if source != VerdictSource.SEEN)


def pool_or_404(view: PrincipalMixin) -> Pool:
    pool = pools_of(view.principal).filter(pk=view.kwargs["pk"]).first()
    if pool is None:
        raise Http404
    return pool


class PoolForm(forms.Form):
    """Over the query set of the stages that the address names, those ticked; ``query`` is one query's id."""

    stages = forms.MultipleChoiceField(label="Rankings", required=False, widget=forms.CheckboxSelectMultiple)
    run_set = SetChoice(RunSet.objects.none(), label="Uploaded run", required=False, empty_label="None")
    k = forms.IntegerField(label="Documents per ranking", min_value=1, max_value=DEEPEST, initial=USUAL_DEPTH)
    base = SetChoice(
        JudgementSet.objects.none(), label="Without what is graded in", required=False, empty_label="Nothing"
    )
    query = forms.CharField(label="Only the query with the id", max_length=200, required=False)
    name = forms.CharField(max_length=200, required=False, help_text="left empty: what it was made of")
    scale = forms.CharField(
        label="Grades, one per line, the worst first",
        required=False,
        widget=forms.Textarea(attrs={"rows": 4}),
        help_text=f"two to six; left empty: the judgement set's, or {', '.join(DEFAULT_SCALE)}",
    )
    relevant_from = forms.IntegerField(
        label="Relevant from grade", min_value=1, max_value=5, required=False, help_text="left empty: the set's, or 1"
    )
    guidelines = forms.CharField(
        required=False,
        max_length=LONGEST_GUIDELINES,
        widget=forms.Textarea(attrs={"rows": 5}),
        help_text="what a judge should know; left empty: the judgement set's",
    )
    quorum = forms.IntegerField(label="Judges per pair", min_value=1, max_value=5, initial=1)
    rule = forms.ChoiceField(
        label="Several judges' grades become",
        required=False,
        choices=[("", "by the number of judges: the one grade, or the median"), *JudgingRule.choices],
    )

    def __init__(self, *args: Any, principal: Principal, chosen: Sequence[Stage], **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        ticked = {stage.pk for stage in chosen}
        beside = [one for one in stages_comparable(principal, chosen[0].job.query_set_id) if one.pk not in ticked]
        same = [one for one in beside if one.job.document_set_id == chosen[0].job.document_set_id]
        self.offered = {str(stage.pk): stage for stage in [*chosen, *same]}
        field = self.fields["stages"]
        field.choices = list(self.offered.items())  # type: ignore[attr-defined]
        field.initial = [str(pk) for pk in ticked]
        self.fields["run_set"].queryset = ready_sets(RunSet, principal)  # type: ignore[attr-defined]
        self.fields["base"].queryset = ready_sets(JudgementSet, principal)  # type: ignore[attr-defined]
        self.sets = chosen[0].job.query_set, chosen[0].job.document_set

    def clean_stages(self) -> list[Stage]:
        return [self.offered[key] for key in self.offered if key in self.cleaned_data["stages"]]

    def fields_given(self) -> dict[str, Any]:
        """As ``pool_create`` takes them; what was left empty is left out."""
        given = {name: value for name, value in self.cleaned_data.items() if value not in ("", None, [])}
        if "scale" in given:
            given["scale"] = [line for line in given["scale"].splitlines() if line.strip()]
        if "query" in given:
            given["query_ids"] = [given.pop("query")]
        return given | dict(zip(("query_set", "document_set"), self.sets, strict=True))

    def size(self) -> int:
        """How many pairs the pool would have. Raises AssayError as making it would."""
        given = self.fields_given()
        stages = given.get("stages", [])
        queries, documents = pool_sets(stages, query_set=given["query_set"], document_set=given["document_set"])
        return len(
            pool_candidates(
                stages=stages, run_set=given.get("run_set"), query_set=queries, document_set=documents,
                depth=given["k"], base=given.get("base"), query_ids=given.get("query_ids", ()),
            )
        )  # fmt: skip


class PoolListView(ColumnsMixin, FilteredListView):
    required_scope: ClassVar[str] = Scope.JOBS
    table_name = "pools"
    filterset_class = PoolFilter
    template_name = "judging/list.html"

    def get_queryset(self) -> Any:
        return pools_of(self.principal)


class PoolNewView(PrincipalMixin, TemplateView):
    """``?stage=…&stage=…&k=…&base=…&query=…``; without a stage, one chooses the job first."""

    required_scope: ClassVar[str] = Scope.JOBS
    template_name = "judging/new.html"

    def get_context_data(self, **kwargs: Any) -> dict[str, Any]:
        chosen = self._stages()
        if not chosen:
            ended = jobs_of(self.principal).filter(state__in=EVALUATED)[:JOBS_OFFERED]
            return super().get_context_data(jobs=ended, **kwargs)
        form = kwargs.setdefault("form", self._form(chosen))
        return super().get_context_data(job=chosen[0].job, size=self._size(form), **kwargs)

    def post(self, request: HttpRequest) -> HttpResponse:
        chosen = self._stages()
        if not chosen:
            return redirect("web:pool_new")
        form = PoolForm(request.POST, principal=self.principal, chosen=chosen)
        valid = form.is_valid()
        if "size" in request.POST or request.headers.get("HX-Target") == "size":
            return (
                render(request, "judging/_size.html", {"size": self._size(form)})
                if _asks_size(request)
                else (self.render_to_response(self.get_context_data(form=form)))
            )
        if valid:
            try:
                pool = pool_create(principal=self.principal, **form.fields_given())
            except AssayError as refusal:
                field = "query" if refusal.param == "query_ids" else refusal.param
                form.add_error(field if field in form.fields else None, refusal.message)
            else:
                return redirect("web:pool_detail", pk=pool.pk)
        return self.render_to_response(self.get_context_data(form=form), status=422)

    def _form(self, chosen: Sequence[Stage]) -> PoolForm:
        given = self.request.GET
        fields = ("k", "base", "query", "run_set")
        initial = {name: given[name] for name in fields if name in given}
        form = PoolForm(None, principal=self.principal, chosen=chosen, initial=initial)
        sets = form.fields["base"].queryset  # type: ignore[attr-defined]
        newest = sets.order_by("-created_at").first()
        if "base" not in initial and newest and not sets.exclude(root=newest.root).exists():
            form.initial["base"] = newest.pk  # the team has this one set alone, in one or more versions
        return form

    def _stages(self) -> list[Stage]:
        """Those that the address names, in its order. Raises Http404 for one that is not the team's."""
        given = list(dict.fromkeys(self.request.GET.getlist("stage")))
        if job := self.request.GET.get("job"):
            found = jobs_of(self.principal).filter(pk=_uuid(job), state__in=EVALUATED).first()
            given = [str(found.last_stage.pk)] if found else ["missing"]
        if not all(key.isascii() and key.isdecimal() and len(key) < 19 for key in given):
            raise Http404
        rows = Stage.objects.filter(job__team=self.principal.team, pk__in=given)
        rows = rows.select_related("model", "run_set", "job__query_set", "job__document_set")
        stages = {str(stage.pk): stage for stage in rows}
        if len(stages) < len(given):
            raise Http404
        return [stages[key] for key in given]

    def _size(self, form: PoolForm) -> dict[str, Any]:
        if not form.is_bound:
            initial = {name: form.get_initial_for_field(field, name) for name, field in form.fields.items()}
            form = PoolForm(
                {name: value for name, value in initial.items() if value is not None},
                principal=self.principal, chosen=list(form.offered.values())[: len(form.fields["stages"].initial)],
            )  # fmt: skip
        if not form.is_valid():
            return {"refusal": "Mend the fields above, then the size can be told."}
        try:
            pairs = form.size()
        except AssayError as refusal:
            return {"refusal": refusal.message}
        return {"pairs": pairs, "minutes": round(pairs * judging_pace(self.principal.user) / 60)}


class PoolDetailView(PrincipalMixin, TemplateView):
    required_scope: ClassVar[str] = Scope.JOBS
    template_name = "judging/detail.html"

    def get_context_data(self, **kwargs: Any) -> dict[str, Any]:
        pool = pool_or_404(self)
        progress = pool_progress(pool, self.principal.user)
        publication = publication_of(pool)
        by_models = Verdict.objects.filter(pair__pool=pool, source=VerdictSource.MODEL).exists()
        return super().get_context_data(
            pool=pool,
            progress=progress,
            publication=publication,
            unseen=publication_of(pool, sources=UNSEEN) if publication.sources.get(VerdictSource.SEEN) else None,
            with_models=publication_of(pool, sources=(*BY_PEOPLE, VerdictSource.MODEL)) if by_models else None,
            models=[two for two in pool_agreement(pool).models if two.second is None] if by_models else [],
            minutes=round(progress.left * judging_pace(self.principal.user) / 60),
            scale=list(enumerate(pool.scale)),
            **kwargs,
        )


class PoolActionView(ActionView):
    required_scope: ClassVar[str] = Scope.JOBS
    deed: str = ""
    published: JudgementSet | None = None
    deleted = False

    def act(self) -> str:
        pool = pool_or_404(self)
        match self.deed:
            case "publish":
                sources: tuple[VerdictSource, ...] = UNSEEN if "unseen" in self.request.POST else BY_PEOPLE
                models = "models" in self.request.POST  # the box stands beside how far they agree with people
                if models:
                    sources = (*sources, VerdictSource.MODEL)
                self.published = pool_publish(
                    principal=self.principal, pool=pool, sources=sources, accept_models=models
                )
                grades = self.published.provenance["grades"]
                return f"Version {self.published.version} is there, with {grades:,} new grades."
            case "delete":
                pool_delete(principal=self.principal, pool=pool)
                self.deleted = True
                return f"The pool “{pool.name}” is deleted with its verdicts; what was published of it stays."
            case "close":
                pool_close(principal=self.principal, pool=pool)
                return "The pool is closed: no pair of it is handed out."
            case _:
                pool_open(principal=self.principal, pool=pool)
                return "The pool is open again."

    def after(self) -> str:
        if self.published is not None:
            return reverse("web:set_detail", args=["judgement-sets", self.published.pk])
        return reverse("web:pool_list") if self.deleted else reverse("web:pool_detail", args=[self.kwargs["pk"]])


def _asks_size(request: HttpRequest) -> bool:
    return request.headers.get("HX-Request") == "true"


def _uuid(given: str) -> Any:
    try:
        return forms.UUIDField().clean(given)
    except ValidationError as error:
        raise Http404 from error

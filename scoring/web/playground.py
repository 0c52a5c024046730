"""“Try it”: a query, a few documents, one or more models; their answers side by side, with the calls that get them."""

from __future__ import annotations

import uuid
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar

from django.contrib import messages
from django.http import HttpRequest, HttpResponse, HttpResponseRedirect
from django.shortcuts import render
from django.urls import reverse
from django.views.generic import FormView, View

from accounts.scopes import Scope
from assay.callers import caller_of
from assay.errors import AssayError
from assay.web.errors import not_here
from assay.web.mixins import PrincipalMixin
from scoring.models import PlaygroundExample, ScoringModel
from scoring.payloads import SyncOptions
from scoring.services.playground import example_delete, example_save
from scoring.services.scoring import ScoredItem, ScoringAnswer, scoring_run
from scoring.web.actions import ActionView
from scoring.web.htmx import wants_fragment
from scoring.web.playground_calls import curl, options_taken, python
from scoring.web.playground_form import (
    SAMPLE,
    PlaygroundForm,
    default_models,
    example_initial,
    request_initial,
    request_of,
)

ENDPOINT = "page /try/"
EXAMPLES_SHOWN = 20
LEFT = "client_left"


@dataclass(frozen=True, slots=True)
class AnswerRow:
    """``labels``: (label, probability) of a generative model. ``before``: its rank by the first model."""

    rank: int
    item: ScoredItem
    text: str
    labels: list[tuple[str, float | None]]
    before: int | None

    @property
    def change(self) -> int:
        """By how many ranks it is higher than by the first model; lower: below 0."""
        return self.before - self.rank if self.before else 0

    @property
    def moved(self) -> int:
        return abs(self.change)


@dataclass(frozen=True, slots=True)
class ModelAnswer:
    """Of one model: its ranking, or why there is none; and the calls that get the same."""

    model: ScoringModel
    curl: str
    python: str
    answer: ScoringAnswer | None = None
    rows: list[AnswerRow] = field(default_factory=list)
    refusal: str = ""
    pending: bool = False  # it is asked by a request of its own
    left: bool = False  # whoever asked is gone

    @property
    def cut(self) -> int:
        """Tokens that did not fit, over all documents."""
        return sum(row.item.truncated_tokens for row in self.rows)


class TryView(PrincipalMixin, FormView[PlaygroundForm]):
    required_scope: ClassVar[str] = Scope.SCORE
    form_class = PlaygroundForm
    waits_for_model: ClassVar[bool] = True
    template_name = "try/try.html"

    def get_initial(self) -> dict[str, Any]:
        given = self.request.GET
        initial = {"model": given.getlist("model") or default_models()}
        if example := self.example():
            return example_initial(example)
        if "request" in given:
            filled, self.note = self._kept(given["request"])
            return initial | filled
        return initial | (SAMPLE if "example" in given else {})

    def example(self) -> PlaygroundExample | None:
        """The saved one that the address names, to be seen or copied."""
        short_id = self.kwargs.get("short_id") or self.request.GET.get("copy")
        return example_or_404(self, short_id) if short_id else None

    def get_context_data(self, **kwargs: Any) -> dict[str, Any]:
        context = super().get_context_data(**kwargs)
        examples = PlaygroundExample.objects.for_team(self.principal.team).select_related("created_by")
        context["example"] = self.example() if "short_id" in self.kwargs else None
        context["examples"] = examples.defer("documents", "query")[:EXAMPLES_SHOWN]
        context["note"] = getattr(self, "note", "")
        return context

    def post(self, request: HttpRequest, *args: Any, **kwargs: Any) -> HttpResponse:
        self.example()  # nothing is asked at an address that is not there
        return super().post(request, *args, **kwargs)

    def form_valid(self, form: PlaygroundForm) -> HttpResponse:
        context: dict[str, Any] = {"form": form, "answers": self._answers(form)}
        return render(self.request, self.template_name, self.get_context_data(**context))

    def _kept(self, given: str) -> tuple[dict[str, Any], str]:
        row = request_of(self.principal, given) if is_uuid(given) else None
        if row is None:
            raise not_here("score request", given)
        return request_initial(row)

    def _answers(self, form: PlaygroundForm) -> list[ModelAnswer]:
        """With scripts each of several models is asked by a request of its own; else one after the other, and ranks are
        compared with those of the first that answered."""
        models = form.cleaned_data["model"]
        if wants_fragment(self.request) and len(models) > 1:
            return [replace(model_unasked(self.request, form, model), pending=True) for model in models]
        answers: list[ModelAnswer] = []
        for model in models:
            first = next((each for each in answers if each.answer), None)
            before = {row.item.index: row.rank for row in first.rows} if first else {}
            answers.append(model_answer(self, form, model, before))
            if answers[-1].left:
                break  # nobody reads the others
        return answers


class TryColumnView(PrincipalMixin, View):
    """What one of several models answers: ``column`` names it, ``place`` is where it stands."""

    required_scope: ClassVar[str] = Scope.SCORE
    waits_for_model: ClassVar[bool] = True

    def post(self, request: HttpRequest) -> HttpResponse:
        form = PlaygroundForm(request.POST)
        name, place = request.POST.get("column", ""), request.POST.get("place", "")
        models = form.cleaned_data["model"] if form.is_valid() else []
        model = next((model for model in models if model.name == name), None)
        if model is None:
            raise not_here("chosen model", name)
        context = {"each": model_answer(self, form, model, {}), "n": place if place.isdecimal() else "1"}
        return render(request, "try/_column.html", context)


def model_unasked(request: HttpRequest, form: PlaygroundForm, model: ScoringModel) -> ModelAnswer:
    fields, server = form.cleaned_data, request.build_absolute_uri("/").rstrip("/")
    call = (model, fields["query"], fields["documents"], form.given_options())
    return ModelAnswer(model, curl(*call, server=server), python(*call, server=server))


def model_answer(
    view: PrincipalMixin, form: PlaygroundForm, model: ScoringModel, before: dict[int, int]
) -> ModelAnswer:
    """``before``: the ranks that another model gave, by index."""
    fields, shown = form.cleaned_data, model_unasked(view.request, form, model)
    try:
        answer = scoring_run(
            principal=view.principal,
            endpoint=ENDPOINT,
            model=model,
            queries=[fields["query"]],
            documents=fields["documents"],
            options=SyncOptions(**options_taken(model, form.given_options())),
            caller=caller_of(view.request),
        )
    except AssayError as refusal:
        return replace(shown, refusal=refusal.message, left=refusal.code == LEFT)
    return replace(shown, answer=answer, rows=answer_rows(answer, fields["documents"], before))


class ExampleSaveView(PrincipalMixin, View):
    """Keeps what an answer was of."""

    required_scope: ClassVar[str] = Scope.SCORE

    def post(self, request: HttpRequest) -> HttpResponse:
        form = PlaygroundForm(request.POST)
        if not form.is_valid():
            messages.error(request, f"It was not saved. {form.errors.as_text()}")
            return HttpResponseRedirect(reverse("web:try"))
        fields = form.cleaned_data
        example = example_save(
            principal=self.principal,
            title=request.POST.get("title", "")[:120],
            models=fields["model"],
            query=fields["query"],
            documents=fields["documents"],
            options=form.given_options(),
        )
        messages.success(request, "Saved. Everybody in your team can open this address.")
        return HttpResponseRedirect(reverse("web:example", args=[example.short_id]))


class ExampleDeleteView(ActionView):
    required_scope: ClassVar[str] = Scope.SCORE

    def act(self) -> str:
        example = example_or_404(self, self.kwargs["short_id"])
        example_delete(principal=self.principal, example=example)
        return f"The example “{example.title}” is deleted."

    def after(self) -> str:
        return reverse("web:try")


def example_or_404(view: PrincipalMixin, short_id: str) -> PlaygroundExample:
    example = PlaygroundExample.objects.for_team(view.principal.team).filter(short_id=short_id).first()
    if example is None:
        raise not_here("example", short_id)
    return example


def is_uuid(given: str) -> bool:
    try:
        uuid.UUID(given)
    except ValueError:
        return False
    return True


def answer_rows(answer: ScoringAnswer, documents: list[str], before: dict[int, int]) -> list[AnswerRow]:
    labels = answer.reply.labels
    return [
        AnswerRow(
            rank,
            item,
            documents[item.index],
            list(zip(labels.labels, labels.probabilities[item.index], strict=True)) if labels else [],
            before.get(item.index),
        )
        for rank, item in enumerate(answer.ranked(), start=1)
    ]

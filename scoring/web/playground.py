"""“Try it”: a query, a few documents, a model, and the answer with the call that gets it."""

from __future__ import annotations

import json
import shlex
from dataclasses import dataclass
from typing import Any, ClassVar

from django.http import HttpRequest, HttpResponse
from django.shortcuts import render
from django.views.generic import FormView

from accounts.scopes import Scope
from assay.callers import caller_of
from assay.errors import AssayError
from assay.web.mixins import PrincipalMixin
from scoring.models import ScoringModel
from scoring.models.scoring_model import ModelKind
from scoring.selectors.models import models_served
from scoring.services.scoring import ScoredItem, ScoringAnswer, scoring_run
from scoring.web.forms import TryForm

ENDPOINT = "page /try/"
EXAMPLE = {
    "query": "How do I get limescale out of my kettle?",
    "documents": "\n".join(
        [
            "Fill the kettle half with water, stir in two spoonfuls of citric acid and let it stand for half an hour.",
            "A kettle of fish was a Scottish picnic: salmon, boiled in the river's own water.",
            "Vinegar takes the lime off taps and shower heads; wrap them in a soaked cloth over night.",
            "Water boils at a lower temperature the higher up the mountain you are.",
        ]
    ),
}


@dataclass(frozen=True, slots=True)
class AnswerRow:
    """``labels``: (label, probability) of a generative model."""

    rank: int
    item: ScoredItem
    text: str
    labels: list[tuple[str, float | None]]


class TryView(PrincipalMixin, FormView[TryForm]):
    required_scope: ClassVar[str] = Scope.SCORE
    form_class = TryForm
    waits_for_model: ClassVar[bool] = True
    template_name = "try/try.html"

    def get_initial(self) -> dict[str, Any]:
        default = models_served().filter(is_default=True, kind=ModelKind.LATE_INTERACTION).first()
        model = self.request.GET.get("model") or (default.name if default else None)
        return {"model": model, **(EXAMPLE if "example" in self.request.GET else {})}

    def form_valid(self, form: TryForm) -> HttpResponse:
        model, query, documents = (form.cleaned_data[name] for name in ("model", "query", "documents"))
        context: dict[str, Any] = {"form": form, "curl": curl(self.request, model, query, documents)}
        try:
            answer = scoring_run(
                principal=self.principal,
                endpoint=ENDPOINT,
                model=model,
                queries=[query],
                documents=documents,
                caller=caller_of(self.request),
            )
            context |= {"answer": answer, "rows": answer_rows(answer, documents)}
        except AssayError as refusal:
            context["refusal"] = refusal.message
        return render(self.request, self.template_name, self.get_context_data(**context))


def answer_rows(answer: ScoringAnswer, documents: list[str]) -> list[AnswerRow]:
    labels = answer.reply.labels
    return [
        AnswerRow(
            rank,
            item,
            documents[item.index],
            list(zip(labels.labels, labels.probabilities[item.index], strict=True)) if labels else [],
        )
        for rank, item in enumerate(answer.ranked(), start=1)
    ]


def curl(request: HttpRequest, model: ScoringModel, query: str, documents: list[str]) -> str:
    """The same call over HTTP; the token is the caller's own."""
    generative = model.kind == ModelKind.GENERATIVE
    url = request.build_absolute_uri("/generative_scoring" if generative else "/rerank")
    body = {"model": model.name, "query": query, "items" if generative else "documents": documents}
    return " \\\n  ".join(
        [
            f"curl {url}",
            '-H "Authorization: Bearer $ASSAY_TOKEN"',
            "-H 'Content-Type: application/json'",
            f"-d {shlex.quote(json.dumps(body, ensure_ascii=False, indent=2))}",
        ]
    )

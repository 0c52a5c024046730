"""A document set encoded ahead, on the set's page: what it would take, how far it is, what there is."""

from __future__ import annotations

from typing import Any, ClassVar

from django.http import HttpRequest, HttpResponse
from django.urls import reverse
from django.views.generic.base import View

from accounts.scopes import Scope
from assay.api.principal import Principal
from assay.errors import AssayError
from assay.web.errors import not_here
from assay.web.mixins import PrincipalMixin
from scoring.models import DocumentSet, SetEncoding
from scoring.selectors.encodings import encoders_served, encoding_estimate, encodings_of, set_encodings
from scoring.services.encodings import encoding_ask, encoding_cancel, encoding_delete
from scoring.states import EncodingState
from scoring.web.actions import ActionView
from scoring.web.htmx import polled


def encodings_shown(principal: Principal, document_set: DocumentSet, model_name: str) -> dict[str, Any]:
    """For ``templates/sets/_encodings.html``; ``model_name`` is the one whose estimate is asked for, if any."""
    models = list(encoders_served(principal))
    chosen = next((model for model in models if model.name == model_name), None)
    rows = set_encodings(document_set)
    return {
        "uploaded": document_set,
        "encodings": rows,
        "encoding": any(EncodingState(row.encoding.state).is_open for row in rows),
        "encoders": models,
        "chosen": chosen,
        "estimate": encoding_estimate(document_set, chosen) if chosen else None,
        "may_encode": bool(models) and document_set.texts_delete_requested_at is None,
    }


def document_set_or_404(view: PrincipalMixin, pk: Any) -> DocumentSet:
    found = DocumentSet.objects.for_team(view.principal.team).filter(pk=pk).first()
    if found is None:
        raise not_here("document set", pk)
    return found


class EncodingsView(PrincipalMixin, View):
    """The part of the set's page; renews itself while something is under way."""

    required_scope: ClassVar[str] = Scope.JOBS

    def get(self, request: HttpRequest, pk: Any) -> HttpResponse:
        document_set = document_set_or_404(self, pk)
        context = encodings_shown(self.principal, document_set, request.GET.get("encoder", ""))
        ended = "renew" in request.GET and not context["encoding"]
        return polled(request, "sets/_encodings.html", context, ended=ended)


class EncodingAskView(ActionView):
    required_scope: ClassVar[str] = Scope.JOBS

    def act(self) -> str:
        document_set = document_set_or_404(self, self.kwargs["pk"])
        name = self.request.POST.get("encoder", "")
        model = encoders_served(self.principal).filter(name=name).first()
        if model is None:
            message = f"'{name[:64]}' is no model that can encode ahead; choose one of the list."
            raise AssayError("model_not_found", message, status=404)
        made = encoding_ask(principal=self.principal, document_set=document_set, model=model)
        workers = f"{len(made)} workers encode" if len(made) > 1 else "A worker encodes"
        return f"{workers} “{document_set.name}” by “{model.name}”; the progress is shown below."

    def after(self) -> str:
        return reverse("web:set_detail", args=["document-sets", self.kwargs["pk"]]) + "#encodings"


class EncodingActionView(ActionView):
    """``deed`` is cancel or delete."""

    required_scope: ClassVar[str] = Scope.JOBS
    deed = ""
    document_set: Any = None

    def act(self) -> str:
        encoding: SetEncoding | None = encodings_of(self.principal).filter(pk=self.kwargs["pk"]).first()
        if encoding is None:
            raise not_here("encoding", self.kwargs["pk"])
        self.document_set = encoding.document_set_id
        if self.deed == "cancel":
            encoding_cancel(principal=self.principal, encoding=encoding)
            return f"Encoding by “{encoding.model}” is stopped; what is encoded by then stays."
        encoding_delete(principal=self.principal, encoding=encoding)
        return f"What “{encoding.model}” encoded is being deleted."

    def after(self) -> str:
        return reverse("web:set_detail", args=["document-sets", self.document_set]) + "#encodings"

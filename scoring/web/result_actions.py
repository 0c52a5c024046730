"""What one does with a document of a job's results: bookmark it, note something, find its best passage."""

from __future__ import annotations

from typing import Any, ClassVar

from django import forms
from django.http import Http404, HttpRequest, HttpResponse
from django.shortcuts import render
from django.urls import reverse

from accounts.scopes import Scope
from assay.callers import caller_of
from assay.errors import AssayError
from assay.web.mixins import PrincipalMixin
from scoring.models import Document, Job, Query
from scoring.selectors.texts import texts_shown
from scoring.services.annotations import annotation_set
from scoring.services.passages import passage_find
from scoring.web.htmx import wants_fragment
from scoring.web.job_actions import JobActionView
from scoring.web.job_page import stage_or_404
from scoring.web.jobs import job_or_404

ENDPOINT = "page /jobs/…/passage/"


class PairForm(forms.Form):
    """A document of a query, by position."""

    query = forms.IntegerField(min_value=0)
    document = forms.IntegerField(min_value=0)


class KeepForm(PairForm):
    """``bookmarked`` and ``note`` are changed where they are sent."""

    bookmarked = forms.ChoiceField(choices=(("yes", "yes"), ("no", "no")), required=False)
    note = forms.CharField(required=False, widget=forms.Textarea)


class ResultKeepView(JobActionView):
    """The address of the results that one came from is this one's query string."""

    def act(self) -> str:
        form, job, user = KeepForm(self.request.POST), self.job(), self.principal.user
        if not form.is_valid() or user is None:
            raise Http404
        given = form.cleaned_data
        kept = annotation_set(
            user=user,
            job=job,
            query_position=given["query"],
            document_position=given["document"],
            bookmarked=given["bookmarked"] == "yes" if given["bookmarked"] else None,
            note=given["note"] if "note" in self.request.POST else None,
        )
        if "note" in self.request.POST:
            return "The note is kept." if kept and kept.note else "The note is gone."
        return "The document is bookmarked." if kept and kept.bookmarked else "The bookmark is gone."

    def after(self) -> str:
        document = self.request.POST.get("document", "")
        return f"{super().after()}?{self.request.GET.urlencode()}#d{document}"


class ResultPassageView(PrincipalMixin):
    """The document's text with its best passage marked: a fragment for scripts, else a page."""

    required_scope: ClassVar[str] = Scope.JOBS
    waits_for_model: ClassVar[bool] = True

    def post(self, request: HttpRequest, pk: Any) -> HttpResponse:
        form, job = PairForm(request.POST), job_or_404(self, pk)
        stage = stage_or_404(request, job)
        if not form.is_valid() or stage.model is None:
            raise Http404
        query, document = pair_shown(job, **form.cleaned_data)
        back = f"{reverse('web:job_detail', args=[job.pk])}?{request.GET.urlencode()}#d{document.position}"
        context = {"job": job, "query": query, "document": document, "model": stage.model, "back": back, "view": self}
        try:
            context["passage"] = passage_find(
                principal=self.principal,
                model=stage.model,
                query=query.text,
                text=document.text,
                endpoint=ENDPOINT,
                caller=caller_of(request),
            )
        except AssayError as refusal:
            context["refusal"] = refusal.message
        return render(request, "jobs/_passage.html" if wants_fragment(request) else "jobs/passage.html", context)


def pair_shown(job: Job, query: int, document: int) -> tuple[Query, Document]:
    queries = Query.objects.filter(query_set=job.query_set_id, position=query)
    documents = Document.objects.filter(document_set=job.document_set_id, position=document)
    found = texts_shown(queries, job.query_set).first(), texts_shown(documents, job.document_set).first()
    if found[0] is None or found[1] is None:
        raise Http404
    return found[0], found[1]

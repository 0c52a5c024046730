"""Reads about uploaded sets and their rows."""

from __future__ import annotations

import re
from typing import Any, Final

from django.contrib.postgres.search import SearchQuery
from django.db.models import Count, Model, Q, QuerySet

from assay.api.principal import Principal
from scoring.models import Document, DocumentSet, Job, Judgement, JudgementSet, Query, RunEntry, RunSet
from scoring.models import QuerySet as QueriesSet
from scoring.models.base import TextSet, UploadedSet
from scoring.models.document_set import document_words
from scoring.models.query_set import query_words
from scoring.selectors.texts import texts_gone, texts_shown
from scoring.states import SetState

VERSIONS_SHOWN: Final = 20


def sets_of(principal: Principal, model: type[UploadedSet]) -> QuerySet[Any]:
    """The team's sets, with ``job_count`` where jobs refer to such sets. What can be long is left unread."""
    sets = model.objects.for_team(principal.team).defer("problems", "mapping", "error").select_related("created_by")
    jobs = "stages__job" if model is RunSet else "jobs"
    counted = sets.annotate(job_count=Count(jobs, distinct=True)) if job_field(model) else sets
    return counted.order_by("-created_at")


def job_field(model: type[UploadedSet]) -> str | None:
    """The path from a job to its sets of this kind; None where jobs have none."""
    return {DocumentSet: "document_set", QueriesSet: "query_set", RunSet: "stages__run_set"}.get(model)


def set_rows(uploaded: UploadedSet, *, search: str = "", tag: str = "") -> QuerySet[Any]:
    """The set's rows in file order. With ``search``, of documents and queries those whose id it is or that have all its
    words, as beginnings of words; of other rows those whose ids hold it. With ``tag``, the queries that have it."""
    model, parent, fields = _rows(uploaded)
    rows = model._default_manager.filter(**{parent: uploaded}).order_by("position")
    if isinstance(uploaded, TextSet):
        rows = texts_shown(rows, uploaded)
        fields = ("external_id",) if texts_gone(uploaded) else fields
    if tag and isinstance(uploaded, QueriesSet):
        rows = rows.none() if texts_gone(uploaded) else rows.filter(tagged(tag))
    if not search:
        return rows
    if isinstance(uploaded, TextSet) and not texts_gone(uploaded):
        return _with_words(rows, search)
    wanted = Q()
    for field in fields:
        wanted |= Q(**{f"{field}__icontains": search})
    return rows.filter(wanted)


def tagged(tag: str, path: str = "") -> Q:
    """Of queries, or of what ``path`` leads from to one: those that have ``tag``, in a list or in a text of several."""
    alone = rf"(^|[,;|])\s*{re.escape(tag)}\s*([,;|]|$)"
    return Q(**{f"{path}metadata__tags__contains": [tag]}) | Q(**{f"{path}metadata__tags__regex": alone})


def _with_words(rows: QuerySet[Any], search: str) -> QuerySet[Any]:
    named = rows.filter(external_id=search)
    words = re.findall(r"\w+", search)
    if not words:
        return named
    asked = SearchQuery(" & ".join(f"'{word}':*" for word in words), search_type="raw", config="simple")
    looked_into = document_words() if rows.model is Document else query_words()
    found = rows.model._default_manager.annotate(words=looked_into).filter(words=asked)
    # By the keys of both halves together: each uses its own index, and few keys are looked up instead of all rows read.
    return rows.filter(pk__in=named.order_by().values("pk").union(found.order_by().values("pk")))


def set_versions(uploaded: UploadedSet) -> list[UploadedSet]:
    """The newest first. Of judgements those that say so; of other sets the team's of this name, as each upload under
    the same name is a version of it."""
    if isinstance(uploaded, JudgementSet):
        versions = JudgementSet.objects.filter(root=uploaded.root, state=SetState.READY)
        return list(versions.order_by("-version")[:VERSIONS_SHOWN])
    model = type(uploaded)
    same = model._default_manager.filter(team_id=uploaded.team_id, name=uploaded.name, state=SetState.READY)
    return list(same.only("name", "created_at", "counts").order_by("-created_at")[:VERSIONS_SHOWN])


def set_jobs(uploaded: UploadedSet) -> QuerySet[Job]:
    """Jobs that refer to the set: while there are any, it cannot be deleted."""
    name = job_field(type(uploaded))
    if name is None:
        return Job.objects.none()
    return Job.objects.filter(**{name: uploaded}).distinct().prefetch_related("stages__model", "stages__run_set")


def _rows(uploaded: UploadedSet) -> tuple[type[Model], str, tuple[str, ...]]:
    match uploaded:
        case DocumentSet():
            return Document, "document_set", ("external_id", "title", "text")
        case QueriesSet():
            return Query, "query_set", ("external_id", "text")
        case RunSet():
            return RunEntry, "run_set", ("query_id", "document_id")
        case _:
            return Judgement, "judgement_set", ("query_id", "document_id")

"""What a new job is tried on: one query and a few documents of the chosen sets."""

from __future__ import annotations

import re
from typing import Final

from django.contrib.postgres.search import SearchQuery

from assay.api.sentences import shortened
from assay.errors import AssayError
from scoring.models import Document, DocumentSet, Query, QuerySet, RunSet
from scoring.models.document_set import document_words
from scoring.selectors.runs import run_entries

TRIED: Final = 20
WORDS_TRIED: Final = 3


def trial_query(query_set: QuerySet, external_id: str) -> Query:
    """The query of that id, else the first with a text. Raises AssayError 422 ``no_such_query``."""
    queries = Query.objects.filter(query_set=query_set)
    found = queries.filter(external_id=external_id) if external_id else queries.filter(is_empty=False)
    query = found.order_by("position").first()
    if query is None:
        named = f"no query '{shortened(external_id)}'" if external_id else "no query with a text"
        message = f"'{query_set.name}' has {named}; give the id of another, or none for the first."
        raise AssayError("no_such_query", message, status=422, param="try_query")
    return query


def trial_documents(document_set: DocumentSet, query: Query, run_set: RunSet | None) -> list[Document]:
    """At most TRIED with a text. Of a run, the first that it lists for the query; else those with one of the query's
    longest words, then the first of the set."""
    rows = Document.objects.filter(document_set=document_set, is_empty=False)
    if run_set is not None:
        listed = run_entries(run_set=run_set).filter(query_id=query.external_id).values_list("document_id", flat=True)
        found = {row.external_id: row for row in rows.filter(external_id__in=list(listed[:TRIED]))}
        return [found[name] for name in listed[:TRIED] if name in found]
    words = sorted(set(re.findall(r"\w{3,}", query.text.lower())), key=lambda word: (-len(word), word))[:WORDS_TRIED]
    chosen: list[Document] = []
    if words:
        asked = SearchQuery(" | ".join(f"'{word}'" for word in words), search_type="raw", config="simple")
        chosen = list(rows.annotate(words=document_words()).filter(words=asked).order_by()[:TRIED])
    others = rows.exclude(pk__in=[row.pk for row in chosen]).order_by("position")
    return sorted([*chosen, *others[: TRIED - len(chosen)]], key=lambda row: row.position)

"""How an uploaded run and the sets of a job go together: both name queries and documents by the ids of their files."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any, Final

from django.db.models import Count, Exists, OuterRef, Q
from django.db.models import QuerySet as Rows

from scoring.models import Document, DocumentSet, Query, QuerySet, RunEntry, RunSet

NAMED: Final = 5


@dataclass(frozen=True, slots=True)
class RunMatch:
    """``entries`` of the run; of these ``matched`` with a query and a document of the sets. The rest, by its reason."""

    entries: int
    matched: int
    unknown_queries: int
    unknown_documents: int
    first_unknown_queries: list[str]
    first_unknown_documents: list[str]

    def as_json(self) -> dict[str, Any]:
        return asdict(self)


def run_match(*, run_set: RunSet, query_set: QuerySet, document_set: DocumentSet) -> RunMatch:
    """``unknown_queries`` and ``unknown_documents`` count ids, not entries; the first of each are named."""
    entries = _entries(run_set, query_set, document_set)
    known = Q(query_known=True, document_known=True)
    return RunMatch(
        **entries.aggregate(
            entries=Count("pk"),
            matched=Count("pk", filter=known),
            unknown_queries=Count("query_id", filter=Q(query_known=False), distinct=True),
            unknown_documents=Count("document_id", filter=Q(document_known=False), distinct=True),
        ),
        first_unknown_queries=_first(entries.filter(query_known=False), "query_id"),
        first_unknown_documents=_first(entries.filter(document_known=False), "document_id"),
    )


def run_matches(*, run_set: RunSet, query_set: QuerySet, document_set: DocumentSet) -> bool:
    """Whether at least one entry names a query and a document of the sets."""
    entries = _entries(run_set, query_set, document_set)
    return entries.filter(query_known=True, document_known=True).exists()


def _entries(run_set: RunSet, query_set: QuerySet, document_set: DocumentSet) -> Rows[Any]:
    queries = Query.objects.filter(query_set=query_set, external_id=OuterRef("query_id"))
    documents = Document.objects.filter(document_set=document_set, external_id=OuterRef("document_id"))
    entries = RunEntry.objects.filter(run_set=run_set)
    return entries.annotate(query_known=Exists(queries), document_known=Exists(documents))


def _first(entries: Rows[Any], field: str) -> list[str]:
    """Different ids in the order of the file; an id that fills the first rows of a long file is passed over."""
    return list(dict.fromkeys(entries.order_by("position").values_list(field, flat=True)[:1000]))[:NAMED]

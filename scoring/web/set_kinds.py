"""The three kinds of set share their pages; what differs between them is said here once."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from scoring.models import DocumentSet, JudgementSet, QuerySet
from scoring.models.base import UploadedSet


@dataclass(frozen=True, slots=True)
class SetKind:
    slug: str
    import_name: str
    title: str
    noun: str
    rows: str
    icon: str
    model: type[UploadedSet]
    purpose: str
    hint: str

    def __str__(self) -> str:
        return self.slug


SET_KINDS: Final = {
    kind.slug: kind
    for kind in (
        SetKind(
            "document-sets",
            "documents",
            "Document sets",
            "document set",
            "documents",
            "documents",
            DocumentSet,
            "The texts that a job ranks. One set comes from one file and does not change afterwards.",
            "One row per document: a text, and if you have them an id, a title and further columns.",
        ),
        SetKind(
            "query-sets",
            "queries",
            "Query sets",
            "query set",
            "queries",
            "queries",
            QuerySet,
            "The questions that a job ranks documents for.",
            "One row per query: a text, and an id if you have one.",
        ),
        SetKind(
            "judgement-sets",
            "judgements",
            "Judgement sets",
            "judgement set",
            "judgements",
            "judgements",
            JudgementSet,
            "Which documents answer which query, as people graded them. With one, a job can be measured.",
            "One row per judgement: query id, document id and grade, as a table or as a TREC qrels file.",
        ),
    )
}


class SetKindConverter:
    """The first word of an address, as the kind it names."""

    regex = "|".join(SET_KINDS)

    def to_python(self, value: str) -> SetKind:
        return SET_KINDS[value]

    def to_url(self, value: SetKind | str) -> str:
        return str(value)


def kind_of(uploaded: UploadedSet) -> SetKind:
    return next(kind for kind in SET_KINDS.values() if isinstance(uploaded, kind.model))

"""The kinds of set share their pages; what differs between them is said here once."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from scoring.models import DocumentSet, JudgementSet, QuerySet, RunSet
from scoring.models.base import TextSet, UploadedSet
from scoring.selectors.sets import job_field


@dataclass(frozen=True, slots=True)
class SetKind:
    """``columns``: of the table that shows rows; kinds whose rows hold texts show these instead."""

    slug: str
    import_name: str
    title: str
    noun: str
    rows: str
    icon: str
    model: type[UploadedSet]
    purpose: str
    hint: str
    example: str
    columns: tuple[str, ...] = ()
    trec: str = ""  # what its rows are called as a TREC file

    @property
    def has_texts(self) -> bool:
        return issubclass(self.model, TextSet)

    @property
    def headings(self) -> list[str]:
        return [column.removesuffix("_id").capitalize() for column in self.columns]

    @property
    def job_field(self) -> str | None:
        path = job_field(self.model)
        return path and path.rpartition("__")[2]

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
            'id,title,text,topic\nd01,Descaling a kettle,"Fill the kettle half with water, …",cleaning',
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
            "id\ttext\nq01\tHow do I pull out a tick?",
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
            "q01 0 d07 2\nq01 0 d54 0",
            columns=("query_id", "document_id", "grade"),
            trec="TREC qrels",
        ),
        SetKind(
            "run-sets",
            "runs",
            "Run sets",
            "run set",
            "run entries",
            "runs",
            RunSet,
            "Which documents a search found for each query. They are the candidates of a job that reranks them.",
            "One row per query and document: their ids, and a rank, a score or both, as a table or as a TREC run file.",
            "q01 Q0 d07 1 12.5 bm25\nq01 Q0 d54 2 11.9 bm25",
            columns=("query_id", "document_id", "rank", "score"),
            trec="TREC run",
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

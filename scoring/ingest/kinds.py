"""The four kinds of file: documents, queries, judgements, runs. Each row becomes one item, or a problem."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

from django.db import models

from scoring.ingest.formats import Format
from scoring.ingest.mapping import Mapping, Role
from scoring.models import Document, DocumentSet, Judgement, JudgementSet, Query, QuerySet, RunEntry, RunSet
from scoring.models.base import UploadedSet

MAX_ID_CHARACTERS: Final = 200
GRADES: Final = range(-32_768, 32_768)
RANKS: Final = range(2_147_483_648)
SHOWN_CHARACTERS: Final = 80
NAMED: Final = ("narrative", "tags")  # roles of queries that are metadata
ENCODE: Final = json.JSONEncoder(ensure_ascii=False, allow_nan=False).encode


@dataclass(slots=True)  # not frozen, for the reason that Row is not
class Item:
    """``values`` in the order of the kind's ``columns``; ``key`` must be unique in the file."""

    key: tuple[str, ...]
    values: tuple[Any, ...]
    is_empty: bool = False


@dataclass(frozen=True, slots=True)
class ImportKind:
    name: str  # "documents"
    noun: str  # "document_set"
    set_model: type[UploadedSet]
    item_model: type[models.Model]
    parent: str  # the item's foreign key column
    columns: tuple[str, ...]  # the item's columns beside the parent's and position
    roles: tuple[Role, ...]
    build: Callable[[dict[str, Any], Mapping, int], Item]  # raises ValueError with the row's problem
    any_of: tuple[str, ...] = ()  # roles of which one at least must have a column
    trec: Format | None = None  # the TREC format that holds such rows

    @property
    def graded(self) -> bool:
        """Whether rows are grades of pairs, of which a repeated one is no fault and another grade is a conflict."""
        return self.item_model is Judgement

    @property
    def ranks(self) -> bool:
        """Whether rows are places in rankings, which a rank and a score may order differently."""
        return self.item_model is RunEntry

    @property
    def names_pairs(self) -> bool:
        """Whether rows name a query and a document, first of all, by the ids of other files."""
        return self.columns[:2] == ("query_id", "document_id")


def _document(values: dict[str, Any], mapping: Mapping, number: int) -> Item:
    external_id = _id(values, mapping, "id", default=str(number))
    title, text = _text(values, mapping, "title"), _text(values, mapping, "text")
    empty = not text.strip()
    return Item((external_id,), (external_id, title, text, _metadata(values, mapping), empty), empty)


def _query(values: dict[str, Any], mapping: Mapping, number: int) -> Item:
    external_id = _id(values, mapping, "id", default=str(number))
    text = _text(values, mapping, "text")
    empty = not text.strip()
    named = {role: values[column] for role in NAMED if (column := mapping.columns.get(role)) and values.get(column)}
    return Item((external_id,), (external_id, text, _metadata(values, mapping, named), empty), empty)


def _judgement(values: dict[str, Any], mapping: Mapping, number: int) -> Item:
    query_id, document_id = _id(values, mapping, "query_id"), _id(values, mapping, "document_id")
    return Item((query_id, document_id), (query_id, document_id, _grade(values.get(mapping.columns["grade"]))))


def _run_entry(values: dict[str, Any], mapping: Mapping, number: int) -> Item:
    query_id, document_id = _id(values, mapping, "query_id"), _id(values, mapping, "document_id")
    rank = _rank(values[column]) if (column := mapping.columns.get("rank")) in values else None
    score = _score(values.get(mapping.columns["score"]), rank) if "score" in mapping.columns else None
    return Item((query_id, document_id), (query_id, document_id, rank, score))


def _id(values: dict[str, Any], mapping: Mapping, role: str, default: str | None = None) -> str:
    column = mapping.columns.get(role)
    if column is None:
        return default or ""
    value = values.get(column)
    if isinstance(value, bool) or not isinstance(value, str | int):
        raise ValueError(f"'{column}' is {_shown(value)}; an id is text or a whole number")
    text = str(value).strip()
    if not text:
        raise ValueError(f"'{column}' is empty; every row needs an id")
    if len(text) > MAX_ID_CHARACTERS:
        raise ValueError(f"'{column}' has {len(text)} characters; an id has at most {MAX_ID_CHARACTERS}")
    return text


def _text(values: dict[str, Any], mapping: Mapping, role: str) -> str:
    column = mapping.columns.get(role)
    value = values.get(column) if column else None
    if value is None:
        return ""
    if isinstance(value, str):
        return value  # byte for byte as uploaded
    if isinstance(value, int | float):
        return json.dumps(value)
    raise ValueError(f"'{column}' is {_shown(value)}; it must be text")


def _metadata(values: dict[str, Any], mapping: Mapping, named: dict[str, Any] | None = None) -> str:
    """``named``: what is kept under a name of ours, whatever its column is called."""
    if not (kept := mapping.kept(values) | (named or {})):
        return "{}"
    try:
        encoded = ENCODE(kept)
    except (ValueError, RecursionError):
        raise ValueError("the metadata holds a number without end, or nests too deeply") from None
    # Nested values are not covered by the row's own text check, and PostgreSQL stores neither of these.
    if "\\u0000" in encoded or not _has_utf8(encoded):
        raise ValueError("the metadata holds a NUL character or half of a surrogate pair; remove it")
    return encoded


def _has_utf8(text: str) -> bool:
    try:
        return text.isascii() or bool(text.encode())
    except UnicodeEncodeError:
        return False


def _grade(value: Any) -> int:
    try:
        number = float(value)
    except (TypeError, ValueError, OverflowError):
        raise ValueError(f"the grade is {_shown(value)}; it must be a whole number") from None
    if not number.is_integer() or int(number) not in GRADES:
        raise ValueError(
            f"the grade is {_shown(value)}; it must be a whole number such as 0, 1 or 2: map a finer scale to one"
        )
    return int(number)


def _rank(value: Any) -> int:
    try:
        number = float(value)
        rank = int(number)
    except (TypeError, ValueError, OverflowError):
        raise ValueError(f"the rank is {_shown(value)}; it must be a whole number such as 1") from None
    if rank != number or rank not in RANKS:
        raise ValueError(f"the rank is {_shown(value)}; it must be a whole number from 0 to {RANKS[-1]:,}")
    return rank


def _score(value: Any, rank: int | None) -> float | None:
    if rank is not None and value in (None, ""):
        return None  # the rank orders; a document may have been ranked last without a score
    try:
        score = float(value)
    except (TypeError, ValueError, OverflowError):
        raise ValueError(f"the score is {_shown(value)}; it must be a number") from None
    if not math.isfinite(score):
        raise ValueError(f"the score is {_shown(value)}; it must be a finite number")
    return score


def _shown(value: Any) -> str:
    if value is None or isinstance(value, str | int | float):
        shown = repr(value)
        return shown if len(shown) <= SHOWN_CHARACTERS else f"{shown[:SHOWN_CHARACTERS]}…"
    return f"a JSON {type(value).__name__}"


_QUERY_ID = Role("query_id", True, ("query_id", "query-id", "qid", "query", "topic"))
_DOCUMENT_ID = Role("document_id", True, ("document_id", "corpus-id", "doc_id", "docid", "docno", "document"))
_ID = Role("id", False, ("id", "_id", "doc_id", "docid", "document_id", "docno", "pid", "qid", "query_id"))

IMPORT_KINDS: Final = {
    kind.name: kind
    for kind in (
        ImportKind(
            "documents",
            "document_set",
            DocumentSet,
            Document,
            "document_set_id",
            ("external_id", "title", "text", "metadata", "is_empty"),
            (
                _ID,
                Role("text", True, ("text", "body", "content", "contents", "passage", "document", "abstract")),
                Role("title", False, ("title", "headline", "name")),
            ),
            _document,
        ),
        ImportKind(
            "queries",
            "query_set",
            QuerySet,
            Query,
            "query_set_id",
            ("external_id", "text", "metadata", "is_empty"),
            (
                _ID,
                Role("text", True, ("text", "query", "question", "title", "topic")),
                Role("narrative", False, ("narrative", "narr", "description")),
                Role("tags", False, ("tags", "tag", "labels")),
            ),
            _query,
        ),
        ImportKind(
            "judgements",
            "judgement_set",
            JudgementSet,
            Judgement,
            "judgement_set_id",
            ("query_id", "document_id", "grade"),
            (
                _QUERY_ID,
                _DOCUMENT_ID,
                Role("grade", True, ("grade", "score", "relevance", "rel", "label", "judgement")),
            ),
            _judgement,
            trec=Format.TREC_QRELS,
        ),
        ImportKind(
            "runs",
            "run_set",
            RunSet,
            RunEntry,
            "run_set_id",
            ("query_id", "document_id", "rank", "score"),
            (
                _QUERY_ID,
                _DOCUMENT_ID,
                Role("rank", False, ("rank",)),
                Role("score", False, ("score", "similarity", "sim")),
            ),
            _run_entry,
            any_of=("rank", "score"),
            trec=Format.TREC_RUN,
        ),
    )
}

"""Rankings as files, streamed query by query."""

from __future__ import annotations

import itertools
import json
from collections.abc import Callable, Iterator
from typing import Any, Final

import numpy as np

from assay.errors import AssayError
from scoring.export.parquet import parquet_parts
from scoring.export.tables import csv_table
from scoring.models import Document, Query, QueryResult, Stage
from scoring.ranking import number, status_name, strictly_decreasing
from scoring.selectors.evaluation import document_names
from scoring.selectors.jobs import Ranking
from scoring.selectors.texts import query_texts_shown, texts_shown

COLUMNS: Final = (
    "query_id", "query", "rank", "document_id", "title", "score", "raw_score", "status", "text", "backend",
)  # fmt: skip
CHUNK: Final = 20
LINES_PER_PART: Final = 200


def csv_lines(stage: Stage) -> Iterator[str]:
    return csv_table(COLUMNS, ([row[name] for name in COLUMNS] for row in _rows(stage)))


def jsonl_lines(stage: Stage) -> Iterator[str]:
    """Values as they are: JSON needs no guard against spreadsheets."""
    for row in _rows(stage):
        yield json.dumps(row, ensure_ascii=False, allow_nan=False) + "\n"


def trec_lines(stage: Stage) -> Iterator[str]:
    """A TREC run. Scores are lowered where needed to decrease strictly in float32, so that every tool sees our order.

    Unscored documents follow below the lowest score. Ids cannot hold white space in this format: it becomes ``_``.
    """
    name_of, tag = document_names(stage.job), _trec_word(str(stage))
    for result in _results(stage):
        ranking = Ranking.of(result)
        raw = ranking.block.raw.copy()
        raw[np.isnan(raw)] = np.float32(np.finfo(np.float32).max)  # lowered to just below the last score
        query_id = _trec_word(result.query.external_id)
        scores = strictly_decreasing(raw)
        for rank, (position, score) in enumerate(zip(ranking.positions.tolist(), scores, strict=True), start=1):
            shown = np.format_float_positional(score, unique=True, trim="0")
            yield f"{query_id} Q0 {_trec_word(name_of[position])} {rank} {shown} {tag}\n"


def _results(stage: Stage) -> Iterator[QueryResult]:
    results = QueryResult.objects.filter(stage=stage).select_related("query").order_by("query_position")
    return results.iterator(chunk_size=CHUNK)


def _rows(stage: Stage) -> Iterator[dict[str, Any]]:
    job, backend = stage.job, ", ".join(stage.statistics.get("backends", ()))
    for result in _results(stage):
        ranking = Ranking.of(result)
        positions = ranking.positions.tolist()
        query_texts_shown([result], job.query_set)
        documents = Document.objects.filter(document_set=job.document_set_id, position__in=positions).defer("metadata")
        by_position = {document.position: document for document in texts_shown(documents, job.document_set)}
        for rank, position in enumerate(positions, start=1):
            row = _row(result.query, rank, by_position[position], ranking, rank - 1)
            yield {**row, "backend": backend}


def _row(query: Query, rank: int, document: Document, ranking: Ranking, i: int) -> dict[str, Any]:
    return {
        "query_id": query.external_id,
        "query": query.text,
        "rank": rank,
        "document_id": document.external_id,
        "title": document.title,
        "score": number(ranking.block.activated[i]),
        "raw_score": number(ranking.block.raw[i]),
        "status": str(status_name(ranking.block.statuses[i])),
        "text": document.text,
    }


def _trec_word(text: str) -> str:
    return "_".join(text.split()) or "_"


def _text_parts(lines: Callable[[Stage], Iterator[str]]) -> Callable[[Stage], Iterator[bytes]]:
    """Every part costs the server a hand-over, whatever its size."""

    def parts(stage: Stage) -> Iterator[bytes]:
        waiting = lines(stage)
        while part := "".join(itertools.islice(waiting, LINES_PER_PART)):
            yield part.encode()

    return parts


EXPORTS: Final[dict[str, tuple[Callable[[Stage], Iterator[bytes]], str, str]]] = {
    "csv": (_text_parts(csv_lines), "text/csv; charset=utf-8", "csv"),
    "jsonl": (_text_parts(jsonl_lines), "application/jsonl; charset=utf-8", "jsonl"),
    "parquet": (lambda stage: parquet_parts(_rows(stage)), "application/vnd.apache.parquet", "parquet"),
    "trec": (_text_parts(trec_lines), "text/plain; charset=utf-8", "run"),
}


def export_of(stage: Stage, name: str) -> tuple[Iterator[bytes], str, str]:
    """The file in parts, its content type and name. Raises AssayError 422 for an unknown format."""
    if name not in EXPORTS:
        raise AssayError(
            "unknown_format",
            f"'{name}' is no export format; give one of {', '.join(EXPORTS)}.",
            status=422,
            param="format",
        )
    parts, content_type, suffix = EXPORTS[name]
    several = stage.index or stage.job.stages.count() > 1
    name = f"assay-job-{stage.job_id}{f'-stage-{stage.index}' if several else ''}.{suffix}"
    return parts(stage), content_type, name

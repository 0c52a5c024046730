"""Rankings as files, streamed query by query."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

import numpy as np
from django.db.models import Sum

from scoring.export.formats import ExportTable
from scoring.models import Document, QueryResult, Stage
from scoring.ranking import decimals, status_name, strictly_decreasing
from scoring.selectors.counting import RowCount
from scoring.selectors.evaluation import document_names
from scoring.selectors.jobs import Ranking, results_of
from scoring.selectors.texts import query_texts_shown, texts_shown

COLUMNS: Final = {
    "query_id": "string", "query": "string", "rank": "int32", "document_id": "string", "title": "string",
    "score": "float", "raw_score": "float", "status": "string", "text": "string", "backend": "string",
}  # fmt: skip
CHUNK: Final = 20


def stage_table(stage: Stage) -> ExportTable:
    """The rankings of all queries, one below the other."""
    several = stage.index or stage.job.stages.count() > 1
    return ExportTable(
        name=f"assay-job-{stage.job_id}{f'-stage-{stage.index}' if several else ''}",
        columns=COLUMNS,
        rows=lambda: _rows(stage),
        count=RowCount(results_of(stage).aggregate(kept=Sum("kept"))["kept"] or 0),
        trec=lambda: trec_lines(stage),
        subject=stage.job,
    )


def trec_lines(stage: Stage) -> Iterator[str]:
    """A TREC run. Scores are lowered where needed to decrease strictly in float32, so that every tool sees our order.

    Unscored documents follow below the lowest score. Ids cannot hold white space in this format: it becomes ``_``.
    """
    name_of, tag = document_names(stage.job), trec_word(str(stage))
    for result in _results(stage):
        ranking = Ranking.of(result)
        raw = ranking.block.raw.copy()
        raw[np.isnan(raw)] = np.float32(np.finfo(np.float32).max)  # lowered to just below the last score
        query_id = trec_word(result.query.external_id)
        scores = strictly_decreasing(raw)
        for rank, (position, score) in enumerate(zip(ranking.positions.tolist(), scores, strict=True), start=1):
            shown = np.format_float_positional(score, unique=True, trim="0")
            yield f"{query_id} Q0 {trec_word(name_of[position])} {rank} {shown} {tag}\n"


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
        block = ranking.block
        columns = positions, decimals(block.activated), decimals(block.raw), block.statuses.tolist()
        for rank, (position, score, raw, status) in enumerate(zip(*columns, strict=True), start=1):
            document = by_position[position]
            yield {
                "query_id": result.query.external_id,
                "query": result.query.text,
                "rank": rank,
                "document_id": document.external_id,
                "title": document.title,
                "score": score,
                "raw_score": raw,
                "status": str(status_name(status)),
                "text": document.text,
                "backend": backend,
            }


def trec_word(text: str) -> str:
    return "_".join(text.split()) or "_"

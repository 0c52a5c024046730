"""One stage's scores put in order: ``QueryResult`` rows out of the blocks of its done chunks.

Chunks may cover queries × candidates in any rectangles, as long as no cell is in two of them. They are read in strips
of queries that the same chunks cover, so that memory is bounded whatever the size of the stage.
Shapes: Q queries of a strip, D candidates of the chunks that cover it.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

import numpy as np
import numpy.typing as npt
from django.db import transaction
from django.db.models import F

from scoring.models import Chunk, Query, QueryResult, Stage
from scoring.ranking import ABSENT, FAILED, FLOAT, POSITION, Positions, ScoreBlock, ranked, same_scores, ties
from scoring.selectors.candidates import candidate_counts, positions_of
from scoring.selectors.packed import packed_part
from scoring.states import ChunkState

WRITTEN_AT_ONCE: Final = 200
STRIP_CELLS: Final = 1 << 24  # about 13 bytes each
PACKED: Final = {"raw_scores": 4, "scores": 4, "statuses": 1, "document_positions": 4}  # bytes a cell
RANKED: Final = (ChunkState.DONE, ChunkState.FAILED)
Place = tuple[int, int, int, int]  # primary key, query_start, query_count, document_count


@dataclass(frozen=True, slots=True)
class Strip:
    """Consecutive queries, and the chunks that have scores of all of them."""

    queries: range
    chunks: list[int]


def stage_rank(stage: Stage) -> None:
    """Write the ranking of every query that has scores; written again, the rows are the same."""
    for strip in _strips(stage):
        _write(stage, strip.queries, _ranked(stage, strip))
    if stage.source_id is not None:
        without = np.flatnonzero(candidate_counts(stage) == 0).tolist()
        for start in range(0, len(without), WRITTEN_AT_ONCE):
            part = without[start : start + WRITTEN_AT_ONCE]
            _write(stage, part, [_result(ScoreBlock.blank((0,)), np.empty(0, np.int32)) for _ in part])


def _strips(stage: Stage) -> Iterator[Strip]:
    ended = Chunk.objects.filter(stage=stage, state__in=RANKED).order_by("query_start", "document_start")
    if stage.model is None:
        ended = ended.exclude(state=ChunkState.FAILED)  # what it would have found is not known
    places: list[Place] = list(ended.values_list("pk", "query_start", "query_count", "document_count"))
    borders = sorted({place[1] for place in places} | {place[1] + place[2] for place in places})
    first = 0  # chunks before it end above the strip
    for start, stop in itertools.pairwise(borders):
        while first < len(places) and places[first][1] + places[first][2] <= start:
            first += 1
        over: list[Place] = []
        for place in places[first:]:
            if place[1] > start:
                break
            if place[1] + place[2] >= stop:
                over.append(place)
        if not over:
            continue
        rows = max(1, STRIP_CELLS // sum(place[3] for place in over))
        for top in range(start, stop, rows):
            yield Strip(range(top, min(top + rows, stop)), [place[0] for place in over])


def _ranked(stage: Stage, strip: Strip) -> list[QueryResult]:
    chunks = _slices(strip)
    shapes = [(len(strip.queries), chunk.document_count) for chunk in chunks]
    parts = [_block(chunk, shape) for chunk, shape in zip(chunks, shapes, strict=True)]
    if stage.model is None:
        positions = _side_by_side(
            np.frombuffer(chunk.document_positions, POSITION).reshape(shape)
            for chunk, shape in zip(chunks, shapes, strict=True)
        )
    else:
        positions = _positions(stage, strip.queries, chunks)
    raw = _side_by_side(part.raw for part in parts)  # [Q, D]
    activated = _side_by_side(part.activated for part in parts)  # [Q, D]
    statuses = _side_by_side(part.statuses for part in parts)  # [Q, D]
    statuses = np.where(positions < 0, ABSENT, statuses)  # of a failed chunk every cell failed that is a pair
    results = []
    for row in range(len(strip.queries)):
        order = np.flatnonzero(statuses[row] != ABSENT)
        if stage.model is not None:  # what was retrieved is in its order already
            order = order[np.argsort(positions[row, order], kind="stable")]
            order = order[ranked(raw[row, order])]
        order = order[: stage.top_k]
        block = ScoreBlock(raw[row, order], activated[row, order], statuses[row, order])
        results.append(_result(block, positions[row, order]))
    return results


def _block(chunk: Chunk, shape: tuple[int, int]) -> ScoreBlock:
    """A failed chunk stores nothing: each of its pairs failed."""
    if chunk.state == ChunkState.DONE:
        return ScoreBlock.unpack(chunk, shape)
    blank = ScoreBlock.blank(shape)
    return replace(blank, statuses=np.full(shape, FAILED, np.uint8))


def _slices(strip: Strip) -> list[Chunk]:
    """The chunks by document_start, holding the strip's rows of their blocks and nothing else."""
    chunks = Chunk.objects.filter(pk__in=strip.chunks).order_by("document_start")
    width = F("document_count")
    start = (strip.queries.start - F("query_start")) * width
    rows = (packed_part(name, size, start=start, count=len(strip.queries) * width) for name, size in PACKED.items())
    return [
        Chunk(state=state, document_start=start, document_count=count, **dict(zip(PACKED, packed, strict=True)))
        for state, start, count, *packed in chunks.values_list("state", "document_start", "document_count", *rows)
    ]


def _positions(stage: Stage, queries: range, chunks: list[Chunk]) -> Positions:
    start = chunks[0].document_start
    stop = max(chunk.document_start + chunk.document_count for chunk in chunks)
    whole = positions_of(stage, queries=queries, candidates=range(start, stop))
    return _side_by_side(
        whole[:, chunk.document_start - start : chunk.document_start - start + chunk.document_count] for chunk in chunks
    )


def _side_by_side(parts: Iterable[npt.NDArray[Any]]) -> npt.NDArray[Any]:
    return np.concatenate(list(parts), axis=1)


def _result(block: ScoreBlock, positions: Positions) -> QueryResult:
    """``block`` and ``positions`` [n] in rank order."""
    tied_pairs, tied_at_top = ties(block.raw)
    return QueryResult(
        kept=len(positions),
        tied_pairs=tied_pairs,
        tied_at_top=tied_at_top,
        scored=int(np.count_nonzero(~np.isnan(block.raw))),
        positions=positions.astype(POSITION).tobytes(),
        raw_scores=block.raw.astype(FLOAT).tobytes(),
        scores=b"" if same_scores(block.raw, block.activated) else block.activated.astype(FLOAT).tobytes(),
        statuses=block.statuses.tobytes(),
    )


def _write(stage: Stage, queries: Sequence[int], results: list[QueryResult]) -> None:
    """``queries``: ascending positions, one for each of ``results``."""
    rows = Query.objects.filter(query_set=stage.job.query_set_id, position__in=queries).order_by("position")
    for result, query in zip(results, rows, strict=True):
        result.stage, result.query, result.query_position = stage, query, query.position
    with transaction.atomic():
        QueryResult.objects.filter(stage=stage, query_position__in=queries).delete()
        QueryResult.objects.bulk_create(results, batch_size=WRITTEN_AT_ONCE)

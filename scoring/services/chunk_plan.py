"""How a job is cut: a chunk should take seconds, so that losing one costs seconds and progress is visible."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass, replace
from operator import attrgetter
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from scoring.models import Chunk, ScoringModel, Stage
from scoring.models.scoring_model import ENCODERS, ModelKind


@dataclass(frozen=True, slots=True)
class BlockSize:
    queries: int
    documents: int


# Encoders pay per document and little per pair: few documents, all queries, so that each document is encoded once.
# The others pay per pair and may share what prompts of one query begin with: one query, few documents.
# Listwise models read the documents of a block together, and a score holds among those it was read with: one query with
# as many documents as one prompt takes, so that no chunk is itself read in parts because of its number of documents.
BLOCK_SIZES: Final = {
    ModelKind.CROSS_ENCODER: BlockSize(queries=1, documents=48),
    ModelKind.BI_ENCODER: BlockSize(queries=1024, documents=64),
    ModelKind.LATE_INTERACTION: BlockSize(queries=1024, documents=64),
    ModelKind.SPARSE: BlockSize(queries=1024, documents=64),
    ModelKind.HYBRID: BlockSize(queries=1024, documents=64),
    ModelKind.LISTWISE: BlockSize(queries=1, documents=125),
    ModelKind.GENERATIVE: BlockSize(queries=1, documents=24),
}

# What is retrieved instead of scored costs little per query: a chunk has whole lists, as many as are stored well
# at once.
RETRIEVED_QUERIES: Final = 256
RETRIEVED_CELLS: Final = 1 << 20


# Lists of an encoder's candidates are scored together so far as their blocks hold about this many different documents.
ENCODED_AT_ONCE: Final = 512


def block_size(model: ScoringModel | None, *, candidates: int) -> BlockSize:
    """``model`` None: a stage that retrieves up to so many ``candidates`` per query."""
    if model is not None:
        return BLOCK_SIZES[ModelKind(model.kind)]
    candidates = max(candidates, 1)
    return BlockSize(min(RETRIEVED_QUERIES, max(1, RETRIEVED_CELLS // candidates)), candidates)


def candidate_block_size(model: ScoringModel, *, query_count: int, overlap: float) -> BlockSize:
    """For lists of candidates: ``overlap`` says in how many lists a candidate is on average.

    Who pays per pair has blocks of one query as always. An encoder encodes each document of a block once: the more the
    lists overlap, the more ranks of all queries together make a block.
    """
    size = BLOCK_SIZES[ModelKind(model.kind)]
    if size.queries == 1:
        return size
    queries = min(size.queries, query_count)
    return BlockSize(queries, max(1, round(ENCODED_AT_ONCE * overlap / queries)))


def encodes_texts(model: ScoringModel) -> bool:
    return model.kind in ENCODERS


@dataclass(frozen=True, slots=True)
class Block:
    query_start: int
    query_count: int
    document_start: int
    document_count: int


def blocks(*, counts: npt.NDArray[np.int64], size: BlockSize) -> Iterator[Block]:
    """The grid, query blocks outermost: the first queries are complete first. Every pair is in exactly one block.

    ``counts`` int64 [Q]: candidates of each query. A row of blocks is as wide as the longest list in it.
    """
    for query_start in range(0, len(counts), size.queries):
        own = counts[query_start : query_start + size.queries]
        width: Any = own.max()
        for document_start in range(0, int(width), size.documents):
            documents = min(size.documents, int(width) - document_start)
            yield Block(query_start, len(own), document_start, documents)


def chunk_of(stage: Stage, block: Block, *, index: int, **fields: Any) -> Chunk:
    """The row, unsaved, of a chunk that covers ``block``."""
    return Chunk(job_id=stage.job_id, stage=stage, index=index, **asdict(block), **fields)


def halves_by_documents(block: Block) -> tuple[Block, Block]:
    half = (block.document_count + 1) // 2
    rest = replace(block, document_start=block.document_start + half, document_count=block.document_count - half)
    return replace(block, document_count=half), rest


def halves_by_queries(block: Block) -> tuple[Block, Block]:
    half = (block.query_count + 1) // 2
    rest = replace(block, query_start=block.query_start + half, query_count=block.query_count - half)
    return replace(block, query_count=half), rest


def cut_anew(old: Iterable[Block], size: BlockSize) -> list[Block]:
    """Blocks of ``size`` that cover exactly the pairs of ``old`` (which share none), the first queries first.

    Neighbours are joined before, so that blocks may grow as well as shrink.
    """
    new = [
        Block(
            area.query_start + block.query_start,
            block.query_count,
            area.document_start + block.document_start,
            block.document_count,
        )
        for area in _joined(_joined(old, along="document", across="query"), along="query", across="document")
        for block in blocks(counts=np.full(area.query_count, area.document_count), size=size)
    ]
    return sorted(new, key=attrgetter("query_start", "document_start"))


def _joined(old: Iterable[Block], *, along: str, across: str) -> list[Block]:
    """Blocks that follow each other along one axis and are alike across it become one."""
    alike = attrgetter(f"{across}_start", f"{across}_count")
    span = attrgetter(f"{along}_start", f"{along}_count")
    joined: list[Block] = []
    for block in sorted(old, key=lambda block: (alike(block), span(block))):
        start, count = span(block)
        if joined and alike(joined[-1]) == alike(block) and sum(span(joined[-1])) == start:
            joined[-1] = replace(joined[-1], **{f"{along}_count": span(joined[-1])[1] + count})
        else:
            joined.append(block)
    return joined

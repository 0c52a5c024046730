"""How a job is cut: a chunk should take seconds, so that losing one costs seconds and progress is visible."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from operator import attrgetter
from typing import Final

from scoring.models import ScoringModel
from scoring.models.scoring_model import ModelKind


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

# Kinds that read each text by itself, whatever it is compared with.
ENCODERS: Final = (ModelKind.BI_ENCODER, ModelKind.LATE_INTERACTION, ModelKind.SPARSE, ModelKind.HYBRID)

# What is retrieved instead of scored costs little per query, whatever the number of documents.
RETRIEVAL: Final = BlockSize(queries=256, documents=2**31 - 1)


def block_size(model: ScoringModel | None) -> BlockSize:
    """``model`` None: a stage that retrieves."""
    return BLOCK_SIZES[ModelKind(model.kind)] if model else RETRIEVAL


def encodes_texts(model: ScoringModel) -> bool:
    return model.kind in ENCODERS


@dataclass(frozen=True, slots=True)
class Block:
    query_start: int
    query_count: int
    document_start: int
    document_count: int


def blocks(*, query_count: int, document_count: int, size: BlockSize) -> Iterator[Block]:
    """The grid, query blocks outermost: the first queries are complete first. Every pair is in exactly one block."""
    for query_start in range(0, query_count, size.queries):
        for document_start in range(0, document_count, size.documents):
            yield Block(
                query_start,
                min(size.queries, query_count - query_start),
                document_start,
                min(size.documents, document_count - document_start),
            )


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
        for block in blocks(query_count=area.query_count, document_count=area.document_count, size=size)
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

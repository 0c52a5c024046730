"""How a job is cut: a chunk should take seconds, so that losing one costs seconds and progress is visible."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
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


# What is retrieved instead of scored costs little per query, whatever the number of documents.
RETRIEVAL: Final = BlockSize(queries=256, documents=2**31 - 1)


def block_size(model: ScoringModel | None) -> BlockSize:
    """``model`` None: a stage that retrieves."""
    return BLOCK_SIZES[ModelKind(model.kind)] if model else RETRIEVAL


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

"""Poison is found by halves: what crashes its workers is cut in two until only the culprit fails."""

from __future__ import annotations

from enum import Enum
from typing import Final

from django.db.models import F

from scoring.models import Chunk, Stage
from scoring.services.chunk_plan import Block, encodes_texts, halves_by_documents, halves_by_queries
from scoring.states import ChunkState

ATTEMPTS: Final = 2  # before a chunk is cut; its halves are cut, or fail, when they fail once more
# Of one stage so many chunks may be under suspicion at once. Isolating one document takes about eight. Beyond that the
# model or the machine is at fault, not single items, and every further crash would cost a worker's start for nothing.
SUSPECTS: Final = 200


class Axis(Enum):
    QUERIES = "queries"
    DOCUMENTS = "documents"


def halves(chunk: Chunk) -> tuple[Block, Block] | None:
    """How to cut a chunk that failed again; None: it is the culprit itself, or one of too many."""
    if Chunk.objects.filter(stage=chunk.stage_id, attempts__gte=ATTEMPTS)[:SUSPECTS].count() >= SUSPECTS:
        return None
    block = Block(chunk.query_start, chunk.query_count, chunk.document_start, chunk.document_count)
    for axis in _axes(block, Stage.objects.select_related("model", "job").get(pk=chunk.stage_id)):
        if axis == Axis.DOCUMENTS and block.document_count > 1:
            return halves_by_documents(block)
        if axis == Axis.QUERIES and block.query_count > 1:
            return halves_by_queries(block)
    return None


def _axes(block: Block, stage: Stage) -> tuple[Axis, ...]:
    """Along which axes to cut, the first that can be.

    What was scored elsewhere in the stage clears its queries, or its documents, of suspicion: then it is the others.
    While neither is cleared the cuts alternate, documents first, which soon clears the one or the other. A model that
    reads each text by itself crashes at a document whatever the query: such an item is not cut any further.
    """
    if stage.model is None:
        return (Axis.QUERIES,)  # what is retrieved for a query is chosen among all documents at once
    queries_cleared = _scored_elsewhere(stage, block, "query")
    documents_cleared = stage.source_id is None and _scored_elsewhere(stage, block, "document")
    alone = encodes_texts(stage.model)
    if queries_cleared and not documents_cleared:
        return (Axis.DOCUMENTS,) if alone and stage.source_id is None else (Axis.DOCUMENTS, Axis.QUERIES)
    if documents_cleared and not queries_cleared:
        return (Axis.QUERIES,) if alone else (Axis.QUERIES, Axis.DOCUMENTS)
    whole_queries = min(stage.query_block, stage.job.query_count)
    whole_documents = min(stage.document_block, stage.job.document_count)
    documents_less_cut = block.document_count * whole_queries >= block.query_count * whole_documents
    return (Axis.DOCUMENTS, Axis.QUERIES) if documents_less_cut else (Axis.QUERIES, Axis.DOCUMENTS)


def _scored_elsewhere(stage: Stage, block: Block, side: str) -> bool:
    start, count = getattr(block, f"{side}_start"), getattr(block, f"{side}_count")
    done = Chunk.objects.filter(stage=stage, state=ChunkState.DONE, **{f"{side}_start__lte": start})
    return done.filter(**{f"{side}_count__gte": start + count - F(f"{side}_start")}).exists()

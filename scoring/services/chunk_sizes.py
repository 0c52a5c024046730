"""How large chunks should be: CHUNK_SECONDS each, by what chunks of the same model took.

At the opening of a stage its model's last chunks tell; what is still pending is cut anew when the stage's own chunks
turn out to take half or twice as long.
"""

from __future__ import annotations

from statistics import median
from typing import Any, Final

from django.conf import settings
from django.contrib.postgres.expressions import ArraySubquery
from django.db import transaction
from django.db.models import F, OuterRef, QuerySet
from django.db.models.functions import JSONObject

from scoring.models import Chunk, ScoringModel, Stage
from scoring.models.scoring_model import ModelKind
from scoring.services.chunk_plan import BLOCK_SIZES, Block, BlockSize, chunk_of, cut_anew, encodes_texts
from scoring.services.chunks import RUNNABLE
from scoring.services.transitions import RECONCILER, transition_record
from scoring.states import ChunkState, StageState

LAST_CHUNKS: Final = 20
LEAST_CHUNKS: Final = 3  # the first ones may pay for a warm-up
EARLIER_STAGES: Final = 5
LEAST_SECONDS: Final = 0.001
MOST_PAIRS: Final = 1 << 20  # of a chunk: 5 MB to store at once
MOST_DOCUMENTS: Final = 8192  # of a chunk: their texts are in memory together
MOST_QUERIES: Final = 1024
FAR_OFF: Final = 2.0
CUT_AT_ONCE: Final = 20_000  # chunks in one transaction: workers pass over what it holds


def block_size_measured(*, model: ScoringModel, query_count: int, document_count: int) -> BlockSize:
    """For a new stage over so many queries and candidates; of a model never measured, by its kind."""
    earlier = Stage.objects.filter(model=model, state__in=(StageState.RUNNING, StageState.DONE)).order_by("-pk")
    if encodes_texts(model):
        earlier = earlier.filter(source=None)  # what it takes per rank of many lists says nothing of a document
    paces = map(_seconds_per_unit, _with_last_chunks(earlier)[:EARLIER_STAGES])
    pace = next(filter(None, paces), None)
    return _fitting(model, pace, query_count, document_count) if pace else BLOCK_SIZES[ModelKind(model.kind)]


def stages_fit_chunks() -> int:
    """Cut anew what waits in stages whose chunks take far too long or too short. Returns how many chunks were cut."""
    running = Stage.objects.filter(state=StageState.RUNNING, job__state__in=RUNNABLE, model__isnull=False)
    return sum(map(_fit, _with_last_chunks(running)))


def _fit(stage: Any) -> int:
    pace = _seconds_per_unit(stage)
    if pace is None or not stage.waiting:
        return 0
    queries, documents = stage.job.query_count, -(-stage.pair_count // stage.job.query_count)
    size = _fitting(stage.scorer, pace, queries, documents)
    wanted = min(size.queries, queries) * min(size.documents, documents)
    if 1 / FAR_OFF < median(stage.waiting) / wanted < FAR_OFF:
        return 0
    return pending_cut_anew(stage=stage, size=size)


def _with_last_chunks(stages: QuerySet[Stage]) -> QuerySet[Any]:
    """``done``: seconds, queries and documents of the chunks done last; ``waiting``: pairs of the chunks to come."""
    chunks = Chunk.objects.filter(stage=OuterRef("pk"))
    done = chunks.filter(state=ChunkState.DONE, report__has_key="seconds").order_by("-finished_at")
    facts = JSONObject(seconds="report__seconds", queries="query_count", documents="document_count")
    pairs = F("query_count") * F("document_count")
    return stages.select_related("job", "model").annotate(
        done=ArraySubquery(done.values(facts=facts)[:LAST_CHUNKS]),
        waiting=ArraySubquery(_pending(chunks).values(pairs=pairs)[:LAST_CHUNKS]),
    )


def pending_cut_anew(*, stage: Stage, size: BlockSize) -> int:
    """Replace the stage's next pending chunks by chunks of ``size`` over exactly the same pairs; returns how many.

    What is leased or done stays, so does what failed before: its history is its own. Nothing happens where the number
    of chunks would hardly change, as at the edges of the grid.
    """
    with transaction.atomic():
        fields = "query_start", "query_count", "document_start", "document_count"
        pending = _pending(stage.chunks.all()).select_for_update(skip_locked=True)
        rows = list(pending.values_list("pk", "index", *fields)[:CUT_AT_ONCE])
        new = cut_anew((Block(*row[2:]) for row in rows), size)
        if not rows or 1 / FAR_OFF < len(new) / len(rows) < FAR_OFF:
            return 0
        Chunk.objects.filter(pk__in=[row[0] for row in rows]).delete()
        first = min(row[1] for row in rows)
        Chunk.objects.bulk_create(
            (chunk_of(stage, block, index=index) for index, block in enumerate(new, start=first)), batch_size=2000
        )
        Stage.objects.filter(pk=stage.pk).update(query_block=size.queries, document_block=size.documents)
        detail = {"chunks": len(rows), "became": len(new), "queries": size.queries, "documents": size.documents}
        transition_record(
            stage, stage.state, stage.state, actor=RECONCILER, reason="chunks cut anew", detail=detail
        ).save()
    return len(rows)


def _pending(chunks: QuerySet[Chunk]) -> QuerySet[Chunk]:
    return chunks.filter(state=ChunkState.PENDING, attempts=0).order_by("index")


def _seconds_per_unit(stage: Any) -> float | None:
    """Of the last chunks done, in the middle. A unit is a document where texts are encoded, else a pair."""
    if len(stage.done) < LEAST_CHUNKS:
        return None
    encoder = encodes_texts(stage.scorer)
    return median(
        max(chunk["seconds"], LEAST_SECONDS) / (chunk["documents"] * (1 if encoder else chunk["queries"]))
        for chunk in stage.done
    )


def _fitting(model: ScoringModel, pace: float, query_count: int, document_count: int) -> BlockSize:
    """CHUNK_SECONDS worth of work at ``pace`` seconds per unit."""
    usual = BLOCK_SIZES[ModelKind(model.kind)]
    if not settings.CHUNK_SECONDS:
        return usual
    units = max(1, int(settings.CHUNK_SECONDS / pace))
    if encodes_texts(model):
        room = MOST_PAIRS // min(usual.queries, query_count)
        return BlockSize(usual.queries, min(units, room, MOST_DOCUMENTS))
    # Documents of one query first; several queries only when all of theirs fit. Listwise scores hold within one prompt,
    # so there the number of documents stays.
    most = usual.documents if model.kind == ModelKind.LISTWISE else MOST_DOCUMENTS
    documents = most if model.kind == ModelKind.LISTWISE else min(units, most)
    queries = min(units // min(documents, document_count), MOST_QUERIES) if documents >= document_count else 1
    return BlockSize(max(1, queries), documents)

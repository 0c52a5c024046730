"""The rankings within a job: planned with it, opened one after another, ended with their results in rank order."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

from django.db import transaction
from django.db.models.functions import Now

from scoring.models import Chunk, Job, ScoringModel, Stage, StageMethod
from scoring.services.chunk_plan import block_size, blocks
from scoring.services.transitions import transition, transition_record
from scoring.states import StageState

CHUNK_BATCH: Final = 2000
OPEN_STATES: Final = (StageState.WAITING, StageState.RUNNING)


@dataclass(frozen=True, slots=True, kw_only=True)
class StagePlan:
    """One stage as asked for. ``source``: index of the earlier stage that gives the candidates; None: all documents."""

    model: ScoringModel | None = None
    method: StageMethod = StageMethod.MODEL
    source: int | None = None
    top_k: int | None = None


def stages_create(*, job: Job, plans: Sequence[StagePlan]) -> list[Stage]:
    """The rows of a new job's stages, all waiting. Call it inside the transaction that creates the job."""
    stages: list[Stage] = []
    for index, plan in enumerate(plans):
        source = None if plan.source is None else stages[plan.source]
        size = block_size(plan.model)
        stage = Stage.objects.create(
            job=job,
            index=index,
            source=source,
            method=plan.method,
            model=plan.model,
            model_revision=plan.model.revision if plan.model else "",
            settings=model_snapshot(plan.model) if plan.model else {},
            top_k=plan.top_k,
            pair_count=job.query_count * candidates_of(job, plan, source),
            query_block=size.queries,
            document_block=size.documents,
        )
        transition_record(stage, "", StageState.WAITING, actor="job", reason="submitted").save()
        stages.append(stage)
    return stages


def candidates_of(job: Job, plan: StagePlan, source: Stage | None) -> int:
    """The most candidates that one query can have in this stage."""
    before = source.pair_count // job.query_count if source else job.document_count
    if source and source.top_k:
        before = min(before, source.top_k)
    return before if plan.method == StageMethod.MODEL else min(before, plan.top_k or before)


def stage_open(*, stage: Stage, actor: str) -> bool:
    """Cut the stage into chunks that workers may lease. False when it was opened before."""
    job = stage.job
    with transaction.atomic():
        if not transition(stage, StageState.RUNNING, actor=actor, reason="candidates known", started_at=Now()):
            return False
        grid = enumerate(
            blocks(
                query_count=job.query_count,
                document_count=stage.pair_count // job.query_count,
                size=block_size(stage.model),
            )
        )
        while part := list(itertools.islice(grid, CHUNK_BATCH)):
            Chunk.objects.bulk_create(
                Chunk(
                    job=job,
                    stage=stage,
                    index=index,
                    query_start=block.query_start,
                    query_count=block.query_count,
                    document_start=block.document_start,
                    document_count=block.document_count,
                )
                for index, block in part
            )
    return True


def model_snapshot(model: ScoringModel) -> dict[str, Any]:
    """Everything about the model that a score depends on."""
    return {
        "model": model.name,
        "kind": model.kind,
        "source": model.source,
        "revision": model.revision,
        "dtype": model.dtype,
        "device": model.device,
        "gpu_maxsim": model.gpu_maxsim,
        "max_length": model.max_length or model.facts.get("max_length"),
        "template": model.template,
        "labels": model.labels,
        "positive_class": model.positive_class,
        "weights": model.weights,
        "scale": model.facts.get("scale", ""),
        "truncation": "document",
    }

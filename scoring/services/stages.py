"""The rankings within a job: planned with it, opened one after another, ended with their results in rank order."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from typing import Any, Final

from django.db import transaction
from django.db.models import OuterRef, Subquery, Sum
from django.db.models.functions import Now

from scoring.models import Chunk, Job, ScoringModel, Stage, StageMethod
from scoring.selectors.candidates import candidate_counts, candidate_overlap
from scoring.services.chunk_plan import BlockSize, block_size, blocks, candidate_block_size, chunk_of, encodes_texts
from scoring.services.chunk_sizes import block_size_measured
from scoring.services.stage_plan import BM25, StagePlan
from scoring.services.transitions import transition, transition_record
from scoring.states import StageState

CHUNK_BATCH: Final = 2000
OPEN_STATES: Final = (StageState.WAITING, StageState.RUNNING)


def stage_plan(stage: Stage) -> StagePlan:
    """What to ask for to get such a stage again, with the model as it is then."""
    return StagePlan(
        model=stage.model,
        method=StageMethod(stage.method),
        source=stage.source.index if stage.source else None,
        top_k=stage.top_k,
        run_set=stage.run_set,
    )


def stages_create(*, job: Job, plans: Sequence[StagePlan], limits: Sequence[int]) -> list[Stage]:
    """The rows of a new job's stages, all waiting; ``limits`` are their ``candidate_limits``.

    Call it inside the transaction that creates the job.
    """
    stages: list[Stage] = []
    for index, (plan, limit) in enumerate(zip(plans, limits, strict=True)):
        size = block_size(plan.model, candidates=limit)
        stage = Stage.objects.create(
            job=job,
            index=index,
            source=None if plan.source is None else stages[plan.source],
            method=plan.method,
            model=plan.model,
            run_set=plan.run_set,
            model_revision=plan.model.revision if plan.model else "",
            settings=stage_settings(plan),
            top_k=plan.top_k,
            pair_count=job.query_count * limit,
            query_block=size.queries,
            document_block=size.documents,
        )
        transition_record(stage, "", StageState.WAITING, actor="job", reason="submitted").save()
        stages.append(stage)
    return stages


def stage_open(*, stage: Stage, actor: str) -> bool:
    """Cut the stage into chunks that workers may lease; from now on its pairs are known.

    Returns False when it was opened before. A stage that retrieves has as many cells as it may find; how many of them
    are pairs is known when it ends.
    """
    job = stage.job
    with transaction.atomic():
        if not transition(stage, StageState.RUNNING, actor=actor, reason="candidates known", started_at=Now()):
            return False
        counts = candidate_counts(stage)
        if stage.model is None:
            counts[:] = stage.pair_count // job.query_count
        size = _size(stage, longest=int(counts.max()))
        stage.query_block, stage.document_block, stage.pair_count = size.queries, size.documents, int(counts.sum())
        stage.save(update_fields=["query_block", "document_block", "pair_count"])
        pairs_recount(job)
        grid = enumerate(blocks(counts=counts, size=size))
        while part := list(itertools.islice(grid, CHUNK_BATCH)):
            Chunk.objects.bulk_create(chunk_of(stage, block, index=index) for index, block in part)
    return True


def pairs_recount(job: Job) -> None:
    """The job's pairs are those of its stages, as far as they are known."""
    stages = Stage.objects.filter(job=OuterRef("pk")).order_by().values("job")
    Job.objects.filter(pk=job.pk).update(pair_count=Subquery(stages.annotate(pairs=Sum("pair_count")).values("pairs")))


def _size(stage: Stage, *, longest: int) -> BlockSize:
    queries = stage.job.query_count
    if stage.model is None:
        return block_size(None, candidates=longest)
    if stage.source_id is not None and encodes_texts(stage.model):
        return candidate_block_size(stage.model, query_count=queries, overlap=candidate_overlap(stage))
    return block_size_measured(model=stage.model, query_count=queries, document_count=longest)


def stage_settings(plan: StagePlan) -> dict[str, Any]:
    """Everything about the stage's scorer that a score depends on."""
    if plan.model is not None:
        return model_snapshot(plan.model)
    if plan.run_set is not None:
        return {"run": plan.run_set.name, "run_set": str(plan.run_set.pk), "scale": "as in the run"}
    return {**BM25, "scale": "BM25"}


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
        **({name: getattr(model, name) for name in ("engine", "endpoint", "remote_model")} if model.is_remote else {}),
    }


def changed_settings(then: Mapping[str, Any], now: Mapping[str, Any]) -> list[str]:
    """Which of the settings that decide a score are not what they were. Where MaxSim runs is not one of them."""
    return sorted(name for name in then if name not in ("model", "gpu_maxsim") and then[name] != now.get(name))

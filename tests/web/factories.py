"""Rows for the pages, made by the services that make them in earnest; scores count shared words, as no engine runs."""

from __future__ import annotations

import io
import re
import uuid
from dataclasses import replace
from typing import Any

import numpy as np
from django.contrib.auth.models import User

from accounts.services import principal_of_user
from assay.api.principal import Principal
from scoring.models import Chunk, Document, DocumentSet, Job, Placement, Query, QuerySet, ScoringModel, Worker
from scoring.models.scoring_model import ModelKind
from scoring.ranking import ScoreBlock
from scoring.selectors.candidates import positions_of
from scoring.services.chunks import chunk_complete, chunk_lease
from scoring.services.claims import placement_claim, placement_move
from scoring.services.finalize import jobs_advance
from scoring.services.imports import set_import
from scoring.services.jobs import job_submit
from scoring.services.placements import placement_want
from scoring.services.registry import model_register, self_test_claim, self_test_finish
from scoring.services.stage_plan import StagePlan
from scoring.services.workers import worker_heartbeat, worker_move, worker_register
from scoring.states import ITEM_STATUSES, ItemStatus, MemorySource, PlacementDemand, PlacementState, WorkerState

EMPTY = ITEM_STATUSES.index(ItemStatus.EMPTY)
DOCUMENTS = (
    "id,title,body\n"
    "d1,Ticks,Pull the tick straight out with tweezers\n"
    "d2,Kettle,Descale the kettle with citric acid\n"
    "d3,Nothing,\n"
)
QUERIES = "id\ttext\nq1\thow do I pull out a tick\nq2\tdescale a kettle\n"
JUDGEMENTS = "q1 0 d1 2\nq1 0 d2 0\nq2 0 d2 1\n"
RUN = "q1 Q0 d1 1 12.5 bm25\nq1 Q0 d2 2 11 bm25\nq2 Q0 d2 1 3 bm25\n"
REPORT = {
    "passed": True,
    "checks": [
        {"name": "order", "passed": True, "detail": "The relevant text scored 0.62, the irrelevant one 0.08."},
        {"name": "batch_agrees", "passed": True, "detail": "Alone and in a batch differ by at most 0.0000004."},
    ],
    "golden_scores": [0.62, 0.08],
}
FACTS = {
    "architecture": "BertModel",
    "execution": "packed",
    "scale": "maxsim",
    "dtype": "float32",
    "device": "cpu",
    "max_length": 512,
    "weight_bytes": 90_868_376,
    "load_seconds": 0.42,
}


def principal(user: User) -> Principal:
    return principal_of_user(user)


def imported(user: User, kind: str, content: str, *, name: str, file_name: str, **options: Any) -> Any:
    file = io.BytesIO(content.encode())
    uploaded, _ = set_import(
        principal=principal(user), kind_name=kind, name=name, file=file, file_name=file_name, **options
    )
    return uploaded


def sample_sets(user: User) -> tuple[Any, Any, Any]:
    """A document set, a query set, a judgement set."""
    return (
        imported(user, "documents", DOCUMENTS, name="Advice", file_name="advice.csv"),
        imported(user, "queries", QUERIES, name="Questions", file_name="questions.tsv"),
        imported(user, "judgements", JUDGEMENTS, name="Grades", file_name="grades.txt"),
    )


def live_worker(name: str = "worker-1") -> Worker:
    worker = worker_register(worker_id=uuid.uuid4(), boot_id=uuid.uuid4(), name=name, host="host", pid=7, device="cpu")
    worker_move(worker=worker, to=WorkerState.READY, reason="tests")
    worker_heartbeat(
        worker=worker, progress=3, memory_bytes=512 << 20, in_hand=[], statistics={"engine": {"sequences": 1200}}
    )
    return worker


def served_model(
    user: User, worker: Worker, *, name: str = "late", kind: ModelKind = ModelKind.LATE_INTERACTION
) -> ScoringModel:
    labels = ["yes", "no"] if kind == ModelKind.GENERATIVE else []
    model_register(principal=principal(user), name=name, kind=kind, source=f"package:some/{name}", labels=labels)
    model = self_test_claim(worker=worker)
    assert model is not None
    finished = self_test_finish(
        model=model, worker=worker, passed=True, report=REPORT, revision="0123456789abcdef", facts=FACTS
    )
    assert finished
    return ScoringModel.objects.get(pk=model.pk)


def placed(model: ScoringModel, worker: Worker) -> Placement:
    placement = placement_want(model=model, worker=worker, demand=PlacementDemand.PERSON, actor="tests")
    assert placement_claim(placement=placement, worker=worker, claimed_bytes=3 << 30, source=MemorySource.MEASURED)
    for state in (PlacementState.LOADING, PlacementState.WARMING):
        placement_move(placement=placement, to=state, reason="tests")
    placement_move(
        placement=placement, to=PlacementState.READY, reason="tests", generation=model.generation, maxsim_backend="cpu"
    )
    return placement


def submitted(user: User, model: ScoringModel, documents: DocumentSet, queries: QuerySet, **options: Any) -> Job:
    options = {"name": "", "document_set": documents, "query_set": queries, **options}
    stages = options.pop("stages", None) or [StagePlan(model=model, top_k=options.pop("top_k", None))]
    return job_submit(principal=principal(user), stages=stages, **options)[0]


def work(worker: Worker, *, chunks: int | None = None) -> int:
    """Score pending chunks, all of them or the next few. Returns how many."""
    done = 0
    while (chunks is None or done < chunks) and (chunk := chunk_lease(worker=worker)) is not None:
        report = {"backend": "cpu", "dtype": "float32", "prompt_tokens": 100}
        chunk_complete(chunk=chunk, worker=worker, block=_block(chunk), report=report)
        done += 1
    return done


def finished(user: User, model: ScoringModel, worker: Worker, documents: Any, queries: Any, **options: Any) -> Job:
    job = submitted(user, model, documents, queries, **options)
    while work(worker):
        jobs_advance()
    job.refresh_from_db()
    return job


def _block(chunk: Chunk) -> ScoreBlock:
    """By shared words. A chunk that retrieves finds the documents that share one, the last ones of the set first."""
    start, stop = chunk.query_start, chunk.query_start + chunk.query_count
    queries = Query.objects.filter(query_set=chunk.job.query_set_id, position__gte=start, position__lt=stop)
    rows = Document.objects.filter(document_set=chunk.job.document_set_id)
    documents = {document.position: document for document in rows}
    retrieves = chunk.stage.model is None
    columns = range(chunk.document_start, chunk.document_start + chunk.document_count)
    block = ScoreBlock.blank((chunk.query_count, chunk.document_count))
    if retrieves:
        block = replace(block, positions=np.full(block.raw.shape, -1, np.int32))
    else:
        positions = positions_of(chunk.stage, queries=range(start, stop), candidates=columns)
    for row, query in enumerate(queries.order_by("position")):
        if block.positions is not None:
            shared = [place for place in sorted(documents, reverse=True) if _overlap(query.text, documents[place].text)]
            own = shared[: chunk.document_count]
            block.positions[row, : len(own)] = own
        else:
            own = [place for place in positions[row].tolist() if place >= 0]
        for column, place in enumerate(own):
            text = documents[place].text
            block.raw[row, column] = -place if retrieves else _overlap(query.text, text) if text else np.nan
            block.statuses[row, column] = EMPTY if not text else 0
    return replace(block, activated=block.raw)


def _overlap(query: str, text: str) -> float:
    words, there = (set(re.findall(r"\w+", part.lower())) for part in (query, text))
    return len(words & there) / (len(words) * (1 + len(there)) ** 0.3) if words else 0.0

"""Rows that the API's tests need, made as the platform makes them: through the API itself and the workers' services."""

from __future__ import annotations

import uuid
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from django.core.files.uploadedfile import SimpleUploadedFile
from rest_framework.test import APIClient

from accounts.models import Team
from accounts.scopes import ALL_SCOPES
from scoring.models import Chunk, Job, ScoringModel, Worker
from scoring.ranking import ScoreBlock
from scoring.services.chunks import chunk_complete, chunk_lease
from scoring.services.finalize import jobs_advance
from scoring.services.workers import worker_move, worker_register
from scoring.states import ITEM_STATUSES, ItemStatus, ModelState, WorkerState

DOCUMENTS = b"id,text,title\n" + b"".join(b"d%d,text %d,=SUM(%d)\n" % (i, i, i) for i in range(69)) + b"d69,,empty\n"
QUERIES = b"id,text\nq1,first\nq2,second\n"
JUDGEMENTS = b"q1 0 d7 2\nq1 0 d3 1\nq2 0 d1 1\nq2 0 d65 2\n"
RUN = b"q1 Q0 d7 1 9.5 bm25\nq1 Q0 d3 2 8.25 bm25\nq2 Q0 d65 1 7 bm25\n"
EMPTY = ITEM_STATUSES.index(ItemStatus.EMPTY)

Upload = Callable[..., Any]
SubmitJob = Callable[..., dict[str, Any]]


def send_file(api: APIClient, resource: str, content: bytes, *, file_name: str = "file.csv", **fields: Any) -> Any:
    file = SimpleUploadedFile(file_name, content)
    return api.post(f"/api/v1/{resource}", {"file": file, **fields}, format="multipart")


@pytest.fixture
def upload(api: APIClient) -> Upload:
    """``upload("document-sets", b"id,text\\n1,a\\n")``: the set as the answer shows it."""

    def run(resource: str, content: bytes, *, client: APIClient = api, **fields: Any) -> dict[str, Any]:
        response = send_file(client, resource, content, **{"name": resource, **fields})
        assert response.status_code in (200, 201), response.content
        return response.json()

    return run


@pytest.fixture
def stranger(api_with: Callable[..., APIClient]) -> APIClient:
    """A client of another team that may do everything."""
    return api_with(*ALL_SCOPES, team=Team.objects.create(name="others"))


@pytest.fixture
def model(db: None) -> ScoringModel:
    """A model row as its passed self-test leaves it; nothing here loads it."""
    return ScoringModel.objects.create(
        name="late",
        kind="late-interaction",
        source="package:x/y",
        is_default=True,
        state=ModelState.AVAILABLE,
        revision="r1",
        facts={"max_length": 256, "scale": "maxsim"},
    )


@pytest.fixture
def worker(db: None) -> Worker:
    worker = worker_register(
        worker_id=uuid.uuid4(), boot_id=uuid.uuid4(), name="worker-1", host="here", pid=1, device="cpu"
    )
    assert worker_move(worker=worker, to=WorkerState.READY, reason="tests")
    return worker


@pytest.fixture
def submit(api: APIClient, model: ScoringModel, upload: Upload) -> SubmitJob:
    """Submit a job over 70 documents and two queries: the body of the 201."""

    def run(**fields: Any) -> dict[str, Any]:
        documents = upload("document-sets", DOCUMENTS, use_existing="true") if "document_set" not in fields else {}
        queries = upload("query-sets", QUERIES, use_existing="true") if "query_set" not in fields else {}
        body = {"model": "late", "document_set": documents.get("id"), "query_set": queries.get("id"), **fields}
        response = api.post("/api/v1/jobs", body)
        assert response.status_code == 201, response.content
        return response.json()

    return run


@pytest.fixture
def ended(submit: SubmitJob, worker: Worker) -> Job:
    """A job that was scored and ranked."""
    job = submit()
    run_chunks(worker)
    assert jobs_advance() == 1
    return Job.objects.get(pk=job["id"])


def run_chunks(worker: Worker) -> None:
    while chunk := chunk_lease(worker=worker):
        report = {"backend": "cpu", "dtype": "float32"}
        assert chunk_complete(chunk=chunk, worker=worker, block=scores_of(chunk), report=report)


def scores_of(chunk: Chunk) -> ScoreBlock:
    """Many ties: query 1 prefers multiples of 7, query 2 later documents; the empty document has no score."""
    positions = np.arange(chunk.document_start, chunk.document_start + chunk.document_count)
    raw = np.stack([(positions % 7 == 0) * 2.5, positions // 10]).astype(np.float32)
    statuses = np.zeros(raw.shape, np.uint8)
    raw[:, positions == 69], statuses[:, positions == 69] = np.nan, EMPTY
    return ScoreBlock(raw, raw, statuses)

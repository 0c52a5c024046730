"""Rows for tests of what happens between processes. Threads commit, so every test truncates instead of rolling back."""

from __future__ import annotations

import io
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import cast

import pytest
from pytest_django import Settings

from accounts.scopes import ALL_SCOPES
from accounts.services import team_default
from assay.api.principal import Principal
from scoring.models import DocumentSet, Job, QuerySet, ScoringModel, Worker
from scoring.models.base import UploadedSet
from scoring.services.imports import set_import
from scoring.services.jobs import job_submit
from scoring.services.stage_plan import StagePlan
from scoring.services.workers import WorkerNews, worker_move, worker_register
from scoring.states import ModelState, WorkerState
from tests.integration.rig import Rig
from workers.batch import Batch
from workers.bm25_indexes import Bm25Indexes
from workers.engine.config import EngineConfig
from workers.heartbeat import Heartbeat, Pulse
from workers.host import Host
from workers.remote.engine import EngineWithRemotes
from workers.retrieval import Retriever

MakeWorker = Callable[..., Worker]
MakeJob = Callable[..., Job]


@pytest.fixture
def principal(transactional_db: None) -> Principal:
    return Principal(user=None, team=team_default(), token=None, scopes=ALL_SCOPES)


@pytest.fixture
def make_worker(transactional_db: None) -> MakeWorker:
    """``make_worker("worker-1")``; the same ``worker_id`` again is a restart of that worker."""

    def make(name: str = "worker-1", worker_id: uuid.UUID | None = None) -> Worker:
        worker = worker_register(
            worker_id=worker_id or uuid.uuid4(), boot_id=uuid.uuid4(), name=name, host="here", pid=1, device="cpu"
        )
        worker_move(worker=worker, to=WorkerState.READY, reason="test")
        return worker

    return make


@pytest.fixture
def model(transactional_db: None) -> ScoringModel:
    """A served model; no test that uses it loads it."""
    return ScoringModel.objects.create(
        name="late",
        kind="late-interaction",
        source="package:x/y",
        state=ModelState.AVAILABLE,
        revision="r1",
        facts={"max_length": 256, "scale": "maxsim"},
    )


@pytest.fixture
def make_job(principal: Principal) -> MakeJob:
    """``make_job(model, chunks=3)``: two queries against as many documents as fill that many chunks (64 each)."""

    def make(model: ScoringModel, *, chunks: int = 3, texts: Callable[[int], str] = "text {}".format) -> Job:
        documents = "id,text\n" + "".join(f"d{n},{texts(n)}\n" for n in range(64 * chunks))
        job, _ = job_submit(
            principal=principal,
            name="",
            stages=[StagePlan(model=model)],
            document_set=cast(DocumentSet, _import(principal, "documents", documents)),
            query_set=cast(QuerySet, _import(principal, "queries", "id,text\nq1,first\nq2,second\n")),
        )
        return job

    return make


def _import(principal: Principal, kind: str, content: str) -> UploadedSet:
    file = io.BytesIO(content.encode())
    uploaded, _ = set_import(
        principal=principal, kind_name=kind, name=kind, file=file, file_name=f"{kind}.csv", use_existing=True
    )
    return uploaded


@pytest.fixture(scope="session")
def engine() -> Iterator[EngineWithRemotes]:
    engine = EngineWithRemotes(EngineConfig(device="cpu", threads=1))
    yield engine
    engine.close()


@pytest.fixture
def rig(
    engine: EngineWithRemotes,
    principal: Principal,
    make_worker: MakeWorker,
    tmp_path: Path,
    settings: Settings,
) -> Iterator[Rig]:
    settings.MODEL_ROOTS = [tmp_path]
    settings.HEARTBEAT_SECONDS = 2
    worker = make_worker()
    batch: Batch
    host = Host(engine=engine, worker=worker, changed=lambda: batch.wake())
    retriever = Retriever(Bm25Indexes(tmp_path / "bm25", limit=1 << 30))
    batch = Batch(host=host, engine=engine, retriever=retriever, worker=worker)

    def news(now: WorkerNews, before: WorkerNews | None) -> None:
        host.wake()
        batch.wake()

    heartbeat = Heartbeat(
        worker=worker, pulse=lambda: Pulse(engine.progress, [], {}), changed=news, replaced=lambda: None
    )
    heartbeat.start()
    host.start()
    yield Rig(engine, worker, host, batch, tmp_path, principal)
    heartbeat.stop(timeout=10)
    batch.drain(10)
    assert host.stop(timeout=30)
    for name in engine.models():
        engine.unload(name)

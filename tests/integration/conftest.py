"""Rows for tests of what happens between processes. Threads commit, so every test here truncates instead of rolling back."""

from __future__ import annotations

import io
import time
import uuid
from collections.abc import Callable

import pytest

from accounts.scopes import ALL_SCOPES
from accounts.services import team_default
from assay.api.principal import Principal
from scoring.models import Job, ScoringModel, Worker
from scoring.services.imports import set_import
from scoring.services.jobs import job_submit
from scoring.services.workers import worker_move, worker_register
from scoring.states import ModelState, WorkerState

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
        sets = [
            set_import(
                principal=principal, kind_name=kind, name=kind, file=io.BytesIO(content.encode()), file_name="x.csv"
            )[0]
            for kind, content in (("documents", documents), ("queries", "id,text\nq1,first\nq2,second\n"))
        ]
        job, _ = job_submit(principal=principal, name="", model=model, document_set=sets[0], query_set=sets[1])
        return job

    return make


def wait_for(condition: Callable[[], object], *, seconds: float = 30.0, what: str = "the condition") -> None:
    """Return once ``condition()`` is true; an AssertionError after ``seconds``."""
    give_up = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < give_up, f"{what} did not come true within {seconds:g} s"
        time.sleep(0.05)

from __future__ import annotations

import io
import uuid
from collections.abc import Callable
from typing import Any

import pytest

from accounts.models import Team
from accounts.scopes import ALL_SCOPES
from assay.api.principal import Principal
from scoring.models import Job, ScoringModel, Worker
from scoring.services.imports import set_import
from scoring.services.jobs import job_submit
from scoring.services.stages import StagePlan
from scoring.services.workers import worker_register
from scoring.states import ModelState

DOCUMENTS = b"id,text,title\n" + b"".join(b"d%d,text %d,=SUM(%d)\n" % (i, i, i) for i in range(69)) + b"d69,,empty\n"
QUERIES = b"id,text\nq1,first\nq2,second\n"
Upload = Callable[..., Any]  # the set that fits the kind


@pytest.fixture
def principal(team: Team) -> Principal:
    return Principal(user=None, team=team, token=None, scopes=ALL_SCOPES)


@pytest.fixture
def upload(principal: Principal) -> Upload:
    """Import bytes: ``upload("documents", b"id,text\\n1,a\\n")``."""

    def run(kind: str, content: bytes, **options: Any) -> Any:
        uploaded, _ = set_import(
            principal=principal, kind_name=kind, name=kind, file=io.BytesIO(content), file_name=f"{kind}.csv", **options
        )
        return uploaded

    return run


@pytest.fixture
def model(db: None) -> ScoringModel:
    """A model row as its passed self-test leaves it; nothing here loads it."""
    return ScoringModel.objects.create(
        name="late",
        kind="late-interaction",
        source="package:x/y",
        state=ModelState.AVAILABLE,
        revision="r1",
        facts={"max_length": 256, "scale": "maxsim"},
    )


@pytest.fixture
def worker(db: None) -> Worker:
    return worker_register(
        worker_id=uuid.uuid4(), boot_id=uuid.uuid4(), name="worker-1", host="here", pid=1, device="cpu"
    )


@pytest.fixture
def job(principal: Principal, model: ScoringModel, upload: Upload) -> Job:
    """Two chunks: 70 documents by two queries."""
    job, created = job_submit(
        principal=principal, name="", stages=[StagePlan(model=model, top_k=20)],
        document_set=upload("documents", DOCUMENTS), query_set=upload("queries", QUERIES),
    )  # fmt: skip
    assert created
    return job

"""What an earlier release stored is what this one reads."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from typing import Any

import pytest
from django.db import connection
from django.db.migrations.executor import MigrationExecutor

from scoring.models import Chunk, Job, QueryResult


def migrated(target: list[tuple[str, str]]) -> Any:
    executor = MigrationExecutor(connection)
    executor.migrate(target)
    return executor.loader.project_state(target).apps


@pytest.fixture
def before_stages(transactional_db: None) -> Iterator[Any]:
    """The (empty) tables as they were; at the end of the test as they are now, whatever happened."""
    latest = MigrationExecutor(connection).loader.graph.leaf_nodes()
    yield migrated([("scoring", "0004_run_sets")])
    migrated(latest)


def test_a_job_of_one_model_becomes_a_job_of_one_stage(before_stages: Any) -> None:
    old = before_stages.get_model
    team = old("accounts", "Team").objects.create(name="a team of old")
    model = old("scoring", "ScoringModel").objects.create(name="old", kind="bi-encoder", source="package:a/b")
    files = {"team": team, "name": "x", "file_name": "x", "file_format": "csv", "checksum": "0" * 64, "state": "ready"}
    documents = old("scoring", "DocumentSet").objects.create(**files)
    queries = old("scoring", "QuerySet").objects.create(**files)
    query = old("scoring", "Query").objects.create(query_set=queries, position=0, external_id="q", text="q")
    for state in ("completed", "cancelled", "running"):
        job = old("scoring", "Job").objects.create(
            id=uuid.uuid4(), team=team, name=state, model=model, document_set=documents, query_set=queries, state=state,
            query_count=1, document_count=1, pair_count=1, query_block=1, document_block=1, top_k=7,
            settings={"kind": "bi-encoder"}, model_revision="r1", statistics={"seconds": 1.0},
        )  # fmt: skip
        grid = {"query_start": 0, "query_count": 1, "document_start": 0, "document_count": 1}
        old("scoring", "Chunk").objects.create(job=job, index=0, state="done", **grid)
        old("scoring", "QueryResult").objects.create(
            job=job, query=query, query_position=0, kept=1, scored=1, positions=b"", raw_scores=b"", statuses=b""
        )
    migrated(MigrationExecutor(connection).loader.graph.leaf_nodes())

    found = {job.name: job for job in Job.objects.all()}
    for job in found.values():
        stage = job.last_stage
        assert (stage.scorer.name, stage.top_k, stage.model_revision) == ("old", 7, "r1")
        assert (stage.settings, stage.statistics) == ({"kind": "bi-encoder"}, {"seconds": 1.0})
        assert Chunk.objects.get(job=job).stage == QueryResult.objects.get(stage__job=job).stage == stage
    assert [found[name].last_stage.state for name in ("completed", "cancelled", "running")] == [
        "done",
        "done",
        "running",
    ]
    assert [found[name].end_reason for name in ("completed", "cancelled", "running")] == ["", "cancelled", ""]

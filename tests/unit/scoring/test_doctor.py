"""The domain's part of ``manage.py doctor``."""

from __future__ import annotations

import uuid
from datetime import timedelta

import pytest
import redis
from django.db.models.functions import Now

from assay.api.principal import Principal
from assay.doctor import Finding, Status, examine
from scoring import dispatch
from scoring.models import Job, ScoringModel, Worker
from scoring.services.jobs import job_submit
from scoring.services.stages import StagePlan
from scoring.services.workers import worker_move, worker_register
from scoring.states import WorkerState
from tests.unit.scoring.conftest import Upload

pytestmark = pytest.mark.django_db


def worker(name: str, **fields: object) -> Worker:
    made = worker_register(worker_id=uuid.uuid4(), boot_id=uuid.uuid4(), name=name, host="gpu-7", pid=1, device="cpu")
    worker_move(worker=made, to=WorkerState.READY, reason="test")
    Worker.objects.filter(pk=made.pk).update(**fields)
    return made


def found(part: str) -> dict[str, Finding]:
    return {finding.message: finding for finding in examine() if finding.part == part}


def test_workers_that_are_well() -> None:
    worker("one", statistics={"payload_version": 3})
    worker("two", statistics={"payload_version": 3})
    assert [(each.status, each.message) for each in found("workers").values()] == [(Status.OK, "2 ready")]


def test_a_worker_without_its_device_and_two_releases_at_once() -> None:
    worker("one", statistics={"payload_version": 3, "problem": "DEVICE is 'cuda:1', but this process sees none."})
    worker("two", statistics={"payload_version": 4})
    messages = found("workers")
    assert messages["one: DEVICE is 'cuda:1', but this process sees none."].status is Status.PROBLEM
    assert messages["workers speak payload versions 3 and 4"].status is Status.WARNING


def test_silence_that_nobody_acts_on_means_that_there_is_no_reconciler() -> None:
    worker("one")
    worker("two", heartbeat_at=Now() - timedelta(hours=1))
    lost = worker("three", heartbeat_at=Now() - timedelta(hours=1))
    lost.state = WorkerState.LOST
    lost.save(update_fields=["state"])
    messages = found("workers")
    assert "manage.py reconciler" in messages["two on gpu-7 fell silent and nobody took its chunks back"].advice
    assert messages["three on gpu-7 is lost"].status is Status.WARNING


def test_a_queue_that_grows(redis_client: redis.Redis) -> None:
    queue = dispatch.worker_queue("00000000-0000-7000-8000-000000000000")
    redis_client.delete(dispatch.BATCH_QUEUE)
    assert found("queues")["0 messages wait in queue 'batch'"].status is Status.OK
    redis_client.rpush(queue, *["{}"] * 101)
    try:
        assert found("queues")[f"101 messages wait in queue '{queue}'"].status is Status.WARNING
    finally:
        redis_client.delete(queue)


def test_a_job_that_nobody_works_on_is_named_once_it_waited(
    model: ScoringModel, upload: Upload, principal: Principal
) -> None:
    job, _ = job_submit(
        principal=principal,
        name="",
        stages=[StagePlan(model=model)],
        document_set=upload("documents", b"id,text\n1,a\n"),
        query_set=upload("queries", b"id,text\n1,b\n"),
    )
    assert [finding.status for finding in found("jobs").values()] == [Status.OK]
    Job.objects.update(queued_at=Now() - timedelta(hours=1))
    ((message, finding),) = found("jobs").items()
    assert message.startswith(f"job {job.pk} was queued 3600 s ago")
    assert finding.status is Status.WARNING

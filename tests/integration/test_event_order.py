"""Events come in the order of their ids, though a smaller id may be committed after a larger one."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from dataclasses import replace

import psycopg
import pytest
from django.contrib.auth.models import User
from django.db import connection, connections

from assay.api.principal import Principal
from scoring.api import event_stream as stream
from scoring.api.event_stream import Feed, event_stream, mark_move
from scoring.api.job_control import EventSerializer
from scoring.models import Job, ScoringModel, Transition
from scoring.services.finalize import jobs_advance
from scoring.services.job_control import job_cancel
from scoring.services.job_watch import jobs_stop_finish
from tests.integration.conftest import MakeJob


@pytest.fixture
def late() -> Iterator[psycopg.Connection]:
    """A transaction of somebody else, open."""
    url = connection.settings_dict
    with psycopg.connect(
        host=url["HOST"], port=url["PORT"] or None, dbname=url["NAME"], user=url["USER"], password=url["PASSWORD"]
    ) as other:
        yield other


@pytest.fixture
def feed(monkeypatch: pytest.MonkeyPatch) -> Iterator[Feed]:
    feed = Feed()
    monkeypatch.setattr(stream, "feed", feed)
    yield feed
    feed._thread.submit(connections.close_all).result()


def write_late(late: psycopg.Connection, job: Job) -> int:
    row = late.execute(
        "INSERT INTO scoring_transition (entity, entity_id, job_id, from_state, to_state, actor, reason, detail, at) "
        "VALUES ('job', %s, %s, '', 'queued', 'x', 'late', '{}', now()) RETURNING id",
        [str(job.pk), job.pk],
    ).fetchone()
    assert row is not None
    return int(row[0])


def test_nothing_is_settled_while_a_smaller_id_may_come(
    make_job: MakeJob, model: ScoringModel, late: psycopg.Connection
) -> None:
    job = make_job(model)
    number = write_late(late, job)
    newer = Transition.objects.create(entity="job", entity_id=str(job.pk), job_id=job.pk, to_state="queued", actor="x")
    assert newer.pk > number
    mark = mark_move(None, [job.pk])
    assert mark.newest == newer.pk and mark.writers and mark_move(mark, [job.pk]).writers == mark.writers
    late.commit()
    assert not mark_move(mark, [job.pk]).writers


def test_a_stream_shows_the_smaller_id_first_whoever_commits_first(
    make_job: MakeJob, model: ScoringModel, principal: Principal, late: psycopg.Connection, feed: Feed
) -> None:
    job = make_job(model)
    number = write_late(late, job)
    job_cancel(principal=principal, job=job)
    jobs_stop_finish()
    jobs_advance()
    viewer = replace(principal, user=User.objects.create_user("viewer"))
    newer = list(Transition.objects.filter(job=job, pk__gt=number).order_by("pk").values_list("pk", flat=True))
    assert newer

    async def read() -> str:
        async def commit() -> None:
            await asyncio.sleep(0)
            await feed.look()
            await feed.look()  # by now a stream that did not wait would have shown the newer ones
            late.commit()

        response = event_stream(job, viewer, after=number - 1, serializer=EventSerializer)
        committing = asyncio.create_task(commit())
        text = b"".join([piece async for piece in response.streaming_content])  # type: ignore[union-attr]
        await committing
        return text.decode()

    shown = [int(line.removeprefix("id: ")) for line in asyncio.run(read()).splitlines() if line.startswith("id: ")]
    assert shown == [number, *newer]

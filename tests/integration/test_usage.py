"""Usage by day: counted from rows, final when the day is closed, whatever is deleted before or after."""

from __future__ import annotations

from datetime import UTC, date, datetime, timedelta
from typing import Any

import numpy as np
import pytest
from rest_framework.test import APIClient

from accounts.models import ApiToken, Team
from accounts.scopes import Scope
from accounts.services import token_create
from assay.api.principal import Principal
from scoring.models import Job, ScoreRequest, ScoringModel, UsageClosing, Worker
from scoring.ranking import ScoreBlock
from scoring.services.chunks import chunk_complete, chunk_lease
from scoring.services.finalize import jobs_advance
from scoring.services.jobs import job_delete
from scoring.services.usage import usage_roll_up
from tests.api.schema import check
from tests.integration.conftest import MakeJob, MakeWorker
from workers.reconcile import Reconciler

REPORT = {"prompt_tokens": 50, "timings": {"forward": 400.0, "maxsim": 100.0}}


@pytest.fixture
def shop(principal: Principal) -> tuple[ApiToken, APIClient]:
    token, secret = token_create(team=principal.team, name="shop", scopes=[Scope.SCORE])
    return token, APIClient(headers={"Authorization": f"Bearer {secret}"})


def answered(team: Team, *, days_ago: int = 0, **fields: Any) -> None:
    """A stored request of three documents of which two got a score."""
    row = ScoreRequest.objects.create(
        team=team,
        model_name="late",
        endpoint="/rerank",
        **{
            "status_code": 200, "document_count": 3, "scored_count": 2, "prompt_tokens": 7, "compute_seconds": 0.25,
            **fields,
        },
    )  # fmt: skip
    ScoreRequest.objects.filter(pk=row.pk).update(created_at=datetime.now(UTC) - timedelta(days=days_ago))


def scored(worker: Worker) -> None:
    """Every chunk there is, two pairs of it in vain."""
    while chunk := chunk_lease(worker=worker):
        scores = np.zeros((chunk.query_count, chunk.document_count), np.float32)
        statuses = np.zeros(scores.shape, np.uint8)
        statuses[:, 0] = 2  # empty
        scores[:, 0] = np.nan
        assert chunk_complete(chunk=chunk, worker=worker, block=ScoreBlock(scores, scores, statuses), report=REPORT)
    jobs_advance()


def usage(client: APIClient, **query: str) -> list[dict[str, Any]]:
    results: list[dict[str, Any]] = check(client.get("/api/v1/usage", query))["results"]
    return results


def today() -> date:
    return datetime.now(UTC).date()


def test_requests_and_jobs_are_told_apart(
    shop: tuple[ApiToken, APIClient],
    principal: Principal,
    model: ScoringModel,
    make_job: MakeJob,
    make_worker: MakeWorker,
) -> None:
    token, client = shop
    answered(principal.team, token=token)
    answered(principal.team, token=token)
    answered(principal.team, status_code=429, scored_count=0, prompt_tokens=0, compute_seconds=0.0)
    answered(Team.objects.create(name="others"))
    make_job(model, chunks=2)
    scored(make_worker())
    assert usage_roll_up() == usage_roll_up() == 1
    job = {"requests": 1, "errors": 0, "documents": 252, "tokens": 100, "compute_seconds": 1.0}
    mine = {"requests": 2, "errors": 0, "documents": 4, "tokens": 14, "compute_seconds": 0.5}
    refused = {"requests": 1, "errors": 1, "documents": 0, "tokens": 0, "compute_seconds": 0.0}
    assert usage(client, group_by="source,token") == [
        {"source": "jobs", "token": None, **job},
        {"source": "requests", "token": "shop", **mine},
        {"source": "requests", "token": None, **refused},
    ]
    total = {figure: job[figure] + mine[figure] + refused[figure] for figure in job}
    assert usage(client, group_by="day,model") == [{"day": str(today()), "model": "late", **total}]
    assert usage(client, group_by="") == [total]


def test_what_is_deleted_stays_counted(
    shop: tuple[ApiToken, APIClient],
    principal: Principal,
    model: ScoringModel,
    make_job: MakeJob,
    make_worker: MakeWorker,
) -> None:
    worker = make_worker()
    for _ in range(2):
        make_job(model, chunks=1)
        scored(worker)
    answered(principal.team, days_ago=3)
    Job.objects.update(created_at=datetime.now(UTC) - timedelta(days=4))
    assert usage_roll_up() == 5
    before = usage(shop[1])
    assert [line["documents"] for line in before] == [2, 252]
    closed = set(UsageClosing.objects.values_list("day", flat=True))
    assert today() - timedelta(days=3) in closed and today() not in closed

    ScoreRequest.objects.all().delete()
    for job in Job.objects.all():
        job_delete(principal=principal, job=job)
    usage_roll_up()
    assert usage(shop[1]) == before
    answered(principal.team, days_ago=3)  # too late for a day that is closed
    answered(principal.team)
    Reconciler().tick()
    assert [line["documents"] for line in usage(shop[1])] == [2, 254]


@pytest.mark.parametrize(
    ("query", "param"),
    [
        ({"from": "2026-02-30"}, "from"),
        ({"from": "2026-01-02", "to": "2026-01-01"}, "from"),
        ({"from": "2020-01-01", "to": "2026-01-01"}, "from"),
        ({"to": "0001-01-01"}, "to"),
        ({"group_by": "day,hour"}, "group_by"),
        ({"group_by": "day,day"}, "group_by"),
        ({"team": "others"}, "team"),
    ],
)
def test_what_cannot_be_is_refused(shop: tuple[ApiToken, APIClient], query: dict[str, str], param: str) -> None:
    answer = shop[1].get("/api/v1/usage", query)
    assert (answer.status_code, check(answer)["error"]["param"]) == (422, param)

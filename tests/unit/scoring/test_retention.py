"""Texts go, by their age or on demand; what was computed of them stays."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest
from django.utils import timezone
from pytest_django import Settings

from assay.api.principal import Principal
from assay.errors import AssayError
from audit.models import AuditEvent
from scoring.export.formats import jsonl_lines
from scoring.export.results import stage_table
from scoring.models import (
    Chunk,
    Document,
    DocumentSet,
    Job,
    Query,
    QuerySet,
    ScoreRequest,
    ScoringModel,
    Worker,
)
from scoring.models.chunk import BLOBS
from scoring.services.chunks import chunk_complete, chunk_lease
from scoring.services.finalize import jobs_advance
from scoring.services.job_control import job_cancel
from scoring.services.job_retry import job_retry
from scoring.services.jobs import job_submit
from scoring.services.retention import retention_apply, texts_delete
from scoring.services.sets import set_delete
from scoring.services.stages import StagePlan
from scoring.states import JobState
from tests.unit.scoring.conftest import Upload
from tests.unit.scoring.test_job_life import score

DOCUMENTS = b"id,title,text,shelf\n" + b"".join(b"d%d,a title,a text,%d\n" % (n, n) for n in range(7))
QUERIES = b"id,text\nq1,first\nq2,second\n"


@pytest.fixture
def documents(upload: Upload) -> DocumentSet:
    return upload("documents", DOCUMENTS)


@pytest.fixture
def queries(upload: Upload) -> QuerySet:
    return upload("queries", QUERIES)


def submitted(principal: Principal, model: ScoringModel, documents: DocumentSet, queries: QuerySet) -> Job:
    job, _ = job_submit(
        principal=principal, name="", stages=[StagePlan(model=model)], document_set=documents, query_set=queries
    )
    return job


def older(table: Any, days: int) -> None:
    table.objects.update(created_at=timezone.now() - timedelta(days=days))


def texts(documents: DocumentSet) -> set[tuple[str, str, str]]:
    rows = Document.objects.filter(document_set=documents)
    return {(row.title, row.text, str(row.metadata)) for row in rows}


def test_nothing_goes_unless_it_was_said(documents: DocumentSet) -> None:
    older(DocumentSet, 10_000)
    assert retention_apply() == 0 and len(texts(documents)) == 7


def test_old_texts_go_and_ids_stay(documents: DocumentSet, queries: QuerySet, settings: Settings) -> None:
    settings.TEXT_KEEP_DAYS = 30
    assert retention_apply() == 0
    older(DocumentSet, 31)
    assert retention_apply() == 7
    documents.refresh_from_db()
    assert documents.texts_deleted_at is not None and texts(documents) == {("", "", "{}")}
    assert list(Document.objects.values_list("external_id", flat=True)) == [f"d{n}" for n in range(7)]
    assert not Document.objects.filter(is_empty=True).exists()  # empty is what was uploaded without a text
    assert documents.counts["kept"] == 7 and Query.objects.filter(text="first").exists()
    event = AuditEvent.objects.get(verb="document_set.texts_deleted")
    assert event.actor_label == "system" and event.detail == {"why": "older than 30 days"}
    assert retention_apply() == 0 and AuditEvent.objects.filter(verb__contains="texts_deleted").count() == 1


def test_a_round_is_bounded_and_the_next_goes_on(principal: Principal, documents: DocumentSet) -> None:
    texts_delete(principal=principal, uploaded=documents)
    rounds = []
    while emptied := retention_apply(limit=3):
        rounds.append(emptied)
        documents.refresh_from_db()
        assert (documents.texts_deleted_at is not None) == (sum(rounds) == 7)
    assert rounds == [3, 3, 1]


def test_texts_of_old_requests_go_and_their_results_stay(principal: Principal, settings: Settings) -> None:
    settings.TEXT_KEEP_DAYS = 30
    common = {"team": principal.team, "model_name": "m", "endpoint": "/score", "status_code": 200}
    results = [{"index": 0, "score": 0.5}]
    old = ScoreRequest.objects.create(**common, queries=["q"], documents=["d"], results=results)
    older(ScoreRequest, 31)
    new = ScoreRequest.objects.create(**common, queries=["q"], documents=["d"], results=results)
    assert retention_apply() == 1
    old.refresh_from_db()
    new.refresh_from_db()
    assert (old.queries, old.documents, old.results) == (None, None, results) and new.queries == ["q"]
    assert retention_apply() == 0


def test_what_keeps_a_set_is_counted_and_not_read(
    principal: Principal, model: ScoringModel, documents: DocumentSet, queries: QuerySet,
    django_assert_num_queries: Callable[..., Any],
) -> None:  # fmt: skip
    submitted(principal, model, documents, queries)
    with django_assert_num_queries(2), pytest.raises(AssayError, match="1 job could not be read without it"):
        set_delete(principal=principal, uploaded=queries)


def test_a_job_keeps_the_texts_until_it_has_ended(
    principal: Principal, model: ScoringModel, documents: DocumentSet, queries: QuerySet, settings: Settings
) -> None:
    settings.TEXT_KEEP_DAYS = 30
    job = submitted(principal, model, documents, queries)
    older(DocumentSet, 31)
    assert retention_apply() == 0 and len(texts(documents)) == 7
    with pytest.raises(AssayError, match="1 jobs over it have not ended") as refused:
        texts_delete(principal=principal, uploaded=queries)
    assert (refused.value.code, refused.value.status) == ("set_in_use", 409)
    job_cancel(principal=principal, job=job)
    jobs_advance()
    assert retention_apply() == 7
    texts_delete(principal=principal, uploaded=queries)
    assert retention_apply() == 2


def test_no_job_begins_over_a_set_without_texts(
    principal: Principal, model: ScoringModel, documents: DocumentSet, queries: QuerySet
) -> None:
    texts_delete(principal=principal, uploaded=queries)
    texts_delete(principal=principal, uploaded=queries)  # the second time changes nothing
    assert AuditEvent.objects.filter(verb="query_set.texts_deleted").count() == 1
    with pytest.raises(AssayError, match="The texts of the query set 'queries' were deleted on") as refused:
        submitted(principal, model, documents, queries)
    assert (refused.value.code, refused.value.param) == ("texts_deleted", "query_set")
    assert not Job.objects.exists()


def test_the_same_file_may_be_uploaded_again(principal: Principal, upload: Upload, documents: DocumentSet) -> None:
    texts_delete(principal=principal, uploaded=documents)
    again = upload("documents", DOCUMENTS)
    assert again.pk != documents.pk and len(texts(again)) == 7


def test_long_after_its_end_a_job_has_its_rankings_alone(
    principal: Principal, model: ScoringModel, worker: Worker, documents: DocumentSet, queries: QuerySet,
    settings: Settings,
) -> None:  # fmt: skip
    job = submitted(principal, model, documents, queries)
    chunk = chunk_lease(worker=worker)
    assert chunk is not None and chunk_complete(chunk=chunk, worker=worker, block=score(chunk), report={})
    jobs_advance()
    exported = list(jsonl_lines(stage_table(job.last_stage)))
    assert len(exported) == 14 and retention_apply() == 0
    Job.objects.update(finished_at=timezone.now() - timedelta(days=31), state=JobState.COMPLETED_WITH_ERRORS)
    settings.KEEP_CHUNK_SCORES_DAYS = 0
    assert retention_apply() == 0
    settings.KEEP_CHUNK_SCORES_DAYS = 30
    assert retention_apply() == 1 and retention_apply() == 0
    assert list(Chunk.objects.values_list(*BLOBS)) == [(b"", b"", b"", b"")]
    job.refresh_from_db()
    assert job.scores_dropped_at is not None and list(jsonl_lines(stage_table(job.last_stage))) == exported
    with pytest.raises(AssayError, match="clone it to score everything anew") as refused:
        job_retry(principal=principal, job=job)
    assert (refused.value.code, refused.value.status) == ("scores_dropped", 409)

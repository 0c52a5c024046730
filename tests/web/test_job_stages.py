"""Jobs of several stages on the pages: put together, looked through stage by stage."""

from __future__ import annotations

from typing import Any

import pytest
from django.contrib.auth.models import User
from django.test import Client
from django.urls import reverse

from scoring.models import Job, StageMethod
from scoring.services.stage_plan import StagePlan
from tests.web import factories
from tests.web.conftest import World
from tests.web.test_jobs import form, text_of

RUN = "q1 Q0 d2 1 2.0 mine\nq1 Q0 d1 2 1.0 mine\nq2 Q0 gone 1 1.0 mine\n"


def posted(client: Client, world: World, **fields: Any) -> Job:
    response = client.post(reverse("web:job_new"), form(world, **fields))
    assert response.status_code == 302, text_of(response)
    return Job.objects.latest("queued_at")


def stages_of(job: Job) -> list[tuple[str, str, int | None, int | None]]:
    rows = job.stages.select_related("source", "model", "run_set")
    return [(row.method, str(row), row.source.index if row.source else None, row.top_k) for row in rows]


def test_a_cascade_is_put_together(browser_client: Client, world: World) -> None:
    further = {"stage0-model": world.model.pk, "stage0-source": "kept", "stage0-top_k": 2}
    further |= {"stage1-model": world.model.pk, "stage1-source": "same"}
    job = posted(
        browser_client,
        world,
        name="",
        candidates="bm25",
        bm25_top_k=3,
        top_k=2,
        rows=2,
        **{k: str(v) for k, v in further.items()},
    )
    assert stages_of(job) == [
        ("bm25", "BM25", None, 3),
        ("model", "late", 0, 2),
        ("model", "late", 1, 2),
        ("model", "late", 0, None),
    ]
    assert job.name == "Questions on Advice by BM25 → late → late, late"


def test_a_run_gives_the_candidates(browser_client: Client, analyst: User, world: World) -> None:
    run = factories.imported(analyst, "runs", RUN, name="Mine", file_name="mine.run")
    linked = text_of(browser_client.get(reverse("web:job_new"), {"run_set": str(run.pk)}))
    assert f'value="{run.pk}" selected' in linked and 'value="run" checked' in linked
    job = posted(browser_client, world, candidates="run", run_set=str(run.pk))
    assert stages_of(job) == [("run", "Mine", None, None), ("model", "late", 0, 10)]
    assert job.pair_count == 8  # two queries, lists of at most two documents, two stages


def test_models_are_added_and_removed_without_losing_what_was_typed(browser_client: Client, world: World) -> None:
    url = reverse("web:job_new")
    grown = text_of(browser_client.post(url, {**form(world, name="Kept name"), "add": "1"}))
    assert 'name="stage0-model"' in grown and 'name="rows" value="1"' in grown and 'value="Kept name"' in grown
    assert "errorlist" not in grown
    more = {**form(world, rows="2"), "stage0-top_k": "7", "remove": "1"}
    shrunk = text_of(browser_client.post(url, more))
    assert 'name="rows" value="1"' in shrunk and 'name="stage1-model"' not in shrunk and 'value="7"' in shrunk


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({"candidates": "run"}, "Choose the run"),
        ({"candidates": "bm25", "bm25_top_k": ""}, "how many documents BM25"),
        ({"rows": "1", "stage0-source": "kept"}, "Nothing is chosen"),
        ({"rows": "1", "stage0-source": "kept", "stage0-top_k": "50", "stage0-model": "late"}, "Give at most 10"),
    ],
)
def test_what_cannot_be_is_said_in_the_form(
    browser_client: Client, world: World, fields: dict[str, str], said: str
) -> None:
    if fields.get("stage0-model"):
        fields = {**fields, "stage0-model": str(world.model.pk)}
    before = Job.objects.count()
    assert said in text_of(browser_client.post(reverse("web:job_new"), form(world, **fields)))
    assert Job.objects.count() == before


def test_the_size_is_told_stage_by_stage(browser_client: Client, world: World) -> None:
    chosen = {"document_set": str(world.documents.pk), "query_set": str(world.queries.pk), "candidates": "bm25"}
    chosen |= {"bm25_top_k": "2", "model": str(world.model.pk), "rows": "1", "stage0-source": "kept", "top_k": "1"}
    page = text_of(browser_client.get(reverse("web:job_size"), chosen))
    assert "up to 10 pairs" in page and "BM25 4 · late 4 · a model 2" in page


@pytest.fixture
def cascade(analyst: User, world: World) -> Job:
    """BM25 finds the documents that share a word, last ones first; the model orders them by shared words."""
    stages = [StagePlan(method=StageMethod.BM25, top_k=3), StagePlan(model=world.model, source=0)]
    return factories.finished(analyst, world.model, world.worker, world.documents, world.queries, stages=stages)


def test_every_stage_is_shown_with_the_change_of_rank(browser_client: Client, cascade: Job) -> None:
    assert cascade.state == "completed", cascade.failure
    url = reverse("web:job_detail", args=[cascade.pk])
    last = text_of(browser_client.get(url))
    assert "Scored what BM25 kept" in last and "in BM25" in last and f"{url}?stage=0" not in last
    first = text_of(browser_client.get(url, {"stage": "0"}))
    assert "Found by shared words" in first and "in BM25" not in first
    assert f'href="{reverse("web:job_evaluation", args=[cascade.pk])}?stage=0"' in first
    assert "/export/results/?" in first and "stage=0" in first.split("/export/results/?", 1)[1].split('"', 1)[0]
    for wrong in ("7", "x", "-1", "99999"):
        assert browser_client.get(url, {"stage": wrong}).status_code == 404


def test_a_query_without_candidates_is_shown_as_one(browser_client: Client, analyst: User, world: World) -> None:
    queries = factories.imported(analyst, "queries", "id,text\nq1,zebra\nq2,a tick\n", name="Z", file_name="z.csv")
    stages = [StagePlan(method=StageMethod.BM25, top_k=3), StagePlan(model=world.model, source=0)]
    job = factories.finished(analyst, world.model, world.worker, world.documents, queries, stages=stages)
    page = browser_client.get(reverse("web:job_detail", args=[job.pk]), {"query": "0"})
    assert page.status_code == 200 and 'class="query-text">zebra' in text_of(page)


def test_a_stage_is_measured_and_exported_by_itself(browser_client: Client, world: World, cascade: Job) -> None:
    url = reverse("web:job_evaluation", args=[cascade.pk])
    chosen = {"judgement_set": str(world.judgements.pk)}
    measured = browser_client.post(f"{url}?stage=0", {**chosen, "measures": ["nDCG@10"]}, follow=True)
    assert measured.redirect_chain and "nDCG@10" in text_of(measured) and "BM25" in text_of(measured)
    export = reverse("web:export", args=["results"])
    runs = []
    for stage in ("0", "1"):
        response: Any = browser_client.get(export, {"job": str(cascade.pk), "format": "trec", "stage": stage})
        assert f"stage-{stage}" in response["Content-Disposition"]
        runs.append(b"".join(response.streaming_content).decode().splitlines())
    assert [line.split()[-1] for line in (runs[0][0], runs[1][0])] == ["BM25", "late"]


def test_what_a_run_names_in_vain_is_shown(browser_client: Client, analyst: User, world: World) -> None:
    run = factories.imported(analyst, "runs", RUN, name="Mine", file_name="mine.run")
    stages = [StagePlan(method=StageMethod.RUN, run_set=run), StagePlan(model=world.model, source=0)]
    job = factories.finished(analyst, world.model, world.worker, world.documents, world.queries, stages=stages)
    page = text_of(browser_client.get(reverse("web:job_detail", args=[job.pk]), {"stage": "0"}))
    assert "2 of the run" in page and "3 lines name" in page and "<code>gone</code>" in page
    listed = text_of(browser_client.get(reverse("web:set_detail", args=["run-sets", run.pk])))
    assert job.name in listed
    details = text_of(browser_client.get(reverse("web:job_details", args=[job.pk]), {"stage": "0"}))
    assert reverse("web:set_detail", args=["run-sets", run.pk]) in details

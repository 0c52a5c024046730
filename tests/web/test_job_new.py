"""The form of a new job: what it would take, and why there are no scores to try. Real ones are seen in a browser."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from django.contrib.auth.models import User
from django.test import Client
from django.urls import reverse
from django.utils import timezone

from scoring.models import Job, JobLimit, ScoreRequest, Usage, UsageSource, Worker
from scoring.models.scoring_model import ModelKind
from scoring.selectors.trial_documents import TRIED, trial_documents, trial_query
from tests.web import factories
from tests.web.conftest import World, text_of


def chosen(world: World, **changed: Any) -> dict[str, str]:
    fields = {"document_set": world.documents.pk, "query_set": world.queries.pk, "model": world.model.pk, **changed}
    return {name: str(value) for name, value in fields.items()}


def measured(world: World, *, documents: int, seconds: float) -> None:
    Usage.objects.create(
        day=timezone.now().date(),
        team=world.job.team,
        model_name=world.model.name,
        source=UsageSource.JOBS,
        documents=documents,
        compute_seconds=seconds,
    )


def test_the_time_follows_from_the_measured_pace(browser_client: Client, world: World, analyst: User) -> None:
    page, size = reverse("web:job_new"), reverse("web:job_size")
    assert "not measured yet" in text_of(browser_client.get(page))
    assert "no pace measured yet" in text_of(browser_client.get(size, chosen(world)))
    measured(world, documents=30, seconds=120.0)
    assert "0.2 documents a second" in text_of(browser_client.get(page))
    assert "<dt>Time</dt><dd>about 24 s</dd>" in text_of(browser_client.get(size, chosen(world)))
    factories.live_worker("worker-2")
    Worker.objects.update(heartbeat_at=timezone.now() + timedelta(hours=1))  # however long the test takes
    assert "12 s on all 2 workers" in text_of(browser_client.get(size, chosen(world)))
    other = factories.served_model(analyst, world.worker, name="fresh", kind=ModelKind.CROSS_ENCODER)
    cascade = chosen(world, top_k=1, rows=1, **{"stage0-model": other.pk, "stage0-source": "kept"})
    told = text_of(browser_client.get(size, cascade))
    assert "up to 8 pairs" in told and "24 s <small>without fresh</small>" in told


def test_more_pairs_than_one_may_have_open_are_said_before(browser_client: Client, world: World) -> None:
    JobLimit.objects.create(team=world.job.team, open_pairs=5)
    told = text_of(browser_client.get(reverse("web:job_size"), chosen(world)))
    assert "6 <small>of 5 allowed</small>" in told and "more than you may have open" in told


def test_models_that_rank_nothing_are_no_choice(browser_client: Client, analyst: User, world: World) -> None:
    factories.served_model(analyst, world.worker, name="sorter", kind=ModelKind.CLASSIFIER)
    page = text_of(browser_client.get(reverse("web:job_new")))
    assert "> sorter<" not in page and "> late<" in page


def test_what_a_trial_lacks_is_said_in_its_place_and_the_form_is_kept(browser_client: Client, world: World) -> None:
    url = reverse("web:job_trial")
    page = text_of(browser_client.post(url, {"name": "Kept name", "query_set": str(world.queries.pk)}))
    assert "Choose a document set and a model first" in page and 'value="Kept name"' in page
    page = text_of(browser_client.post(url, chosen(world, try_query="q9")))
    assert "has no query &#x27;q9&#x27;; give the id of another" in page and "q9</textarea>" in page.replace(" ", "")
    Worker.objects.update(heartbeat_at="2020-01-01T00:00Z")
    page = text_of(browser_client.post(url, chosen(world, try_query="q2")))
    assert "<strong>late</strong>" in page and "no worker is running" in page and "descale a kettle" in page
    stored = ScoreRequest.objects.get()
    assert (stored.endpoint, stored.query_count, stored.document_count) == ("page /jobs/new/", 1, 2)
    assert Job.objects.count() == 1


def test_a_trial_takes_what_shares_words_or_what_the_run_lists(analyst: User, world: World) -> None:
    rows = "id,text\n" + "".join(f"n{number},nothing of it {number}\n" for number in range(30))
    many = factories.imported(
        analyst, "documents", f"{rows}k1,Descale it\nk2,the kettle\nk3,\n", name="Many", file_name="many.csv"
    )
    assert trial_query(world.queries, "").external_id == "q1"
    query = trial_query(world.queries, "q2")
    tried = [document.external_id for document in trial_documents(many, query, None)]
    assert tried == [*(f"n{number}" for number in range(TRIED - 2)), "k1", "k2"]
    run = factories.imported(analyst, "runs", factories.RUN, name="Run", file_name="run.txt")
    listed = trial_documents(world.documents, trial_query(world.queries, "q1"), run)
    assert [document.external_id for document in listed] == ["d1", "d2"]

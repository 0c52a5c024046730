"""What administrators see and do: tokens, usage, audit log, webhooks, people, settings, queue, registering a model."""

from __future__ import annotations

import re
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.test import Client
from django.urls import reverse

from accounts.models import ApiToken, Membership, Team
from accounts.scopes import Role
from accounts.services import token_create
from audit.models import AuditEvent
from scoring.models import Errand, Job, ModelSample, ScoringModel, Usage, Webhook, WebhookDelivery, WorkerSample
from scoring.services import errands
from scoring.services.history import samples_take
from scoring.services.webhook_deliveries import webhook_test
from scoring.services.webhooks import webhook_create
from scoring.states import DeliveryState, ErrandState, JobState
from tests.web import factories
from tests.web.conftest import World, text_of
from tests.web.test_pages import assert_clean, count_queries

OF_ADMINS = (
    "web:queue",
    "web:token_list",
    "web:token_new",
    "web:people",
    "web:audit_log",
    "web:settings",
    "web:model_new",
)
OF_ALL = ("web:usage", "web:webhook_list", "web:webhook_new")


def test_each_page_is_for_whom_it_should_be(
    admin_page: Client, browser_client: Client, client: Client, world: World
) -> None:
    for name in (*OF_ADMINS, *OF_ALL):
        page = admin_page.get(reverse(name))
        assert page.status_code == 200, name
        assert_clean(page)
        assert browser_client.get(reverse(name)).status_code == (403 if name in OF_ADMINS else 200), name
        assert Client().get(reverse(name)).status_code == 302, name


def test_a_token_is_shown_once_limited_and_revoked(admin_page: Client, world: World, team: Team) -> None:
    fields = {"name": "search service", "scopes": ["score"], "allowed_models": ["late"], "requests_per_minute": "60"}
    made = admin_page.post(reverse("web:token_new"), fields)
    token = ApiToken.objects.get()
    secret = re.search(rf"{re.escape(token.prefix)}_\w+", made.content.decode())
    assert secret and made["Cache-Control"] == "no-store" and "curl http://testserver/v1/models" in text_of(made)

    def called() -> Any:
        assert secret is not None
        return Client(headers={"Authorization": f"Bearer {secret[0]}"}).get("/api/v1/jobs")

    url = reverse("web:token_detail", args=[token.public_id])
    listed, shown = text_of(admin_page.get(reverse("web:token_list"))), text_of(admin_page.get(url))
    assert "search service" in listed and "in use" in listed and secret[0] not in listed + shown
    assert called().status_code == 403  # it was made for scoring
    assert admin_page.post(url, {**fields, "scopes": ["score", "jobs"]}).status_code == 200
    assert called().status_code == 200
    refused = admin_page.post(url, {**fields, "allowed_networks": "10.0.0.1/8, nonsense"})
    assert refused.status_code == 422 and "is no network" in text_of(refused)
    assert admin_page.post(reverse("web:token_revoke", args=[token.public_id])).status_code == 302
    assert called().status_code == 401
    assert [event.verb for event in AuditEvent.objects.filter(target_type="accounts.apitoken").order_by("pk")] == [
        "token.created", "token.changed", "token.revoked",
    ]  # fmt: skip


def test_another_team_s_token_and_webhook_are_not_there(admin_page: Client, stranger: Client, world: World) -> None:
    others = Team.objects.get(name="others")
    token, _ = token_create(team=others, name="theirs", scopes=["score"])
    assert admin_page.get(reverse("web:token_detail", args=[token.public_id])).status_code == 404
    assert admin_page.post(reverse("web:token_revoke", args=[token.public_id])).status_code == 404
    assert "theirs" not in text_of(admin_page.get(reverse("web:token_list")))
    webhook = Webhook.objects.create(team=world.job.team, url="https://example.org/hook", pepper_id=1)
    delivery = webhook_test(webhook=webhook)
    assert stranger.get(reverse("web:webhook_detail", args=[webhook.pk])).status_code == 404
    assert stranger.post(reverse("web:delivery_replay", args=[webhook.pk, delivery.pk])).status_code == 404
    errand = Errand.objects.create(team=others, kind="inspection", given={"source": "/x"})
    assert admin_page.get(reverse("web:model_inspection", args=[errand.pk])).status_code == 404


def test_the_audit_log_is_filtered_by_who_what_and_when(admin_page: Client, world: World) -> None:
    url = reverse("web:audit_log")
    everything = text_of(admin_page.get(url))
    assert "registered model late" in everything and "submitted job" in everything
    found = text_of(admin_page.get(url, {"verb": "model.registered", "actor": "analyst"}))
    assert "registered model late" in found and "submitted job" not in found
    assert "matches this filter" in text_of(admin_page.get(url, {"at_or_after": "2999-01-01T00:00:00Z"}))


@pytest.fixture
def used(world: World, team: Team) -> None:
    token, _ = token_create(team=team, name="=cmd", scopes=["score"])
    others = Team.objects.create(name="neighbours")
    day = datetime.now(UTC).date()
    for holder, who, documents in ((team, token, 700), (team, None, 42), (others, None, 9000)):
        Usage.objects.create(
            day=day, team=holder, token=who, model_name="late", source="requests", requests=3, documents=documents,
            compute_seconds=2.0,
        )  # fmt: skip


def test_usage_is_of_the_own_team_and_of_all_for_who_runs_it(
    admin_page: Client, browser_client: Client, used: None
) -> None:
    url = reverse("web:usage")
    (choice, *_) = browser_client.get(url, {"by": "token"}).context["exports"]
    own, whole = text_of(browser_client.get(url)), text_of(admin_page.get(url, {"by": "team"}))
    assert "742" in own and "neighbours" not in own and "9,000" not in own
    assert "neighbours" in whole and "9,000" in whole and "9,742" in whole
    assert browser_client.get(url, {"by": "team"}).status_code == 422
    response: Any = browser_client.get(choice.url)
    exported = b"".join(response.streaming_content).decode()
    assert '"day","token","requests"' in exported and "'=cmd" in exported and ",700," in exported
    assert browser_client.get(url, {"first": "2020-01-01", "last": "2026-01-01"}).status_code == 422


def test_a_webhook_is_made_tested_and_sent_again(admin_page: Client, analyst: User, world: World) -> None:
    refused = admin_page.post(reverse("web:webhook_new"), {"url": "http://127.0.0.1/", "events": ["job.completed"]})
    assert refused.status_code == 422 and not Webhook.objects.exists()
    webhook, secret = webhook_create(principal=factories.principal(analyst), url="https://example.org/hook")
    detail = reverse("web:webhook_detail", args=[webhook.pk])
    assert "on its way" in text_of(admin_page.post(reverse("web:webhook_test", args=[webhook.pk]), follow=True))
    WebhookDelivery.objects.update(state=DeliveryState.FAILED, error="The receiver answered 500.")
    page = admin_page.get(detail)
    assert "The receiver answered 500." in text_of(page) and secret not in text_of(page)
    assert_clean(page)
    delivery = WebhookDelivery.objects.get()
    admin_page.post(reverse("web:delivery_replay", args=[webhook.pk, delivery.pk]))
    delivery.refresh_from_db()
    assert delivery.state == DeliveryState.PENDING
    changed = admin_page.post(reverse("web:webhook_secret", args=[webhook.pk]))
    assert "whsec_" in text_of(changed) and secret not in text_of(changed) and changed["Cache-Control"] == "no-store"


def test_roles_are_changed_and_nobody_locks_the_team_out(admin_page: Client, analyst: User, team: Team) -> None:
    boss = User.objects.create_user("boss")
    own = Membership.objects.create(user=boss, team=team, role=Role.ADMIN)
    page, member = Client(), Membership.objects.get(user=analyst)
    page.force_login(boss)
    page.post(reverse("web:member_role", args=[member.pk]), {"role": "client"})
    member.refresh_from_db()
    assert member.role == Role.CLIENT and AuditEvent.objects.filter(verb="member.changed").exists()
    assert "your own membership" in text_of(page.post(reverse("web:member_remove", args=[own.pk]), follow=True))
    page.post(reverse("web:member_remove", args=[member.pk]))
    assert list(Membership.objects.all()) == [own]


def test_settings_are_shown_with_their_source_and_secrets_are_not(admin_page: Client, settings: Any) -> None:
    page = text_of(admin_page.get(reverse("web:settings")))
    assert "MAX_DOCUMENTS_PER_REQUEST" in page and "1000" in page and "default" in page
    assert "REMOTE_CREDENTIALS" in page and "not shown" in page and "DATABASE_URL_FILE" not in page
    assert settings.SECRET_KEY not in page and settings.DATABASE_URL not in page


def test_the_queue_tells_what_waits(admin_page: Client, analyst: User, world: World, settings: Any) -> None:
    factories.submitted(analyst, world.model, world.documents, world.queries, name="Waiting one")
    page = admin_page.get(reverse("web:queue"))
    assert "Waiting one" in text_of(page) and "Jobs queued" in text_of(page)
    settings.SNAPSHOT_SECONDS = 3600.0  # what is read of all models is read for all tabs at once
    before = count_queries(admin_page, reverse("web:queue"))
    for number in range(3):
        factories.submitted(analyst, world.model, world.documents, world.queries, name=f"Waiting {number}")
    assert count_queries(admin_page, reverse("web:queue")) == before <= 8


def test_jobs_are_steered_from_the_queue(admin_page: Client, analyst: User, world: World, stranger: Client) -> None:
    job = factories.submitted(analyst, world.model, world.documents, world.queries, name="Waiting one")
    queue = reverse("web:queue")

    def press(move: str) -> str:
        address = reverse(f"web:job_{move}", args=[job.pk])
        assert f'action="{address}"' in text_of(admin_page.get(queue))
        assert admin_page.get(address).status_code == 405 and stranger.post(address).status_code == 404
        answer = admin_page.post(address, {"back": "queue"})
        assert answer["Location"] == f"{queue}#{move}-{job.pk}"
        job.refresh_from_db()
        return text_of(admin_page.get(queue))

    assert "has priority 10 now" in press("raise") and job.priority == 10
    Job.objects.filter(pk=job.pk).update(priority=95)
    assert "has priority 100 now" in press("raise") and "has priority 90 now" in press("lower")
    assert "is being cancelled" in press("cancel") and "Raise the priority" not in text_of(admin_page.get(queue))
    other = factories.submitted(analyst, world.model, world.documents, world.queries, name="Another")
    admin_page.post(reverse("web:job_pause", args=[other.pk]), {"back": "queue"})
    other.refresh_from_db()
    assert other.state == JobState.PAUSED
    Job.objects.filter(pk=other.pk).update(state=JobState.QUEUED, team=Team.objects.create(name="third"))
    page = text_of(admin_page.get(queue))  # of all teams; a job of another team has its buttons there
    assert "Another" in page and "Raise the priority" not in page


def test_an_inspection_fills_the_form_in_and_registers(admin_page: Client, world: World) -> None:
    assert "invalid" not in text_of(admin_page.get(reverse("web:model_new")))
    bad = admin_page.post(reverse("web:model_inspect"), {"source": "hub:nobody/../x@main"})
    assert bad.status_code == 422 and "give hub:" in text_of(bad)
    asked = admin_page.post(reverse("web:model_inspect"), {"source": "package:some/colbert"})
    errand = errands.errand_claim(worker=world.worker)
    assert errand is not None and asked["Location"] == reverse("web:model_inspection", args=[errand.pk])
    url = asked["Location"]
    assert "worker-1 looks at" in text_of(admin_page.get(url)) and f'hx-get="{url}"' in text_of(admin_page.get(url))
    found = {
        "kind": "late-interaction", "source": "package:some/colbert", "gguf_file": "", "name": "ColBERT v2",
        "pooling": "every token", "scale": "maxsim", "max_length": 512, "weight_bytes": 1 << 20, "dtypes": ["F32"],
        "estimate": {"device": "cpu", "dtype": "float32", "parts": [{"name": "weights", "bytes": 3 << 20}]},
    }  # fmt: skip
    errands.errand_finish(errand=errand, worker=world.worker, found=found)
    assert admin_page.get(url, headers={"HX-Request": "true"}).status_code == 286
    page = admin_page.get(url)
    assert "every token" in text_of(page) and "3.0" in text_of(page) and 'value="colbert-v2"' in text_of(page)
    assert_clean(page)
    fields = {
        "name": "colbert-v2", "kind": "late-interaction", "source": "package:some/colbert", "device": "auto",
        "dtype": "auto", "self_test_mode": "full", "engine": "local", "gpu_maxsim": "on",
    }  # fmt: skip
    refused = admin_page.post(reverse("web:model_new"), {**fields, "device": "tpu"})
    assert refused.status_code == 422 and "give auto, cpu, cuda or cuda:N" in text_of(refused)
    assert admin_page.post(reverse("web:model_new"), fields).status_code == 302
    assert ScoringModel.objects.get(name="colbert-v2").created_by is not None


def test_what_nobody_can_do_fails_with_a_sentence(admin_page: Client, world: World) -> None:
    no_hub = admin_page.post(reverse("web:model_inspect"), {"source": "hub:some/model@main"})
    assert no_hub.status_code == 422 and "MODEL_HUB_URL is not set here" in text_of(no_hub)
    benchmark = reverse("web:model_benchmark", args=["late"])
    assert "Documents: No number stands here" in text_of(admin_page.post(benchmark, {"words": 5}, follow=True))
    admin_page.post(reverse("web:model_benchmark", args=["late"]), {"documents": 8, "words": 5, "rounds": 1})
    errand = errands.errand_claim(worker=world.worker)
    assert errand is not None and errand.model == world.model
    factories.live_worker("another")
    assert errands.errands_reclaim() == 0
    world.worker.boot_id = errand.pk
    world.worker.save(update_fields=["boot_id"])
    assert errands.errands_reclaim() == 1
    errand.refresh_from_db()
    assert errand.state == ErrandState.FAILED and "ended meanwhile" in errand.error
    assert "ended meanwhile" in text_of(admin_page.get(reverse("web:model_detail", args=["late"])))


def test_a_setting_that_decides_the_scores_asks_for_a_new_self_test(admin_page: Client, world: World) -> None:
    url = reverse("web:model_settings", args=["late"])
    fields = {"dtype": "auto", "device": "auto", "max_length": "", "is_default": "on"}
    assert "are saved" in text_of(admin_page.post(url, fields, follow=True))
    world.model.refresh_from_db()
    assert world.model.is_default and world.model.state == "available"
    page = text_of(admin_page.post(url, {**fields, "max_length": "128"}, follow=True))
    assert "waits for a new self-test" in page


def test_samples_become_charts(admin_page: Client, world: World) -> None:
    samples_take()
    samples_take()
    assert WorkerSample.objects.filter(worker=world.worker, sequences=1200, claimed_bytes=3 << 30).count() == 2
    assert ModelSample.objects.filter(model=world.model, replicas=1, claimed_bytes=3 << 30).count() == 2
    for url in (
        reverse("web:worker_detail", args=[world.worker.pk]),
        reverse("web:model_detail", args=["late"]),
    ):
        page = admin_page.get(url)
        assert "<polyline points=" in page.content.decode() and "at most 3.0" in text_of(page)
        assert_clean(page)


def test_the_list_has_the_switch_and_says_what_is_in_force(
    admin_page: Client, browser_client: Client, world: World
) -> None:
    page = text_of(admin_page.get(reverse("web:model_list")))
    assert 'role="switch"' in page and "cpu on 1" in page
    assert 'role="switch"' not in text_of(browser_client.get(reverse("web:model_list")))
    action = reverse("web:model_action", args=["late", "gpu-maxsim"])
    after = admin_page.post(action, {"back": "list"}, follow=True)
    assert after.redirect_chain[-1][0] == reverse("web:model_list") and "1 still to follow" in text_of(after)


def test_many_tabs_read_one_snapshot(
    admin_page: Client, world: World, settings: Any, django_assert_max_num_queries: Callable[..., Any]
) -> None:
    admin_page.get(reverse("web:worker_list"))
    settings.SNAPSHOT_SECONDS = 3600.0
    with django_assert_max_num_queries(4):  # of the session, its person and their team
        assert "worker-1" in text_of(admin_page.get(reverse("web:worker_list")))

"""Webhooks against a real receiver: what arrives, what is tried again, what is given up."""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
import subprocess
import threading
import time
from collections.abc import Iterator
from datetime import timedelta
from typing import Any
from urllib.parse import urlsplit, urlunsplit

import pytest
from django.conf import settings as given_settings
from django.db import connection
from django.db.models.functions import Now
from pytest_django import Settings
from rest_framework.test import APIClient

from accounts.services import principal_system
from assay.settings import env
from assay.supervisor import manage_command
from audit.models import AuditEvent
from scoring.models import Job, ScoringModel, Transition, WebhookDelivery
from scoring.services.finalize import jobs_advance
from scoring.services.job_control import job_cancel
from scoring.services.webhook_deliveries import DELAYS, deliveries_claim, deliveries_purge, delivery_send
from scoring.services.webhooks import MAX_WEBHOOKS
from scoring.states import DeliveryState, JobState
from tests.integration.conftest import MakeJob
from tests.integration.rig import wait_for
from tests.security.receiver import Received, Receiver, receiving, reply
from workers.webhooks import WebhookSender


@pytest.fixture
def receiver(settings: Settings) -> Iterator[Receiver]:
    settings.OUTGOING_ALLOWED_HOSTS = ["127.0.0.1"]
    with receiving() as running:
        yield running


@pytest.fixture
def hook(transactional_db: None, receiver: Receiver, api: APIClient) -> dict[str, Any]:
    return made(api, receiver)


def made(api: APIClient, receiver: Receiver, **fields: Any) -> dict[str, Any]:
    response = api.post("/api/v1/webhooks", {"url": f"http://127.0.0.1:{receiver.port}/hook?key=1", **fields})
    assert response.status_code == 201, response.content
    body: dict[str, Any] = response.json()
    return body


def send_due() -> list[WebhookDelivery]:
    sent = deliveries_claim(limit=8)
    for delivery in sent:
        delivery_send(delivery)
    return sent


def make_due() -> None:
    WebhookDelivery.objects.filter(state=DeliveryState.PENDING).update(next_try_at=Now(), claimed_until=None)


def shown(api: APIClient, hook: dict[str, Any]) -> dict[str, Any]:
    body: dict[str, Any] = api.get(f"/api/v1/webhooks/{hook['id']}").json()
    return body


def verified(received: Received, secret: str) -> dict[str, Any]:
    """As the Standard Webhooks specification says."""
    key = base64.b64decode(secret.removeprefix("whsec_"))
    signed = f"{received.headers['webhook-id']}.{received.headers['webhook-timestamp']}.".encode() + received.body
    expected = "v1," + base64.b64encode(hmac.new(key, signed, hashlib.sha256).digest()).decode()
    assert hmac.compare_digest(received.headers["webhook-signature"], expected)
    assert abs(int(received.headers["webhook-timestamp"]) - time.time()) < 300
    body: dict[str, Any] = json.loads(received.body)
    return body


def ended(make_job: MakeJob, model: ScoringModel) -> Job:
    """A job that was cancelled before anything was scored."""
    job = make_job(model, chunks=1)
    job_cancel(principal=principal_system(), job=job)
    assert jobs_advance() == 1
    job.refresh_from_db()
    return job


def test_the_end_of_a_job_arrives_signed(
    hook: dict[str, Any], receiver: Receiver, make_job: MakeJob, model: ScoringModel, api: APIClient
) -> None:
    job = ended(make_job, model)
    assert job.state == JobState.CANCELLED
    (delivery,) = send_due()
    (received,) = receiver.requests
    body = verified(received, hook["secret"])
    assert received.path == "/hook?key=1" and received.headers["webhook-id"] == str(delivery.pk)
    assert (body["type"], body["data"]["job"], body["data"]["state"]) == ("job.cancelled", str(job.pk), "cancelled")
    assert api.get(body["data"]["links"]["job"]).status_code == 200
    assert job.name not in received.body.decode()
    assert api.get(f"/api/v1/webhook-deliveries/{delivery.pk}").json()["state"] == "delivered"
    assert shown(api, hook)["succeeded_at"] and send_due() == []


def test_only_what_was_asked_for_and_only_the_teams(
    hook: dict[str, Any], receiver: Receiver, make_job: MakeJob, model: ScoringModel, api: APIClient
) -> None:
    made(api, receiver, events=["job.completed"])
    off = made(api, receiver)
    assert api.patch(f"/api/v1/webhooks/{off['id']}", {"enabled": False}).status_code == 200
    ended(make_job, model)
    assert [str(each.webhook_id) for each in WebhookDelivery.objects.all()] == [hook["id"]]


def test_an_end_that_is_rolled_back_tells_nobody(hook: dict[str, Any], make_job: MakeJob, model: ScoringModel) -> None:
    """And an end whose message cannot be written does not happen."""
    job = make_job(model, chunks=1)
    job_cancel(principal=principal_system(), job=job)
    with connection.cursor() as cursor:
        cursor.execute("ALTER TABLE scoring_webhookdelivery ADD CONSTRAINT refused CHECK (event = '')")
    try:
        with pytest.raises(Exception, match="refused"):
            jobs_advance()
    finally:
        with connection.cursor() as cursor:
            cursor.execute("ALTER TABLE scoring_webhookdelivery DROP CONSTRAINT refused")
    job.refresh_from_db()
    assert job.state == JobState.CANCELLING
    assert jobs_advance() == 1 and WebhookDelivery.objects.count() == 1


def test_a_failure_is_tried_again_later_with_the_same_id(
    hook: dict[str, Any], receiver: Receiver, make_job: MakeJob, model: ScoringModel
) -> None:
    ended(make_job, model)
    receiver.reply = reply(500)
    (delivery,) = send_due()
    delivery.refresh_from_db()
    assert (delivery.state, delivery.status_code, delivery.attempts) == (DeliveryState.PENDING, 500, 1)
    assert send_due() == []  # not at once
    receiver.reply = reply(503, Retry_After="1000")
    make_due()
    send_due()
    late = WebhookDelivery.objects.filter(next_try_at__gt=Now() + timedelta(seconds=900))
    assert late.exists()
    receiver.reply = reply(204)
    make_due()
    send_due()
    delivery.refresh_from_db()
    assert (delivery.state, delivery.attempts, delivery.error) == (DeliveryState.DELIVERED, 3, "")
    assert {received.headers["webhook-id"] for received in receiver.requests} == {str(delivery.pk)}
    assert timedelta(hours=20) < sum(DELAYS, timedelta()) <= timedelta(days=1)


def test_after_a_day_of_failures_the_webhook_is_disabled_and_says_why(
    hook: dict[str, Any], receiver: Receiver, make_job: MakeJob, model: ScoringModel, api: APIClient
) -> None:
    ended(make_job, model)
    receiver.reply = reply(500)
    for _ in range(len(DELAYS) + 1):
        make_due()
        assert len(send_due()) == 1
    delivery = WebhookDelivery.objects.get()
    assert delivery.state == DeliveryState.FAILED and delivery.attempts == len(DELAYS) + 1
    now = shown(api, hook)
    assert (now["enabled"], now["disabled_reason"]) == (False, "The receiver answered 500.")
    assert AuditEvent.objects.filter(verb="webhook.disabled").count() == 1
    # Repaired: enabled, and what was given up is asked for once more.
    receiver.reply = reply(200)
    assert api.patch(f"/api/v1/webhooks/{hook['id']}", {"enabled": True}).json()["disabled_reason"] == ""
    again = api.post(f"/api/v1/webhook-deliveries/{delivery.pk}/replay").json()
    assert (again["state"], again["attempts"]) == ("pending", 0)
    assert [each.pk for each in send_due()] == [delivery.pk]
    assert api.get("/api/v1/webhook-deliveries", {"state": "delivered"}).json()["results"][0]["id"] == again["id"]


def test_a_receiver_that_is_gone_is_not_asked_again(
    hook: dict[str, Any], receiver: Receiver, make_job: MakeJob, model: ScoringModel, api: APIClient
) -> None:
    ended(make_job, model)
    receiver.reply = reply(410)
    send_due()
    assert WebhookDelivery.objects.get().state == DeliveryState.FAILED and not shown(api, hook)["enabled"]


def test_test_messages_secrets_and_redirects(hook: dict[str, Any], receiver: Receiver, api: APIClient) -> None:
    path = f"/api/v1/webhooks/{hook['id']}"
    assert api.post(f"{path}/test").status_code == 201
    send_due()
    assert verified(receiver.requests[0], hook["secret"])["type"] == "webhook.test"
    changed = api.post(f"{path}/change-secret").json()["secret"]
    assert changed != hook["secret"] and "secret" not in api.get(path).json()
    assert api.post(f"{path}/test").status_code == 201
    send_due()
    verified(receiver.requests[1], changed)
    with receiving() as elsewhere:
        receiver.reply = reply(302, Location=f"http://127.0.0.1:{elsewhere.port}/")
        api.post(f"{path}/test")
        send_due()
        assert elsewhere.requests == []
    assert "not followed" in api.get("/api/v1/webhook-deliveries", {"state": "pending"}).json()["results"][0]["error"]
    # No secret is stored anywhere.
    with connection.cursor() as cursor:
        cursor.execute("SELECT string_agg(w::text, ' ') FROM scoring_webhook w")
        assert changed.removeprefix("whsec_") not in cursor.fetchone()[0]


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"url": "http://169.254.169.254/latest"}, "url"), ({"url": "https://10.0.0.1/"}, "url"),
        ({"url": "http://example.org/"}, "url"), ({"url": "https://a:b@example.org/"}, "url"),
        ({"url": "nonsense"}, "url"), ({"events": []}, "events"), ({"events": ["job.exploded"]}, "events"),
        ({"secret": "mine"}, "secret"),
    ],
)  # fmt: skip
def test_what_cannot_be_is_refused(db: None, api: APIClient, fields: dict[str, Any], param: str) -> None:
    response = api.post("/api/v1/webhooks", {"url": "https://hooks.example.org/", **fields})
    assert response.status_code == 422 and response.json()["error"]["param"] == param


def test_a_team_has_only_so_many(db: None, api: APIClient) -> None:
    answers = [api.post("/api/v1/webhooks", {"url": "https://hooks.example.org/"}) for _ in range(MAX_WEBHOOKS + 1)]
    assert [answer.status_code for answer in answers] == [201] * MAX_WEBHOOKS + [409]


def test_a_slow_receiver_holds_up_only_itself(hook: dict[str, Any], receiver: Receiver, api: APIClient) -> None:
    """The slow one has more messages than there are threads; the quick one's goes out at once all the same."""
    answered = threading.Event()
    receiver.reply = lambda handler, received: (answered.wait(60), reply(200)(handler, received))[1]
    for _ in range(20):
        api.post(f"/api/v1/webhooks/{hook['id']}/test")
    sender = WebhookSender()
    sender.start()
    try:
        wait_for(lambda: receiver.requests, what="the first message")
        with receiving() as quick:
            other = made(api, quick)
            api.post(f"/api/v1/webhooks/{other['id']}/test")
            wait_for(lambda: shown(api, other)["succeeded_at"], what="the quick one's message")
        assert len(receiver.requests) == 1
    finally:
        answered.set()
        sender.stop(timeout=30)


def test_killed_while_sending_it_is_sent_again_under_the_same_id(
    hook: dict[str, Any], receiver: Receiver, api: APIClient
) -> None:
    """A reconciler that is killed while the receiver has the message and has not answered."""
    release = threading.Event()
    receiver.reply = lambda handler, received: (release.wait(60), reply(200)(handler, received))[1]
    api.post(f"/api/v1/webhooks/{hook['id']}/test")
    process = subprocess.Popen(manage_command("reconciler"), env=_environment())
    try:
        wait_for(lambda: receiver.requests, seconds=60, what="the message")
    finally:
        process.kill()
        process.wait(30)
        release.set()
    delivery = WebhookDelivery.objects.get()
    assert delivery.state == DeliveryState.PENDING and delivery.claimed_until is not None
    assert send_due() == []  # it might still be on its way
    WebhookDelivery.objects.update(claimed_until=Now() - timedelta(seconds=1))  # a minute later
    send_due()
    delivery.refresh_from_db()
    assert delivery.state == DeliveryState.DELIVERED
    assert [each.headers["webhook-id"] for each in receiver.requests] == [str(delivery.pk)] * 2
    assert receiver.requests[0].body == receiver.requests[1].body


def test_old_deliveries_go_with_their_log(hook: dict[str, Any], api: APIClient, settings: Settings) -> None:
    api.post(f"/api/v1/webhooks/{hook['id']}/test")
    send_due()
    log = Transition.objects.filter(entity="webhookdelivery")
    assert log.count() == 1 and deliveries_purge() == 0
    WebhookDelivery.objects.update(created_at=Now() - timedelta(days=settings.WEBHOOK_KEEP_DAYS, seconds=1))
    assert deliveries_purge() == 1 and not log.exists()


def _environment() -> dict[str, str]:
    database = str(connection.settings_dict["NAME"])
    peppers = ",".join(f"{number}:{pepper}" for number, pepper in given_settings.TOKEN_PEPPERS.items())
    return env.for_child(
        {
            "DJANGO_SETTINGS_MODULE": "assay.settings.dev",
            "DATABASE_URL": urlunsplit(urlsplit(given_settings.DATABASE_URL)._replace(path=f"/{database}")),
            "REDIS_URL": given_settings.REDIS_URL,
            "DATA_DIR": str(given_settings.DATA_DIR),
            "TOKEN_PEPPERS": peppers,
            "OUTGOING_ALLOWED_HOSTS": "127.0.0.1",
        }
    )

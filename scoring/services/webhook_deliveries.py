"""Messages to webhooks: written with what they tell of, sent until they arrive or a day has passed.

A delivery is claimed for a while before it is sent. Whoever dies while sending leaves the claim behind, and when it has
ended the message is sent again under the same id: at least once, and the receiver can tell.
"""

from __future__ import annotations

import json
import logging
import random
import time
from datetime import timedelta
from http import HTTPStatus
from typing import Any, Final

from django.conf import settings
from django.db import transaction
from django.db.models import Exists, F, OuterRef, Q
from django.db.models.functions import Now
from django.utils import timezone

from assay.api.principal import Principal
from assay.outgoing import Answer, OutgoingError, outgoing
from audit.services import audit_record
from scoring.models import Job, Transition, Webhook, WebhookDelivery
from scoring.services.transitions import transition
from scoring.services.webhooks import webhook_signature
from scoring.states import DeliveryState

logger = logging.getLogger(__name__)

TEST_EVENT: Final = "webhook.test"
SENDER: Final = "webhooks"  # as the actor of a move
ATTEMPT_SECONDS: Final = 10.0  # for one request, all of it
CLAIM: Final = timedelta(seconds=60)  # longer than that, and than looking up a name may take
# Before the second, the third … attempt; together a day.
DELAYS: Final = tuple(
    timedelta(seconds=seconds) for seconds in (5, 30, 120, 600, 1800, 3600, 7200, 14_400, 21_600, 36_000)
)
LONGEST_WISH: Final = 3600  # seconds of Retry-After that are heeded
JITTER: Final = 0.1
PURGE_BATCH: Final = 5_000


def deliveries_create(*, job: Job) -> int:
    """Tell the team's webhooks that the job has ended. Call it in the transaction that ends it. Returns how many."""
    event = f"job.{job.state}"
    webhooks = Webhook.objects.for_team(job.team).filter(enabled=True, events__contains=[event])
    payload = _payload(event, job_data(job))
    rows = [WebhookDelivery(webhook=webhook, event=event, payload=payload) for webhook in webhooks]
    return len(WebhookDelivery.objects.bulk_create(rows))


def webhook_test(*, webhook: Webhook) -> WebhookDelivery:
    """A message that tells nothing, sent like any other."""
    payload = _payload(TEST_EVENT, {"webhook": str(webhook.pk)})
    return WebhookDelivery.objects.create(webhook=webhook, event=TEST_EVENT, payload=payload)


def delivery_replay(*, principal: Principal, delivery: WebhookDelivery) -> WebhookDelivery:
    """Send it again from the first attempt on, whatever became of it; the same id and content."""
    fresh: dict[str, Any] = {"attempts": 0, "next_try_at": Now(), "finished_at": None}
    with transaction.atomic():
        if delivery.state == DeliveryState.PENDING:
            WebhookDelivery.objects.filter(pk=delivery.pk, state=DeliveryState.PENDING).update(**fresh)
        else:
            transition(delivery, DeliveryState.PENDING, actor=principal.label, reason="replayed", **fresh)
        detail = {"delivery": str(delivery.pk)}
        audit_record(verb="webhook.replayed", principal=principal, target=delivery.webhook, detail=detail)
    delivery.refresh_from_db()
    return delivery


def deliveries_claim(*, limit: int) -> list[WebhookDelivery]:
    """Up to ``limit`` that are due, no two of one webhook: a slow receiver holds up nobody but itself."""
    claimed = Q(claimed_until__gt=Now())
    pending = WebhookDelivery.objects.filter(state=DeliveryState.PENDING, webhook__enabled=True)
    busy = WebhookDelivery.objects.filter(claimed, webhook=OuterRef("webhook"), state=DeliveryState.PENDING)
    due = pending.filter(~Exists(busy), next_try_at__lte=Now())
    first = due.order_by("webhook_id", "next_try_at").distinct("webhook_id").values_list("next_try_at", "pk")
    chosen = [pk for _, pk in sorted(first)[:limit]]
    with transaction.atomic():
        free = pending.filter(pk__in=chosen).exclude(claimed).select_for_update(skip_locked=True, of=("self",))
        rows = list(free.select_related("webhook"))
        WebhookDelivery.objects.filter(pk__in=[row.pk for row in rows]).update(
            claimed_until=Now() + CLAIM, attempts=F("attempts") + 1
        )
    for row in rows:
        row.attempts += 1
    return rows


def delivery_send(delivery: WebhookDelivery) -> None:
    """One attempt of a claimed delivery, and what follows from it."""
    webhook = delivery.webhook
    answer: Answer | None = None
    try:
        answer = _post(webhook, delivery)
        error = "" if 200 <= answer.status < 300 else f"The receiver answered {answer.status}."
    except OutgoingError as problem:
        error = str(problem)
    except KeyError:
        error = "The key that the secret was derived with was retired; change the webhook's secret."
    told: dict[str, Any] = {"status_code": answer.status if answer else None, "error": error, "claimed_until": None}
    gone = answer is not None and answer.status == HTTPStatus.GONE
    if not error:
        if transition(delivery, DeliveryState.DELIVERED, actor=SENDER, finished_at=Now(), **told):
            Webhook.objects.filter(pk=webhook.pk).update(succeeded_at=Now())
    elif gone or delivery.attempts > len(DELAYS):
        _give_up(delivery, "The receiver answered 410: it is gone." if gone else error, told)
    else:
        wait = max(_delay(delivery.attempts), _wish(answer))
        WebhookDelivery.objects.filter(pk=delivery.pk, state=DeliveryState.PENDING).update(
            next_try_at=Now() + wait, **told
        )
    logger.info("webhook delivery %s, attempt %d: %s", delivery.pk, delivery.attempts, error or "arrived")


def deliveries_purge() -> int:
    """Delete what is older than WEBHOOK_KEEP_DAYS, with its log. Returns how many deliveries that were."""
    old = WebhookDelivery.objects.filter(created_at__lt=Now() - timedelta(days=settings.WEBHOOK_KEEP_DAYS))
    purged = 0
    while part := list(old.order_by("created_at").values_list("pk", flat=True)[:PURGE_BATCH]):
        log = Transition.objects.filter(entity=WebhookDelivery._meta.model_name, entity_id__in=map(str, part))
        log.delete()
        WebhookDelivery.objects.filter(pk__in=part).delete()
        purged += len(part)
    return purged


def job_data(job: Job) -> dict[str, Any]:
    """What a receiver is told of an ended job: ids, counts and where to ask for more, none of its texts or names."""
    figures = job.statistics or {}
    return {
        "job": str(job.pk),
        "state": job.state,
        "end_reason": job.end_reason,
        "attempt": job.attempt,
        "pair_count": job.pair_count,
        "pairs": figures.get("pairs", {}),
        "not_scored": figures.get("not_scored", 0),
        "failed_chunks": figures.get("failed_chunks", 0),
        "links": {"job": f"/api/v1/jobs/{job.pk}", "results": f"/api/v1/jobs/{job.pk}/results"},
    }


def _payload(event: str, data: dict[str, Any]) -> dict[str, Any]:
    return {"type": event, "timestamp": timezone.now().isoformat(timespec="milliseconds"), "data": data}


def _post(webhook: Webhook, delivery: WebhookDelivery) -> Answer:
    body = json.dumps(delivery.payload, separators=(",", ":")).encode()
    message_id, timestamp = str(delivery.pk), int(time.time())
    headers = {
        "Content-Type": "application/json",
        "User-Agent": "assay-webhooks",
        "webhook-id": message_id,
        "webhook-timestamp": str(timestamp),
        "webhook-signature": webhook_signature(webhook, message_id=message_id, timestamp=timestamp, body=body),
    }
    return outgoing().request(
        "POST", webhook.url, content=body, headers=headers, timeout=ATTEMPT_SECONDS, max_bytes=None
    )


def _give_up(delivery: WebhookDelivery, reason: str, told: dict[str, Any]) -> None:
    """The webhook goes with it, unless another message reached it meanwhile: else its team would not come to know."""
    with transaction.atomic():
        if not transition(delivery, DeliveryState.FAILED, actor=SENDER, finished_at=Now(), **told):
            return
        silent = Q(succeeded_at=None) | Q(succeeded_at__lt=delivery.created_at)
        webhook = delivery.webhook
        if delivery.event == TEST_EVENT:
            return
        if Webhook.objects.filter(silent, pk=webhook.pk, enabled=True).update(enabled=False, disabled_reason=reason):
            audit_record(verb="webhook.disabled", team=webhook.team, target=webhook, detail={"reason": reason})


def _delay(attempts: int) -> timedelta:
    return DELAYS[attempts - 1] * random.uniform(1 - JITTER, 1 + JITTER)


def _wish(answer: Answer | None) -> timedelta:
    """When the receiver wants to be asked again, if it said so."""
    wish = answer.headers.get("retry-after", "") if answer else ""
    return timedelta(seconds=min(int(wish), LONGEST_WISH) if wish.isascii() and wish.isdecimal() else 0)

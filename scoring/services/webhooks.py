"""Webhooks as rows, and what they sign with. Secrets are derived, so that no table and no backup holds one."""

from __future__ import annotations

import base64
import hashlib
import hmac
from collections.abc import Sequence
from typing import Any, Final

from django.conf import settings
from django.db import transaction

from assay.api.principal import Principal
from assay.errors import AssayError
from assay.outgoing import OutgoingError, outgoing, parse
from audit.services import audit_record
from scoring.models import Webhook, WebhookEvent

MAX_WEBHOOKS: Final = 20  # of a team
SECRET_PREFIX: Final = "whsec_"


def webhook_create(
    *, principal: Principal, url: str, events: Sequence[str] | None = None, description: str = ""
) -> tuple[Webhook, str]:
    """Returns the webhook and its secret, which is not shown again. ``events`` None: every end of a job.

    Raises AssayError 422 ``invalid_webhook`` naming the field, 409 ``too_many_webhooks``.
    """
    webhook = Webhook(
        team=principal.team,
        created_by=principal.user,
        url=_checked_url(url),
        events=_checked_events(WebhookEvent.values if events is None else events),
        description=description,
        pepper_id=max(settings.TOKEN_PEPPERS),
    )
    with transaction.atomic():
        # Two requests at once wait for each other, or both would find room for one more.
        type(principal.team)._default_manager.select_for_update().get(pk=principal.team.pk)
        if Webhook.objects.for_team(principal.team).count() >= MAX_WEBHOOKS:
            message = f"Your team has {MAX_WEBHOOKS} webhooks, which is as many as may be; delete one first."
            raise AssayError("too_many_webhooks", message, status=409)
        webhook.save(force_insert=True)
        detail = {"host": parse(url).host, "events": webhook.events}
        audit_record(verb="webhook.created", principal=principal, target=webhook, detail=detail)
    return webhook, webhook_secret(webhook)


def webhook_change(*, principal: Principal, webhook: Webhook, **fields: Any) -> Webhook:
    """Set ``url``, ``events``, ``description`` or ``enabled``. Enabling it again sends what still waits.

    Raises AssayError 422 ``invalid_webhook`` naming the field.
    """
    if "url" in fields:
        fields["url"] = _checked_url(fields["url"])
    if "events" in fields:
        fields["events"] = _checked_events(fields["events"])
    changed = [name for name, value in fields.items() if getattr(webhook, name) != value]
    if not changed:
        return webhook
    for name in changed:
        setattr(webhook, name, fields[name])
    webhook.disabled_reason = ""
    with transaction.atomic():
        webhook.save(update_fields=[*changed, "disabled_reason"])
        audit_record(verb="webhook.changed", principal=principal, target=webhook, detail={"changed": changed})
    return webhook


def webhook_delete(*, principal: Principal, webhook: Webhook) -> None:
    """With its deliveries, also those that still wait."""
    with transaction.atomic():
        audit_record(verb="webhook.deleted", principal=principal, target=webhook)
        webhook.delete()


def webhook_change_secret(*, principal: Principal, webhook: Webhook) -> str:
    """A new secret, shown once. What is sent from now on is signed with it alone."""
    webhook.secret_generation += 1
    webhook.pepper_id = max(settings.TOKEN_PEPPERS)
    with transaction.atomic():
        webhook.save(update_fields=["secret_generation", "pepper_id"])
        audit_record(verb="webhook.secret_changed", principal=principal, target=webhook)
    return webhook_secret(webhook)


def webhook_secret(webhook: Webhook) -> str:
    """In the form of the Standard Webhooks specification. Raises KeyError when the key it came from was retired."""
    return SECRET_PREFIX + base64.b64encode(_key(webhook)).decode()


def webhook_signature(webhook: Webhook, *, message_id: str, timestamp: int, body: bytes) -> str:
    """The value of the header ``webhook-signature``."""
    signed = f"{message_id}.{timestamp}.".encode() + body
    return "v1," + base64.b64encode(hmac.new(_key(webhook), signed, hashlib.sha256).digest()).decode()


def _key(webhook: Webhook) -> bytes:
    pepper = settings.TOKEN_PEPPERS[webhook.pepper_id].encode()
    return hmac.new(pepper, f"webhook:{webhook.pk}:{webhook.secret_generation}".encode(), hashlib.sha256).digest()


def _checked_url(url: str) -> str:
    try:
        outgoing().check(url)
    except OutgoingError as error:
        raise AssayError("invalid_webhook", str(error), status=422, param="url") from error
    return url


def _checked_events(events: Sequence[str]) -> list[str]:
    known = ", ".join(WebhookEvent.values)
    if not events or (unknown := [event for event in events if event not in WebhookEvent.values]):
        given = ", ".join(map(repr, unknown)) if events else "none"
        message = f"'events' holds {given}; give some of {known}, or leave it out for all of them."
        raise AssayError("invalid_webhook", message, status=422, param="events")
    return sorted(set(events))

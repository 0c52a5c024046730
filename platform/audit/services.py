"""Write audit events in a closed vocabulary."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import structlog
from django.db import models, transaction

from audit.models import AuditEvent

if TYPE_CHECKING:
    from django.contrib.auth.models import User

    from accounts.models import Team
    from assay.api.principal import Principal

logger = logging.getLogger(__name__)

_sentences: dict[str, str] = {}


def register_verb(verb: str, sentence: str) -> None:
    """Add a verb; ``sentence`` may use ``{target}``. Call it from ``AppConfig.ready``."""
    if _sentences.setdefault(verb, sentence) != sentence:
        raise ValueError(f"The verb {verb!r} is registered already, with the sentence {_sentences[verb]!r}.")


def verbs_known() -> list[str]:
    return sorted(_sentences)


def audit_record(
    *,
    verb: str,
    target: models.Model | None = None,
    principal: Principal | None = None,
    actor: User | None = None,
    team: Team | None = None,
    detail: Mapping[str, Any] | None = None,
) -> AuditEvent:
    """Write one event in the caller's transaction: a deed that is rolled back leaves no record of success.

    Give the ``principal`` of a request, else the ``actor`` (None: the platform itself). ``detail`` must be plain JSON.
    """
    if verb not in _sentences:
        raise ValueError(f"The verb {verb!r} is not registered; the known ones are: {', '.join(sorted(_sentences))}.")
    if principal is not None:
        actor, team = principal.user, team or principal.team
        label = principal.label
    else:
        label = actor.get_username() if actor is not None else "system"
    event = AuditEvent.objects.create(
        verb=verb,
        actor_user=actor,
        actor_token=principal.token if principal else None,
        actor_label=label[:150],
        team=team,
        target_type=target._meta.label_lower if target is not None else "",
        target_id=str(target.pk) if target is not None else "",
        target_label=str(target)[:200] if target is not None else "",
        detail=dict(detail or {}),
        request_id=structlog.contextvars.get_contextvars().get("request_id", ""),
    )
    # From the request's id to the id of what it made: the log lines of a job's chunks carry the latter.
    transaction.on_commit(lambda: logger.info("%s %s %s", verb, event.target_type, event.target_id))
    return event


def sentence_of(event: AuditEvent) -> str:
    """The event in words; a verb of an app that is gone is shown as it stands."""
    return _sentences.get(event.verb, event.verb + " {target}").format(target=event.target_label or event.target_id)

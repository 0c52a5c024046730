"""The audit log: a closed vocabulary, written with the deed, never changed."""

from __future__ import annotations

import pytest
from django.contrib.auth.models import User
from django.db import DatabaseError, transaction
from django.test import Client
from django.urls import reverse

from accounts.models import Team
from assay.api.principal import Principal
from audit.models import AuditEvent
from audit.services import audit_record, register_verb

pytestmark = pytest.mark.django_db


@pytest.fixture
def event(team: Team, analyst: User) -> AuditEvent:
    return audit_record(verb="token.created", actor=analyst, target=team, detail={"n": 1})


@pytest.mark.parametrize("change", ["update", "delete"])
def test_the_database_refuses_changes(event: AuditEvent, change: str) -> None:
    events = AuditEvent.objects.filter(pk=event.pk)
    with pytest.raises(DatabaseError, match="append-only"), transaction.atomic():
        events.update(verb="x") if change == "update" else events._raw_delete(events.db)
    assert AuditEvent.objects.get(pk=event.pk).verb == "token.created"


def test_an_event_reads_as_a_sentence_and_names_the_request(client: Client, event: AuditEvent) -> None:
    assert str(event) == "analyst created API token default"
    assert (event.target_type, event.detail) == ("accounts.team", {"n": 1})


def test_a_principal_brings_user_team_and_token(team: Team, analyst: User) -> None:
    principal = Principal(user=analyst, team=team, token=None, scopes=frozenset())
    event = audit_record(verb="token.created", principal=principal)
    assert (event.actor_user, event.team, event.actor_label) == (analyst, team, "analyst")


def test_unknown_verbs_and_second_meanings_are_refused() -> None:
    with pytest.raises(ValueError, match="not registered"):
        audit_record(verb="nothing.happened")
    with pytest.raises(ValueError, match="registered already"):
        register_verb("token.created", "something else {target}")


def test_a_rolled_back_deed_leaves_no_record() -> None:
    with pytest.raises(RuntimeError), transaction.atomic():
        audit_record(verb="token.created")
        raise RuntimeError
    assert not AuditEvent.objects.exists()


def test_the_admin_only_reads(client: Client, admin: User, event: AuditEvent) -> None:
    client.force_login(admin)
    assert "created API token" in client.get(reverse("admin:audit_auditevent_changelist")).content.decode()
    assert client.get(reverse("admin:audit_auditevent_change", args=[event.pk])).status_code == 200
    assert client.post(reverse("admin:audit_auditevent_delete", args=[event.pk]), {"post": "yes"}).status_code == 403
    assert client.get(reverse("admin:audit_auditevent_add")).status_code == 403

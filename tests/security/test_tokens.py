"""API tokens: what is stored, what still works, what no longer does."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from datetime import timedelta

import pytest
from django.contrib.auth.models import User
from django.db import IntegrityError, connection, transaction
from django.test import Client
from django.urls import reverse
from django.utils import timezone
from pytest_django import Settings
from rest_framework.test import APIClient

from accounts.models import ApiToken, Membership, Team
from accounts.one_time import ticket_create
from accounts.scopes import ALL_SCOPES, ROLE_SCOPES, Role
from accounts.services import (
    principal_of_user,
    token_authenticate,
    token_create,
    token_revoke,
)
from assay.errors import AssayError
from audit.models import AuditEvent

pytestmark = pytest.mark.django_db


@pytest.fixture
def made(team: Team) -> tuple[ApiToken, str]:
    return token_create(team=team, name="t", scopes=["score"])


def test_a_fresh_token_is_recognised(made: tuple[ApiToken, str]) -> None:
    token, secret = made
    found = token_authenticate(secret=secret)
    assert found == token
    assert found is not None and found.scopes == ["score"]


def test_the_secret_is_stored_nowhere(made: tuple[ApiToken, str]) -> None:
    _, secret = made
    tail = secret.rsplit("_", 1)[1]
    with connection.cursor() as cursor:
        for table in connection.introspection.table_names(cursor):
            cursor.execute(f'SELECT count(*) FROM "{table}" AS row WHERE row::text LIKE %s', [f"%{tail}%"])
            assert cursor.fetchone()[0] == 0, table


def test_the_digest_needs_the_pepper(made: tuple[ApiToken, str]) -> None:
    token, secret = made
    assert token.digest != hashlib.sha256(secret.encode()).hexdigest()


def test_expired_revoked_and_ownerless_tokens_are_refused(team: Team, analyst: User) -> None:
    short, expired = token_create(
        team=team, name="old", scopes=["score"], expires_at=timezone.now() + timedelta(hours=1)
    )
    assert token_authenticate(secret=expired) == short
    ApiToken.objects.filter(pk=short.pk).update(expires_at=timezone.now())
    revoked, revoked_secret = token_create(team=team, name="revoked", scopes=["score"])
    token_revoke(token=revoked, actor=analyst)
    _, owned = token_create(team=team, name="owned", scopes=["score"], created_by=analyst)
    assert token_authenticate(secret=owned) is not None
    User.objects.filter(pk=analyst.pk).update(is_active=False)
    assert [token_authenticate(secret=secret) for secret in (expired, revoked_secret, owned)] == [None, None, None]


def test_a_wrong_secret_for_a_known_id_is_refused(made: tuple[ApiToken, str]) -> None:
    _, secret = made
    wrong = secret[:-1] + ("a" if secret[-1] != "a" else "b")
    assert token_authenticate(secret=wrong) is None


@pytest.mark.parametrize(
    "secret",
    [
        "",
        "assay_",
        "assay_short_short",
        "x" * 5000,
        "assay_ünïcödé_" + "a" * 43,
        "assay_" + "a" * 12 + "_" + "a" * 43 + "\n",
    ],
)
def test_malformed_secrets_are_refused(secret: str) -> None:
    assert token_authenticate(secret=secret) is None


def test_peppers_rotate(team: Team, settings: Settings) -> None:
    settings.TOKEN_PEPPERS = {1: "o" * 32}
    _, old = token_create(team=team, name="old", scopes=["score"])
    settings.TOKEN_PEPPERS = {1: "o" * 32, 2: "n" * 32}
    new_token, new = token_create(team=team, name="new", scopes=["score"])
    assert new_token.pepper_id == 2
    assert token_authenticate(secret=old) is not None and token_authenticate(secret=new) is not None
    settings.TOKEN_PEPPERS = {2: "n" * 32}
    assert token_authenticate(secret=old) is None and token_authenticate(secret=new) is not None
    settings.TOKEN_PEPPERS = {2: "w" * 32}
    assert token_authenticate(secret=new) is None


def test_use_is_written_at_most_once_a_minute(made: tuple[ApiToken, str]) -> None:
    token, secret = made
    token_authenticate(secret=secret)
    first = ApiToken.objects.get(pk=token.pk).last_used_at
    token_authenticate(secret=secret)
    assert first is not None
    assert ApiToken.objects.get(pk=token.pk).last_used_at == first
    ApiToken.objects.filter(pk=token.pk).update(last_used_at=first - timedelta(minutes=2))
    token_authenticate(secret=secret)
    later = ApiToken.objects.get(pk=token.pk).last_used_at
    assert later is not None and later >= first


@pytest.mark.parametrize("scopes", [[], ["score", "everything"]])
def test_scopes_are_a_closed_list(team: Team, scopes: list[str]) -> None:
    with pytest.raises(AssayError, match="A token needs scopes out of"):
        token_create(team=team, name="t", scopes=scopes)


@pytest.mark.parametrize("scopes", [[], ["score", "everything"]])
def test_the_database_refuses_other_scopes_too(made: tuple[ApiToken, str], scopes: list[str]) -> None:
    with pytest.raises(IntegrityError), transaction.atomic():
        ApiToken.objects.filter(pk=made[0].pk).update(scopes=scopes)


def test_making_and_revoking_leave_audit_events(team: Team, analyst: User) -> None:
    token, _ = token_create(team=team, name="ci", scopes=["score"], created_by=analyst)
    token_revoke(token=token, actor=analyst)
    token_revoke(token=token, actor=analyst)  # the second one changes nothing
    events = AuditEvent.objects.filter(target_type="accounts.apitoken", target_id=str(token.pk)).order_by("pk")
    assert [str(event) for event in events] == [
        f"analyst created API token ci ({token.public_id})",
        f"analyst revoked API token ci ({token.public_id})",
    ]


def test_the_admin_shows_the_secret_once(client: Client, admin: User, team: Team) -> None:
    client.force_login(admin)
    form = {
        "name": "from the admin",
        "team": team.pk,
        "scopes": ["score", "jobs"],
        "expires_at_0": "",
        "expires_at_1": "",
    }
    page = client.post(reverse("admin:accounts_apitoken_add"), form, follow=True).content.decode()
    token = ApiToken.objects.get(name="from the admin")
    shown = page.split("shown only now: ")[1].split("<")[0].strip()
    assert token_authenticate(secret=shown) == token
    assert token.created_by == admin
    detail = client.get(reverse("admin:accounts_apitoken_change", args=[token.pk])).content.decode()
    assert shown.rsplit("_", 1)[1] not in detail and token.digest not in detail


def test_roles_give_scopes(team: Team, analyst: User, admin: User) -> None:
    assert principal_of_user(analyst).scopes == ROLE_SCOPES[Role.ANALYST]
    assert principal_of_user(admin).scopes == ALL_SCOPES
    Membership.objects.filter(user=analyst).update(role=Role.CLIENT)
    assert principal_of_user(analyst).scopes == ROLE_SCOPES[Role.CLIENT]


def test_a_one_time_login_works_once(client: Client, admin: User) -> None:
    address = reverse("one_time_login", args=[ticket_create(admin)])
    assert client.get(address).status_code == 302
    assert client.session["_auth_user_id"] == str(admin.pk)
    other = Client()
    assert other.get(address).status_code == 403
    assert "_auth_user_id" not in other.session
    assert other.get(address[:-2] + "x/").status_code == 403


def test_the_scopes_of_a_token_bound_the_api(api_with: Callable[..., APIClient]) -> None:
    reader = api_with("models:read")
    assert reader.get("/api/v1/models").status_code == 200
    refused = reader.post("/rerank", {"query": "q", "documents": ["d"]})
    assert refused.status_code == 403
    assert "This needs the scope 'score'" in refused.json()["error"]["message"]

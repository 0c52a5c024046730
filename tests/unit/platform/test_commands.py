"""The ground floor's own commands."""

from __future__ import annotations

import io

import pytest
from django.contrib.auth.models import User
from django.core.management import CommandError, call_command
from django.test import Client
from django.urls import reverse

from accounts.models import ApiToken, Membership, Team
from accounts.services import token_authenticate, token_create
from audit.models import AuditEvent

pytestmark = pytest.mark.django_db


def output_of(*command: str) -> str:
    out = io.StringIO()
    call_command(*command, stdout=out)
    return out.getvalue()


def test_create_token_prints_a_secret_that_works() -> None:
    token = token_authenticate(secret=output_of("create_token", "--name", "ci", "--scopes", "score", "jobs").strip())
    assert token is not None
    assert (token.name, token.scopes, token.team.name) == ("ci", ["jobs", "score"], "default")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--scopes", "everything"], "given: everything"),
        (["--team", "nobody's"], r"There is no team .*; the teams are: other"),
    ],
)
def test_create_token_says_what_it_cannot_do(arguments: list[str], message: str) -> None:
    Team.objects.create(name="other")
    with pytest.raises(CommandError, match=message):
        output_of("create_token", "--name", "ci", *arguments)
    assert not ApiToken.objects.exists()


def test_a_team_and_a_user_who_can_log_in(client: Client) -> None:
    output_of("create_team", "search")
    password = output_of("create_user", "ada", "--team", "search", "--role", "admin").strip()
    assert client.login(username="ada", password=password)
    assert client.get("/").status_code == 200
    membership = Membership.objects.get(user__username="ada")
    assert (membership.team.name, membership.role) == ("search", "admin")
    assert list(AuditEvent.objects.values_list("verb", flat=True).order_by("pk")) == [
        "team.created", "user.created", "member.added",
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("command", "message"),
    [
        (["create_team", "other"], "There is a team 'other' already"),
        (["create_team", " "], "'' cannot be a team's name"),
        (["create_user", "ada", "--team", "nobody's"], r"There is no team .*; the teams are: other"),
        (["create_user", "a b"], "'a b' cannot be a user's name: Enter a valid username"),
    ],
)
def test_teams_and_users_that_cannot_be(command: list[str], message: str) -> None:
    Team.objects.create(name="other")
    with pytest.raises(CommandError, match=message):
        output_of(*command)
    assert not User.objects.exists()


def test_tokens_are_revoked_in_the_admin(client: Client, admin: User, team: Team) -> None:
    token, secret = token_create(team=team, name="t", scopes=["score"])
    client.force_login(admin)
    form = {"action": "revoke", "_selected_action": [token.pk]}
    assert client.post(reverse("admin:accounts_apitoken_changelist"), form).status_code == 302
    assert token_authenticate(secret=secret) is None


def test_the_api_s_pages_bring_no_inline_script(client: Client) -> None:
    page = client.get("/api/docs/")
    assert page.status_code == 200
    assert "script-src 'self';" in page["Content-Security-Policy"] + ";"
    assert "<script>" not in page.content.decode()


def test_every_admin_list_opens(client: Client, admin: User) -> None:
    from django.contrib.admin import site

    client.force_login(admin)
    for model in site._registry:
        address = reverse(f"admin:{model._meta.app_label}_{model._meta.model_name}_changelist")
        assert client.get(address).status_code == 200, address

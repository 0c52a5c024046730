"""What tokens are limited to, who may hand out what, and that a change counts from the next request on."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from ipaddress import ip_network
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.test import Client
from django.urls import reverse
from django.utils import timezone
from pytest_django import Settings
from rest_framework.test import APIClient

from accounts.models import ApiToken, Membership, Team
from accounts.scopes import ALL_SCOPES, Role
from accounts.services import principal_in_team, token_authenticate, token_create
from assay.api.principal import Principal
from assay.errors import AssayError
from audit.models import AuditEvent
from scoring.models import ScoringModel
from scoring.models.scoring_model import ModelKind
from scoring.selectors.models import RERANKERS, model_for_request
from tests.api.schema import check
from tests.unit.platform.test_commands import output_of
from tests.web import factories

pytestmark = pytest.mark.django_db
TOKENS = "/api/v1/tokens"
Limited = Callable[..., APIClient]


@pytest.fixture
def limited(team: Team) -> Limited:
    """A client with a token of certain limits; every scope, if not said otherwise."""

    def make(*, name: str = "limited", scopes: Any = ALL_SCOPES, **limits: Any) -> APIClient:
        _, secret = token_create(team=team, name=name, scopes=scopes, **limits)
        return APIClient(headers={"Authorization": f"Bearer {secret}"})

    return make


@pytest.fixture
def models(analyst: User) -> list[ScoringModel]:
    """Two that are served: 'late', and 'dense', the default of its kind."""
    worker = factories.live_worker()
    served = [factories.served_model(analyst, worker)]
    served.append(factories.served_model(analyst, worker, name="dense", kind=ModelKind.BI_ENCODER))
    ScoringModel.objects.update(is_default=True)
    return served


def test_a_token_of_one_model_sees_and_uses_no_other(limited: Limited, models: list[ScoringModel]) -> None:
    api = limited(name="search", allowed_models=["dense"])
    assert [card["id"] for card in api.get("/v1/models").json()["data"]] == ["dense"]
    assert [model["name"] for model in api.get("/api/v1/models").json()["results"]] == ["dense"]
    body = {"query": "q", "documents": ["d"], "queries": "q", "items": ["d"], "name": "late"}
    for method, path, fields in (
        ("post", "/rerank", ("query", "documents")),
        ("post", "/v1/score", ("queries", "documents")),
        ("post", "/generative_scoring", ("query", "items")),
        ("get", "/v1/models/late", ()),
        ("get", "/v1/models/nobody", ()),
        ("get", "/api/v1/models/late", ()),
        ("patch", "/api/v1/models/late", ()),
        ("post", "/api/v1/models/late/load", ()),
    ):
        sent = {name: body[name] for name in fields} | ({"model": "late"} if fields else {})
        error = getattr(api, method)(path, sent).json()["error"]
        assert error["code"] == "permission_denied", (path, error)
        assert "token search" in error["message"] and "may use: dense" in error["message"], path
    renamed = api.patch("/api/v1/models/dense", {"name": "late-2"})
    assert renamed.status_code == 403 and "'late-2'" in renamed.json()["error"]["message"]


def test_the_default_is_one_of_those_that_the_token_may_use(team: Team, models: list[ScoringModel]) -> None:
    free, _ = token_create(team=team, name="free", scopes=["score"])
    bound, _ = token_create(team=team, name="bound", scopes=["score"], allowed_models=["dense"])
    chosen = [
        model_for_request(principal=principal, name=None, kinds=RERANKERS).name
        for principal in (_principal(free), _principal(bound))
    ]
    assert chosen == ["late", "dense"]


def _principal(token: ApiToken) -> Principal:
    return Principal(user=None, team=token.team, token=token, scopes=frozenset(token.scopes))


def test_jobs_are_bound_to_the_models_of_the_token(limited: Limited, analyst: User, models: list[ScoringModel]) -> None:
    documents, queries, _ = factories.sample_sets(analyst)
    job = factories.submitted(analyst, models[0], documents, queries)
    api = limited(allowed_models=["dense"])
    body = {"document_set": documents.pk, "query_set": queries.pk}
    assert api.post("/api/v1/jobs", {**body, "model": "late"}).status_code == 403
    assert api.post("/api/v1/jobs", {**body, "stages": [{"model": "dense"}, {"model": "late"}]}).status_code == 403
    assert api.post(f"/api/v1/jobs/{job.pk}/clone").status_code == 403
    assert api.post(f"/api/v1/jobs/{job.pk}/pause").status_code == 200  # that uses no model
    assert api.post(f"/api/v1/jobs/{job.pk}/resume").status_code == 403
    assert api.post(f"/api/v1/jobs/{job.pk}/cancel").status_code in (200, 202)
    assert api.post(f"/api/v1/jobs/{job.pk}/retry").status_code in (403, 409)  # 409: not ended yet
    assert api.post("/api/v1/jobs", {**body, "model": "dense"}).status_code == 201


@pytest.mark.parametrize(
    ("remote", "forwarded", "proxies", "status"),
    [
        ("10.1.2.3", None, [], 200),
        ("2001:db8::7", None, [], 200),
        ("::ffff:10.1.2.3", None, [], 200),
        ("192.0.2.7", None, [], 403),
        ("", None, [], 403),
        # Nobody's word counts but a trusted proxy's, and of its list only the end.
        ("192.0.2.7", "10.1.2.3", [], 403),
        ("192.0.2.7", "10.1.2.3", ["192.0.2.7"], 200),
        ("192.0.2.7", "10.1.2.3, 198.51.100.9", ["192.0.2.7"], 403),
        ("192.0.2.7", "10.1.2.3, 192.0.2.8", ["192.0.2.0/24"], 200),
        ("192.0.2.7", "unknown", ["192.0.2.7"], 403),
        ("192.0.2.7", None, ["192.0.2.7"], 403),
    ],
)
def test_a_token_works_in_its_networks_only(
    remote: str, forwarded: str | None, proxies: list[str], status: int, limited: Limited, settings: Settings
) -> None:
    settings.TRUSTED_PROXIES = [ip_network(proxy) for proxy in proxies]
    api = limited(name="inside", allowed_networks=["10.0.0.0/8", "2001:db8::/32"])
    headers = {"X-Forwarded-For": forwarded} if forwarded else {}
    answer = api.get("/v1/models", REMOTE_ADDR=remote, headers=headers)
    assert answer.status_code == status
    if status == 403:
        assert "token 'inside' may not be used from" in answer.json()["error"]["message"]
        assert ApiToken.objects.get(name="inside").last_used_at is None


def test_the_life_of_a_token_over_the_api(api: APIClient, models: list[ScoringModel]) -> None:
    asked = {"name": "ci", "scopes": ["score"], "allowed_models": ["late"], "allowed_networks": ["127.0.0.1"]}
    answer = api.post(TOKENS, asked)
    made = check(answer, method="post")
    assert answer.status_code == 201 and answer["Cache-Control"] == "no-store"
    assert made["allowed_networks"] == ["127.0.0.1/32"] and made["secret"].startswith(made["prefix"] + "_")
    client = APIClient(headers={"Authorization": f"Bearer {made['secret']}"})
    assert client.get("/v1/models").status_code == 200
    assert client.get("/api/v1/jobs").status_code == 403
    address = f"{TOKENS}/{made['id']}"
    shown = check(api.get(address))
    assert "secret" not in shown and shown["last_used_at"] and shown["created_by"] is None
    changed = check(api.patch(address, {"scopes": ["jobs", "score"], "name": "ci 2"}), method="patch")
    assert (changed["scopes"], changed["name"], changed["allowed_models"]) == (["jobs", "score"], "ci 2", ["late"])
    assert client.get("/api/v1/jobs").status_code == 200
    assert [row["id"] for row in check(api.get(TOKENS, {"name": "ci", "enabled": "true"}))["results"]] == [made["id"]]
    assert not check(api.post(f"{address}/revoke"), method="post")["enabled"]
    assert client.get("/v1/models").status_code == 401
    assert api.patch(address, {"name": "x"}).json()["error"]["code"] == "token_revoked"
    assert api.delete(address).status_code == 405
    events = check(api.get("/api/v1/audit-events", {"target_id": str(ApiToken.objects.get(public_id=made["id"]).pk)}))
    assert [event["verb"] for event in events["results"]] == ["token.revoked", "token.changed", "token.created"]
    assert events["results"][1]["detail"]["scopes"] == [["score"], ["jobs", "score"]]


@pytest.mark.parametrize(
    ("field", "value", "code"),
    [
        ("name", " ", "bad_name"),
        ("scopes", [], "empty"),
        ("scopes", ["everything"], "invalid_choice"),
        ("allowed_models", ["nobody"], "invalid"),
        ("allowed_networks", ["10.0.0.1/8"], "bad_network"),
        ("allowed_networks", ["example.org"], "bad_network"),
        ("allowed_networks", [f"10.0.0.{n}" for n in range(101)], "too_many_entries"),
        ("expires_at", "2020-01-01T00:00:00Z", "bad_expiry"),
        ("secret", "mine", "unknown_field"),
    ],
)
def test_limits_that_cannot_be_are_refused(field: str, value: Any, code: str, api: APIClient) -> None:
    answer = api.post(TOKENS, {"name": "n", "scopes": ["score"], field: value})
    error = answer.json()["error"]
    assert (answer.status_code, error["code"]) == (422, code), error
    assert error["param"].split("[")[0] == field
    assert not ApiToken.objects.filter(name="n").exists()


SOON = timezone.now() + timedelta(days=1)
OWN = {
    "scopes": ["admin", "score"],
    "allowed_models": ["late"],
    "allowed_networks": ["127.0.0.0/8", "2001:db8::/32"],
    "expires_at": SOON,
}


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("scopes", ["jobs"]),
        ("allowed_models", []),
        ("allowed_models", ["late", "dense"]),
        ("allowed_networks", []),
        ("allowed_networks", ["126.0.0.0/7"]),
        ("allowed_networks", ["127.0.0.1", "192.0.2.1"]),
        ("allowed_networks", ["::/0"]),
        ("expires_at", None),
        pytest.param("expires_at", (SOON + timedelta(seconds=1)).isoformat(), id="expires_at-later"),
    ],
)
def test_a_token_hands_out_no_more_than_it_has(
    field: str, value: Any, limited: Limited, models: list[ScoringModel]
) -> None:
    api = limited(**OWN)
    good = {
        "name": "child",
        **OWN,
        "allowed_networks": ["127.0.0.1", "2001:db8:1::/48"],
        "expires_at": SOON.isoformat(),
    }
    child = api.post(TOKENS, good)
    assert child.status_code == 201, child.content
    for answer in (api.post(TOKENS, {**good, field: value}), api.patch(child["Location"], {field: value})):
        assert answer.status_code == 403 and answer.json()["error"]["code"] == "exceeds_own_rights"
        assert answer.json()["error"]["param"] == field
    assert ApiToken.objects.count() == 2
    # What is left out is not within its limits by itself.
    assert api.post(TOKENS, {"name": "wide", "scopes": ["score"]}).status_code == 403


@pytest.mark.parametrize("own", [*OWN, "requests_per_minute"])
def test_a_limited_token_changes_none_that_may_more(
    own: str, limited: Limited, team: Team, models: list[ScoringModel]
) -> None:
    """It may take its rights away for good; to narrow it, one would have to be able to hand out what is left."""
    wide, _ = token_create(team=team, name="wide", scopes=ALL_SCOPES)
    api = limited(**{own: {**OWN, "requests_per_minute": 5}[own]})
    for change in ({"name": "mine"}, {"scopes": ["score"]}, {"allowed_models": ["dense"]}):
        if (own, change) == ("scopes", {"scopes": ["score"]}):
            continue  # that is within its own
        answer = api.patch(f"{TOKENS}/{wide.public_id}", change)
        assert (answer.status_code, answer.json()["error"]["code"]) == (403, "exceeds_own_rights"), (own, change)
    assert api.post(f"{TOKENS}/{wide.public_id}/revoke").status_code == 200


def test_a_token_may_no_more_than_its_maker_may_by_now(team: Team, analyst: User) -> None:
    with pytest.raises(AssayError, match="analyst has: jobs, models:read, score"):
        token_create(team=team, name="t", scopes=["admin"], created_by=analyst)
    with pytest.raises(AssayError, match="analyst has: none"):
        token_create(team=Team.objects.create(name="others"), name="t", scopes=["score"], created_by=analyst)
    _, secret = token_create(team=team, name="t", scopes=["jobs", "score"], created_by=analyst)
    api = APIClient(headers={"Authorization": f"Bearer {secret}"})
    memberships = Membership.objects.filter(user=analyst)
    assert api.get("/api/v1/jobs").status_code == 200
    memberships.update(role=Role.CLIENT)
    assert (api.get("/api/v1/jobs").status_code, api.get("/v1/models").status_code) == (403, 200)
    memberships.delete()
    assert api.get("/v1/models").status_code == 401
    Membership.objects.create(user=analyst, team=team, role=Role.ANALYST)
    assert api.get("/api/v1/jobs").status_code == 200


def test_a_session_follows_its_user_at_once(browser_client: Client, analyst: User) -> None:
    assert browser_client.get("/jobs/").status_code == 200
    Membership.objects.filter(user=analyst).update(role=Role.CLIENT)
    assert browser_client.get("/jobs/").status_code == 403
    Membership.objects.filter(user=analyst).delete()
    assert browser_client.get("/").status_code == 403
    User.objects.filter(pk=analyst.pk).update(is_active=False)
    assert browser_client.get("/").status_code == 302


def test_the_administration_keeps_the_same_rules(client: Client, admin: User, team: Team) -> None:
    client.force_login(admin)
    form = {
        "name": "n",
        "team": team.pk,
        "scopes": ["score"],
        "allowed_models": "late",
        "allowed_networks": "10.0.0.1/8",
    }
    add = reverse("admin:accounts_apitoken_add")
    refused = client.post(add, form).content.decode()
    assert "is no network" in refused and not ApiToken.objects.exists()
    assert client.post(add, {**form, "allowed_networks": "10.0.0.0/8"}).status_code == 302
    token = ApiToken.objects.get()
    assert (token.allowed_models, token.allowed_networks, token.created_by) == (["late"], ["10.0.0.0/8"], admin)
    change = reverse("admin:accounts_apitoken_change", args=[token.pk])
    edited = {"name": "m", "scopes": ["jobs"], "allowed_models": "", "allowed_networks": ""}
    assert client.post(change, edited).status_code == 302
    token.refresh_from_db()
    assert (token.name, token.scopes, token.allowed_models, token.team) == ("m", ["jobs"], [], team)
    event = AuditEvent.objects.get(verb="token.changed")
    assert event.detail["scopes"] == [["score"], ["jobs"]] and event.actor_user == admin


def test_logins_teams_and_users_leave_events(client: Client, admin: User, analyst: User, team: Team) -> None:
    for path in ("/accounts/login/", "/admin/login/"):
        visitor = Client()
        for name in ("analyst", "analyst", "nobody's name", "a password in the wrong field"):
            visitor.post(path, {"username": name, "password": "wrong"})
        good = {"username": "admin", "password": "a password for tests"}
        assert visitor.post(path, good).status_code == 302
    # However often somebody guesses, and whatever they type: one event a minute for a user, one for nobody.
    failed = AuditEvent.objects.filter(verb="user.login_failed")
    assert sorted(event.target_label for event in failed) == ["", "analyst"]
    assert AuditEvent.objects.filter(verb="user.logged_in", actor_user=admin).count() == 2
    client.force_login(admin)
    page = reverse("admin:accounts_team_change", args=[team.pk])
    membership = Membership.objects.get(user=analyst)
    rows = {"TOTAL_FORMS": 2, "INITIAL_FORMS": 1, "0-id": membership.pk, "0-user": analyst.pk, "0-role": "admin"}
    rows |= {"0-team": team.pk, "1-team": team.pk, "1-user": admin.pk, "1-role": "client"}
    form = {"name": "default", **{f"memberships-{name}": value for name, value in rows.items()}}
    assert client.post(page, form).status_code == 302
    assert client.post(page, form | {"memberships-TOTAL_FORMS": 1, "memberships-0-DELETE": "on"}).status_code == 302
    said = [str(event) for event in AuditEvent.objects.filter(verb__startswith="member.").order_by("pk")]
    assert said == [
        "admin added admin as client of default",
        "admin made a member analyst as admin of default",
        "admin removed analyst as admin of default",
    ]


def test_audit_events_are_the_teams_own_and_filtered(api: APIClient, api_with: Any, analyst: User, team: Team) -> None:
    others = Team.objects.create(name="others")
    token_create(team=others, name="secret project", scopes=["score"])
    token_create(team=team, name="mine", scopes=["score"], created_by=analyst)
    path = "/api/v1/audit-events"
    everything = check(api.get(path))["results"]
    assert "secret project" not in str(everything) and everything[0]["target_label"].startswith("mine")
    assert len(check(api.get(path, {"actor": "analyst", "verb": "token.created"}))["results"]) == 1
    assert check(api.get(path, {"verb": "token.revoked"}))["results"] == []
    assert check(api.get(path, {"before": "2020-01-01T00:00:00Z"}))["results"] == []
    assert api.get(path, {"verb": "nothing.happened"}).status_code == 422
    assert api.get(path, {"who": "analyst"}).status_code == 422
    assert api.delete(path).status_code == 405
    assert api_with("jobs", "score", "models:read", "models:write").get(path).status_code == 403


def test_the_tokens_of_an_old_pepper_are_listed(team: Team, analyst: User, settings: Settings) -> None:
    settings.TOKEN_PEPPERS = {1: "o" * 32}
    old, _ = token_create(team=team, name="old one", scopes=["score"], created_by=analyst)
    revoked, _ = token_create(team=team, name="revoked", scopes=["score"])
    ApiToken.objects.filter(pk=revoked.pk).update(enabled=False)
    settings.TOKEN_PEPPERS = {1: "o" * 32, 2: "n" * 32}
    _, secret = token_create(team=team, name="new one", scopes=["score"])
    lines = output_of("token_peppers").splitlines()
    assert lines[0] == "pepper 1 (verifies older tokens): 1 live token"
    assert lines[1].split("  ")[1:5] == [f"assay_{old.public_id}", "old one", "team default", "of analyst"]
    assert lines[2:] == ["pepper 2 (makes new tokens): 1 live token"]
    settings.TOKEN_PEPPERS = {2: "n" * 32}
    assert "pepper 1 (removed: its tokens no longer work): 1 live token" in output_of("token_peppers")
    assert token_authenticate(secret=secret) is not None


def test_a_person_s_role_is_of_the_team_asked_about(team: Team, analyst: User) -> None:
    others = Team.objects.create(name="others")
    Membership.objects.create(user=analyst, team=others, role=Role.ADMIN)
    assert "admin" in principal_in_team(analyst, others).scopes
    assert "admin" not in principal_in_team(analyst, team).scopes


def test_teams_are_made_by_superusers_and_members_by_admins(
    api: APIClient, limited: Limited, team: Team, admin: User, analyst: User
) -> None:
    teams = "/api/v1/teams"
    refused = api.post(teams, {"name": "more"})
    assert refused.status_code == 403 and "create_team" in check(refused, method="post")["error"]["message"]
    User.objects.filter(pk=admin.pk).update(is_superuser=True)
    _, secret = token_create(team=team, name="root", scopes=ALL_SCOPES, created_by=User.objects.get(pk=admin.pk))
    root = APIClient(headers={"Authorization": f"Bearer {secret}"})
    made = check(root.post(teams, {"name": "more"}), method="post")
    assert root.post(teams, {"name": "more"}).json()["error"]["code"] == "team_exists"
    assert {row["name"] for row in check(root.get(teams))["results"]} >= {team.name, "more"}
    assert [row["name"] for row in check(api.get(teams))["results"]] == [team.name]
    assert api.get(f"{teams}/{made['id']}").status_code == 404
    members = f"{teams}/{team.pk}/members"
    assert {"username": "analyst", "role": "analyst"} in check(api.get(members))["results"]
    changed = api.post(members, {"username": "analyst", "role": "client"})
    assert changed.status_code == 200 and check(changed, method="post")["role"] == "client"
    assert api.post(members, {"username": "nobody", "role": "client"}).json()["error"]["param"] == "username"
    bound = limited(allowed_models=["late"])
    answer = bound.post(members, {"username": "analyst", "role": "admin"})
    assert (answer.status_code, answer.json()["error"]["code"]) == (403, "exceeds_own_rights")
    assert api.delete(f"{members}/analyst").status_code == 204
    assert api.delete(f"{members}/analyst").status_code == 404
    verbs = AuditEvent.objects.filter(target_type="accounts.membership").values_list("verb", flat=True)
    assert set(verbs) >= {"member.changed", "member.removed"}

"""What a token and its team may use: counted all or none, told in the refusal, given back at every end."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import pytest
import redis
from django.test import Client
from rest_framework.test import APIClient

from accounts.limits import Quota
from accounts.models import Team
from accounts.quotas import KEYS, Reservation, quotas_extend, quotas_release, quotas_reserve
from accounts.scopes import ALL_SCOPES
from accounts.services import principal_of_token, token_create
from assay.api.principal import Principal
from assay.errors import AssayError
from scoring.models import ScoringModel
from scoring.services.admission import admitted
from tests.api.conftest import SubmitJob
from tests.integration.rig import wait_for

LEASE = 60.0


@pytest.fixture(autouse=True)
def nothing_counted(redis_client: redis.Redis) -> Iterator[None]:
    yield
    if keys := list(redis_client.scan_iter(f"{KEYS}*")):
        redis_client.delete(*keys)


@pytest.fixture
def principal(team: Team) -> Principal:
    return principal_of_token(token_create(team=team, name="shop", scopes=ALL_SCOPES)[0])


def limit(principal: Principal, *, team: dict[str, int] | None = None, **token: int) -> None:
    assert principal.token is not None
    for row, limits in ((principal.token, token), (principal.team, team or {})):
        for name, value in limits.items():
            setattr(row, name, value)
        row.save()


def reserve(client: redis.Redis, principal: Principal, documents: int = 1, lease: float = LEASE) -> Reservation:
    reservation = quotas_reserve(client, principal=principal, documents=documents, lease_seconds=lease)
    assert reservation is not None
    return reservation


def refused(act: Callable[[], object], status: int = 429) -> AssayError:
    with pytest.raises(AssayError) as refusal:
        act()
    assert (refusal.value.status, refusal.value.code) == (status, "quota_exceeded")
    return refusal.value


def used(reservation: Reservation) -> dict[str, int]:
    return {f"{state.of}/{state.quota}": state.used for state in reservation.states}


def test_without_quotas_redis_is_not_asked(principal: Principal, redis_client: redis.Redis) -> None:
    assert quotas_reserve(redis_client, principal=principal, documents=5, lease_seconds=LEASE) is None
    assert not list(redis_client.scan_iter(f"{KEYS}*"))


def test_all_quotas_are_taken_or_none(principal: Principal, redis_client: redis.Redis) -> None:
    limit(principal, requests_per_minute=3, requests_in_flight=3, team={"documents_per_day": 10})
    first = reserve(redis_client, principal, documents=6)
    assert used(first) == {"token/requests_per_minute": 1, "token/requests_in_flight": 1, "team/documents_per_day": 6}
    error = refused(lambda: reserve(redis_client, principal, documents=5))
    assert error.extra.pop("reset") == error.retry_after and 0 < (error.retry_after or 0) <= 86_400
    assert error.extra == {
        "quota": "documents_per_day", "of": "team", "window": 86_400, "limit": 10, "used": 6, "asked": 5
    }  # fmt: skip
    assert error.headers["X-RateLimit-Remaining"] == "4"
    assert used(reserve(redis_client, principal, documents=4)) == {
        "token/requests_per_minute": 2, "token/requests_in_flight": 2, "team/documents_per_day": 10
    }  # fmt: skip


def test_what_a_quota_never_gives_is_not_to_be_sent_again(principal: Principal, redis_client: redis.Redis) -> None:
    limit(principal, documents_per_day=10, requests_per_minute=1)
    reserve(redis_client, principal)
    error = refused(lambda: reserve(redis_client, principal, documents=11), status=413)  # though both are used up
    assert (error.extra["quota"], error.retry_after) == ("documents_per_day", None)
    assert "needs 11 documents per day; of the 10" in error.message and "Split it" in error.message
    limit(principal, documents_per_day=10, requests_per_minute=0)
    error = refused(lambda: reserve(redis_client, principal), status=403)
    assert error.retry_after is None and "Ask an administrator for a larger quota." in error.message


def test_another_token_of_the_team_shares_its_quota_only(principal: Principal, redis_client: redis.Redis) -> None:
    limit(principal, requests_per_minute=1, team={"requests_per_minute": 2})
    other = principal_of_token(token_create(team=principal.team, name="other", scopes=ALL_SCOPES)[0])
    reserve(redis_client, principal)
    assert refused(lambda: reserve(redis_client, principal)).extra["of"] == "token"
    reserve(redis_client, other)
    assert refused(lambda: reserve(redis_client, other)).extra["of"] == "team"


def test_only_what_was_scored_counts(principal: Principal, redis_client: redis.Redis) -> None:
    limit(principal, documents_per_day=10, requests_in_flight=1)
    with admitted(principal=principal, documents=8) as admission:
        assert refused(lambda: reserve(redis_client, principal, documents=1)).extra["quota"] == Quota.IN_FLIGHT
        admission.scored = 3
    assert admission.headers()["X-RateLimit-Remaining"] == "7"
    with pytest.raises(ZeroDivisionError), admitted(principal=principal, documents=7):
        raise ZeroDivisionError
    assert used(reserve(redis_client, principal, documents=7)) == {
        "token/documents_per_day": 10, "token/requests_in_flight": 1
    }  # fmt: skip


def test_what_a_killed_process_held_comes_back_by_itself(principal: Principal, redis_client: redis.Redis) -> None:
    limit(principal, requests_in_flight=1)
    held = reserve(redis_client, principal, lease=0.01)
    wait_for(lambda: not alive(redis_client, principal), what="the end of the lease")
    again = reserve(redis_client, principal)
    quotas_extend(redis_client, reservation=held, lease_seconds=LEASE)  # it was only slow: its place is taken
    assert refused(lambda: reserve(redis_client, principal)).extra["used"] == 1
    quotas_release(redis_client, reservation=again, documents_used=1)
    assert used(reserve(redis_client, principal)) == {"token/requests_in_flight": 1}


def alive(client: redis.Redis, principal: Principal) -> bool:
    seconds, microseconds = client.time()
    assert principal.token is not None
    now = float(seconds) + float(microseconds) / 1e6
    return client.zcount(f"{KEYS}token:{principal.token.pk}:in-flight", now, "+inf") > 0


def test_a_window_that_is_over_counts_no_more(principal: Principal, redis_client: redis.Redis) -> None:
    limit(principal, requests_per_minute=1, documents_per_day=5)
    first = reserve(redis_client, principal, documents=5)
    error = refused(lambda: reserve(redis_client, principal))
    assert error.extra["quota"] == "documents_per_day"  # of two that are used up the one that takes longer
    key = first.keys[0]
    redis_client.hset(key, mapping={"requests_per_minute:until": 1, "documents_per_day:until": 1})
    assert used(reserve(redis_client, principal, documents=4)) == {
        "token/requests_per_minute": 1, "token/documents_per_day": 4
    }  # fmt: skip
    # What the first one took was of a day that is over.
    quotas_release(redis_client, reservation=replace(first, day_end="1"), documents_used=0)
    assert redis_client.hget(key, "documents_per_day") == b"4"


def test_the_answer_names_the_quota(
    api: APIClient, team: Team, model: ScoringModel, client: Client, redis_client: redis.Redis
) -> None:
    team.requests_per_minute = 1
    team.save()
    body = {"model": "late", "query": "q", "documents": ["d"]}
    assert api.post("/v1/rerank", body).status_code == 503  # no worker: the request was made all the same
    answer = api.post("/v1/rerank", body)
    error: dict[str, Any] = answer.json()["error"]
    assert answer.status_code == 429 and error["type"] == "rate_limit_error"
    assert (error["quota"], error["of"], error["window"], error["used"], error["limit"]) == (
        "requests_per_minute", "team", 60, 1, 1
    )  # fmt: skip
    assert 0 < error["reset"] <= 60 and answer["Retry-After"] == answer["X-RateLimit-Reset"] == str(error["reset"])
    assert (answer["X-RateLimit-Limit"], answer["X-RateLimit-Remaining"]) == ("1", "0")
    stored = api.get("/api/v1/score-requests").json()["results"][0]
    assert (stored["status_code"], stored["error_code"]) == (429, "quota_exceeded")
    scraped = client.get("/metrics").content.decode()
    assert 'assay_quota_refusals_total{of="team",quota="requests_per_minute"}' in scraped


def test_pairs_of_open_jobs_are_a_quota_of_the_token_and_the_team(
    submit: SubmitJob, team: Team, api: APIClient
) -> None:
    first = submit()  # 140 pairs
    body = {"model": "late", **{name: first[name]["id"] for name in ("document_set", "query_set")}}
    team.open_pairs = 279
    team.save()
    answer = api.post("/api/v1/jobs", body)
    error = answer.json()["error"]
    assert answer.status_code == 429 and (error["code"], error["quota"]) == ("quota_exceeded", "open_pairs")
    assert (error["of"], error["used"], error["asked"], error["limit"]) == ("team", 140, 140, 279)
    assert (error["window"], error["reset"], answer["Retry-After"]) == (None, None, "30")
    team.open_pairs = None
    team.save()
    token = team.tokens.get()
    token.open_pairs = 280
    token.save()
    assert api.post("/api/v1/jobs", body).status_code == 201
    assert api.post("/api/v1/jobs", body).json()["error"]["of"] == "token"


def test_quotas_are_given_with_a_token_and_bound_those_that_it_makes(api: APIClient, team: Team) -> None:
    made = api.post("/api/v1/tokens", {"name": "shop", "scopes": ["score", "admin"], "requests_per_minute": 60}).json()
    assert (made["requests_per_minute"], made["documents_per_day"]) == (60, None)
    shop = APIClient(headers={"Authorization": f"Bearer {made['secret']}"})
    for asked in ({}, {"requests_per_minute": 61}):
        error = shop.post("/api/v1/tokens", {"name": "more", "scopes": ["score"], **asked}).json()["error"]
        assert (error["code"], error["param"]) == ("exceeds_own_rights", "requests_per_minute")
    address = f"/api/v1/tokens/{made['id']}"
    assert shop.patch(address, {"requests_per_minute": None}).status_code == 403
    assert api.patch(address, {"requests_per_minute": 2**31}).json()["error"]["param"] == "requests_per_minute"
    changed = api.patch(address, {"requests_per_minute": None, "open_pairs": 5}).json()
    assert (changed["requests_per_minute"], changed["open_pairs"]) == (None, 5)

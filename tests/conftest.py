"""Fixtures that every folder of tests may use. The servers are real ones; ``assay.settings.test`` starts them."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import hypothesis
import psycopg
import pytest
import redis
from django.conf import settings
from django.contrib.auth.models import User
from django.core.management.base import CommandError
from django.test import Client, TransactionTestCase
from rest_framework.test import APIClient

from accounts.models import Membership, Team
from accounts.scopes import ALL_SCOPES, Role
from accounts.services import team_default, token_create
from assay.kept import Kept

pytest_plugins = ["tests.stack"]

# How long an example takes says what else the machine does.
hypothesis.settings.register_profile("any", deadline=None, suppress_health_check=[hypothesis.HealthCheck.too_slow])
hypothesis.settings.load_profile("any")
Kept.seconds = 0.0  # in this process tests change rows and ask again at once

# Processes take one file after the other: the long ones begin, so that all end together.
LONG_FIRST = ("chaos", "deploy", "integration", "api", "e2e", "client", "engine")
FLUSHES = 5


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    items.sort(key=_rank)


def _rank(item: pytest.Item) -> int:
    return next((rank for rank, name in enumerate(LONG_FIRST) if name in item.path.parts), len(LONG_FIRST))


@pytest.fixture(scope="session", autouse=True)
def patient_flush() -> Iterator[None]:
    """Emptying the tables locks them all, and a process that a test left running may hold one and want another: the
    database then ends either of the two, and the tables are emptied a moment later."""
    flush = getattr(TransactionTestCase, "_fixture_teardown")  # noqa: B009 - its stubs do not know it

    def patiently(case: TransactionTestCase) -> None:
        for left in reversed(range(FLUSHES)):
            try:
                flush(case)
                return
            except CommandError as error:
                failure = error.__cause__.__cause__ if error.__cause__ else None
                if not (left and isinstance(failure, psycopg.errors.DeadlockDetected)):
                    raise

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(TransactionTestCase, "_fixture_teardown", patiently)
        yield


@pytest.fixture
def team(db: None) -> Team:
    return team_default()


@pytest.fixture
def admin(db: None) -> User:
    return User.objects.create_superuser("admin", password="a password for tests")


@pytest.fixture
def analyst(team: Team) -> User:
    user = User.objects.create_user("analyst", password="a password for tests")
    Membership.objects.create(user=user, team=team, role=Role.ANALYST)
    return user


@pytest.fixture
def api_with(team: Team) -> Callable[..., APIClient]:
    """A client whose token has the given scopes: ``api_with("score")``."""

    def make(*scopes: str, team: Team = team) -> APIClient:
        _, secret = token_create(team=team, name="tests", scopes=scopes)
        return APIClient(headers={"Authorization": f"Bearer {secret}"})

    return make


@pytest.fixture
def api(api_with: Callable[..., APIClient]) -> APIClient:
    """A client that may do everything."""
    return api_with(*ALL_SCOPES)


@pytest.fixture
def browser_client(client: Client, analyst: User) -> Client:
    """Django's test client, logged in as an analyst."""
    client.force_login(analyst)
    return client


@pytest.fixture
def redis_client() -> Iterator[redis.Redis]:
    with redis.Redis.from_url(settings.REDIS_URL) as client:
        yield client

"""Fixtures that every folder of tests may use. The servers are real ones; ``assay.settings.test`` starts them."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest
import redis
from django.conf import settings
from django.contrib.auth.models import User
from django.test import Client
from rest_framework.test import APIClient

from accounts.models import Membership, Team
from accounts.scopes import ALL_SCOPES, Role
from accounts.services import team_default, token_create
from assay.kept import Kept

pytest_plugins = ["tests.stack"]

Kept.seconds = 0.0  # in this process tests change rows and ask again at once


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

"""A team with data: sets, a worker, a model that is served and loaded, a job that ended."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.test import Client

from accounts.models import Membership, Team
from accounts.scopes import Role
from scoring.models import DocumentSet, Job, JudgementSet, QuerySet, ScoringModel, Worker
from tests.web import factories


@dataclass(frozen=True, slots=True)
class World:
    documents: DocumentSet
    queries: QuerySet
    judgements: JudgementSet
    worker: Worker
    model: ScoringModel
    job: Job


@pytest.fixture
def world(analyst: User) -> World:
    documents, queries, judgements = factories.sample_sets(analyst)
    worker = factories.live_worker()
    model = factories.served_model(analyst, worker)
    factories.placed(model, worker)
    job = factories.finished(analyst, model, worker, documents, queries)
    return World(documents, queries, judgements, worker, model, job)


@pytest.fixture
def admin_page(admin: User) -> Client:
    client = Client()
    client.force_login(admin)
    return client


def _member(name: str, team: Team, role: Role) -> Client:
    user = User.objects.create_user(name)
    Membership.objects.create(user=user, team=team, role=role)
    client = Client()
    client.force_login(user)
    return client


@pytest.fixture
def stranger(db: None) -> Client:
    """An analyst of another team."""
    return _member("stranger", Team.objects.create(name="others"), Role.ANALYST)


@pytest.fixture
def caller(team: Team) -> Client:
    """A member who may score and see models, nothing else."""
    return _member("caller", team, Role.CLIENT)


def text_of(response: Any) -> str:
    """The page as text, with white space folded."""
    return " ".join(response.content.decode().split())

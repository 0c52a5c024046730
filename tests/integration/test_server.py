"""The web server as a process: who hangs up, who hangs, who is asked to stop."""

from __future__ import annotations

import signal
import socket
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import httpx
import pytest

from accounts.scopes import ALL_SCOPES
from accounts.services import token_create
from assay.api.principal import Principal
from scoring import dispatch, routing
from scoring.models import ScoreRequest, ScoringModel
from scoring.states import ModelState
from tests.integration.light_fleet import LightFleet
from tests.integration.rig import wait_for
from tests.integration.web_process import WebProcess, web_process

THREADS = 8
SHARE = 6  # of them for one model
FOREVER = {"X-Timeout-Ms": "60000"}


@pytest.fixture(scope="module")
def processes(django_db_setup: None) -> Iterator[LightFleet]:
    fleet = LightFleet()
    yield fleet
    fleet.close()


@pytest.fixture(scope="module")
def web(django_db_setup: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[WebProcess]:
    with web_process(tmp_path_factory.mktemp("web"), WEB_THREADS=str(THREADS)) as web:
        yield web


@pytest.fixture
def fleet(transactional_db: None, processes: LightFleet) -> Iterator[LightFleet]:
    routing.answering.clear()
    processes.calm()
    processes.start("light-1", "light-2")
    yield processes
    processes.calm()


Serve = Callable[..., str]


@pytest.fixture
def serve(fleet: LightFleet) -> Serve:
    """``serve("a", "light-1")``: a model of that name, held by that worker."""

    def make(name: str, worker: str) -> str:
        model = ScoringModel.objects.create(
            name=name,
            kind="late-interaction",
            source="package:x/y",
            state=ModelState.AVAILABLE,
            revision="r1",
            facts={"max_length": 256, "scale": "maxsim"},
        )
        fleet.give(model, worker)
        return name

    return make


@pytest.fixture
def client(web: WebProcess, principal: Principal) -> Iterator[httpx.Client]:
    _, secret = token_create(team=principal.team, name="tests", scopes=list(ALL_SCOPES))
    with httpx.Client(base_url=web.url, headers={"Authorization": f"Bearer {secret}"}, timeout=90) as client:
        yield client


def rerank(client: httpx.Client, model: str, headers: dict[str, str] | None = None) -> httpx.Response:
    body = {"model": model, "query": "q", "documents": ["one", "two"]}
    return client.post("/rerank", json=body, headers=headers)


def test_smoke(web: WebProcess, fleet: LightFleet, serve: Serve, client: httpx.Client) -> None:
    answer = rerank(client, serve("a", "light-1"))
    assert answer.status_code == 200, answer.text

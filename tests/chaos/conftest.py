"""One platform with two workers for all disturbances, and what an undisturbed job scores on it."""

from __future__ import annotations

import itertools
import shutil
from collections.abc import Callable, Generator, Iterator
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import numpy.typing as npt
import pytest
from django.conf import settings

from accounts.scopes import ALL_SCOPES
from assay import embedded
from assay.supervisor import Platform, end_orphans, free_port
from tests.chaos.house import LEASE_SECONDS, House, end_of_the_log, ended, scores
from tests.integration.rig import wait_for
from tests.integration.running import registered, submitted
from tests.stack import AT_ONCE, manage

WORKERS = 2
CHUNKS = 10
Submit = Callable[[], dict[str, Any]]


@pytest.fixture(scope="session")
def house() -> Iterator[House]:
    folder = Path(settings.DATA_DIR) / "chaos"  # not pytest's own: PostgreSQL's user may not look into that
    end_orphans(folder)
    shutil.rmtree(folder, ignore_errors=True)
    with embedded.servers(folder):
        environment = {
            "DJANGO_SETTINGS_MODULE": "assay.settings.dev",
            "DATABASE_URL": embedded.database_url(folder),
            "REDIS_URL": embedded.redis_url(folder),
            "DATA_DIR": str(folder),
            "DEVICE": "cpu",
            "ENGINE_THREADS": "1",
            "LEASE_SECONDS": f"{LEASE_SECONDS:g}",
            "HEARTBEAT_SECONDS": "1",
        }
        manage(environment, "migrate", "--verbosity=0")
        token = manage(environment, "create_token", "--name=tests", "--scopes", *sorted(ALL_SCOPES)).strip()
        with (
            Platform(
                folder, "127.0.0.1", free_port(), workers=WORKERS, environment=environment, backoff=AT_ONCE
            ) as platform,
            httpx.Client(base_url=platform.url, headers={"Authorization": f"Bearer {token}"}, timeout=60) as client,
        ):
            platform.wait_until_ready()
            database, broker = embedded.Postgres(folder), embedded.Redis(folder)
            yield House(client, platform, database, broker, environment["DATABASE_URL"])


@pytest.fixture(scope="session")
def submit(house: House) -> Iterator[Submit]:
    """A new job over the same texts, by a model of its own: nothing is known of them from a job before."""
    numbers = itertools.count(1)
    names: list[str] = []

    def new_job() -> dict[str, Any]:
        for name in names:  # two workers and their memory are enough for one model at a time
            house.client.post(f"/api/v1/models/{name}/unload")
        names.append(registered(house.client, f"late-{next(numbers)}"))
        return submitted(house.client, names[-1], chunks=CHUNKS, length=30, distinct=True)

    yield new_job


@pytest.fixture(scope="session")
def undisturbed(house: House, submit: Submit) -> npt.NDArray[np.float32]:
    """[Q, D]"""
    job = submit()
    assert ended(house, job)["state"] == "completed"
    return scores(house, job)


@pytest.fixture(autouse=True)
def everybody_is_there(house: House) -> None:
    alive = "SELECT count(*) FROM scoring_worker WHERE state = 'ready' AND heartbeat_at > now() - interval '4 s'"
    wait_for(lambda: house.rows(alive) == [(WORKERS,)], seconds=90, what="all workers")


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[Any]
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    report = yield
    house = getattr(item, "funcargs", {}).get("house")
    if report.failed and isinstance(house, House):
        report.sections.append(("logs", end_of_the_log(house.platform.log_path("web").parent)))
    return report

"""One count for all web processes, and for one that is killed: nothing more, nothing less."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

import httpx
import pytest

from accounts.models import Team
from accounts.quotas import KEYS
from accounts.services import team_default
from assay.kept import FRESH_SECONDS
from assay.settings import env
from assay.supervisor import free_port, web_command
from scoring import dispatch
from scoring.models import ScoreRequest, ScoringModel
from tests.integration.light_fleet import LightFleet, environment
from tests.integration.rig import wait_for
from tests.stack import manage

WEBS = 4
ASKED = 50
QUOTA = 10
WORKER = "light-quotas"


@dataclass
class Web:
    """A web server of its own beside the others."""

    process: subprocess.Popen[bytes]
    client: httpx.Client

    def ready(self) -> bool:
        try:
            return self.client.get("/readyz").is_success
        except httpx.TransportError:
            return False

    def kill(self) -> None:
        os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait(30)


@pytest.fixture
def webs(transactional_db: None) -> Iterator[list[Web]]:
    given = environment()
    token = manage(given, "create_token", "--name=shop").strip()
    started = []
    for _ in range(WEBS):
        port = free_port()
        process = subprocess.Popen(web_command("127.0.0.1", port, 1), env=given, cwd=env.ROOT, start_new_session=True)
        headers = {"Authorization": f"Bearer {token}"}
        started.append(Web(process, httpx.Client(base_url=f"http://127.0.0.1:{port}", headers=headers, timeout=120)))
    try:
        for web in started:
            wait_for(web.ready, seconds=120, what="the start of a web server")
        yield started
    finally:
        for web in started:
            web.client.close()
            if web.process.poll() is None:
                web.kill()


@pytest.fixture
def fleet(transactional_db: None, model: ScoringModel) -> Iterator[LightFleet]:
    fleet = LightFleet()
    fleet.start(WORKER)
    fleet.give(model, WORKER)
    yield fleet
    fleet.close()
    if keys := list(dispatch.connection().scan_iter(f"{KEYS}*")):
        dispatch.connection().delete(*keys)


def limited(**limits: int | None) -> Team:
    team = team_default()
    for name, value in limits.items():
        setattr(team, name, value)
    team.save()
    return team


def in_flight(team: Team) -> int:
    return dispatch.connection().zcount(f"{KEYS}team:{team.pk}:in-flight", dispatch.clock(), "+inf")


def test_fifty_requests_over_four_servers(webs: list[Web], fleet: LightFleet) -> None:
    def ask(number: int) -> httpx.Response | None:
        body: dict[str, Any] = {"model": "late", "query": "q", "documents": [f"document {number}", ""]}
        try:
            return webs[number % WEBS].client.post("/rerank", json=body, headers={"X-Timeout-Ms": "120000"})
        except httpx.TransportError:
            return None  # its server was killed

    with ThreadPoolExecutor(ASKED) as pool:
        team = limited(requests_per_minute=QUOTA, documents_per_day=1000, requests_in_flight=ASKED)
        answers = [answer for answer in pool.map(ask, range(ASKED)) if answer is not None]
        statuses = [answer.status_code for answer in answers]
        assert (statuses.count(200), statuses.count(429)) == (QUOTA, ASKED - QUOTA)
        left = {answer.headers["X-RateLimit-Remaining"] for answer in answers if answer.is_success}
        assert left == {str(number) for number in range(QUOTA)}
        assert in_flight(team) == 0
        counted = dispatch.connection().hget(f"{KEYS}team:{team.pk}", "documents_per_day")
        scored = ScoreRequest.objects.filter(status_code=200).values_list("scored_count", flat=True)
        assert int(counted or 0) == sum(scored) == QUOTA  # an empty document is not scored

        limited(requests_per_minute=None, requests_in_flight=QUOTA)
        time.sleep(2 * FRESH_SECONDS)  # until every process has read it
        fleet.tell(WORKER, "hold")
        pending = [pool.submit(ask, number) for number in range(ASKED)]
        wait_for(lambda: sum(each.done() for each in pending) == ASKED - QUOTA, seconds=60, what="the refusals")
        ended = [answer for each in pending if each.done() and (answer := each.result())]
        assert {answer.status_code for answer in ended} == {429}
        assert in_flight(team) == QUOTA
        victim = webs[next(number for number, each in enumerate(pending) if not each.done()) % WEBS]
        victim.kill()
        wait_for(lambda: in_flight(team) < QUOTA, what="the end of what the killed server held")
        for web in webs:
            if web is not victim:
                web.kill()
        wait_for(lambda: in_flight(team) == 0, what="the end of what all held")

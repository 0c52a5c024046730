"""A platform with servers of its own, the ways to disturb it, and what must hold after each of them."""

from __future__ import annotations

import random
import signal
import subprocess
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import httpx
import numpy as np
import numpy.typing as npt
import psycopg
from redis import Redis

from assay import embedded
from assay.supervisor import Platform
from tests.integration.rig import wait_for
from tests.integration.running import FINAL, LOOK_SECONDS, checked

LEASE_SECONDS: Final = 5.0
QUIET: Final = 45.0  # the longest that a job may need to go on after a disturbance


@dataclass
class House:
    """``rows`` reads the database from outside; every other method disturbs, and mends what must be mended by hand."""

    client: httpx.Client
    platform: Platform
    postgres: embedded.Postgres
    redis: embedded.Redis
    database_url: str

    def rows(self, sql: str, *parameters: Any) -> list[tuple[Any, ...]]:
        with psycopg.connect(self.database_url, autocommit=True) as connection:
            return connection.execute(sql, parameters).fetchall()

    @property
    def workers(self) -> list[str]:
        return [name for name in self.platform.programs if name.startswith("worker-")]

    def redis_client(self) -> Redis:
        return Redis.from_url(embedded.redis_url(self.redis.data_dir))

    # What happens to processes. Their supervisor starts them again.

    def kill_a_worker(self) -> None:
        self.platform.signal(self._busy_worker(), signal.SIGKILL)

    def kill_both_workers(self) -> None:
        for name in self.workers:
            self.platform.signal(name, signal.SIGKILL)

    def freeze_a_worker(self) -> None:
        """Longer than its lease: it comes back as one whose chunk somebody else has taken."""
        name = self._busy_worker()
        self.platform.signal(name, signal.SIGSTOP)
        time.sleep(2 * LEASE_SECONDS)
        self.platform.signal(name, signal.SIGCONT)

    def kill_a_worker_that_stores(self) -> None:
        """Its chunk's row is held by somebody else, so that it is met between scoring and the end of storing."""
        with psycopg.connect(self.database_url) as holder:
            held = holder.execute(
                "SELECT c.id, w.name FROM scoring_chunk c JOIN scoring_worker w ON w.id = c.lease_owner_id "
                "WHERE c.state = 'leased' LIMIT 1 FOR UPDATE OF c"
            ).fetchone()
            if held is None:
                return
            blocked = (
                "SELECT count(*) FROM pg_stat_activity "
                "WHERE wait_event_type = 'Lock' AND query LIKE '%%scoring_chunk%%'"
            )
            wait_for(lambda: self.rows(blocked) != [(0,)], seconds=30, what="a worker that waits for its chunk's row")
            self.platform.signal(held[1], signal.SIGKILL)
            holder.rollback()

    def kill_the_web(self) -> None:
        self.platform.signal("web", signal.SIGKILL)
        self.platform.wait_until_ready()

    def stop_the_reconciler(self, seconds: float = 8.0) -> None:
        self.platform.signal("reconciler", signal.SIGSTOP)
        time.sleep(seconds)
        self.platform.signal("reconciler", signal.SIGCONT)

    def kill_the_reconciler(self) -> None:
        self.platform.signal("reconciler", signal.SIGKILL)

    # What happens to servers.

    def restart_postgres(self) -> None:
        self.postgres.stop()
        time.sleep(2.0)
        self.postgres.start()

    def crash_postgres(self) -> None:
        """Every backend ends at once; the server recovers from its log."""
        pid = int((self.postgres.folder / "postmaster.pid").read_text().split("\n", 1)[0])
        subprocess.run(["kill", "-QUIT", str(pid)], check=True)  # an immediate shutdown
        time.sleep(1.0)
        self.postgres.start()

    def flush_redis(self) -> None:
        with self.redis_client() as client:
            client.flushall()

    def restart_redis(self) -> None:
        self.redis.stop()
        self.redis.start()

    def take_redis_away(self, seconds: float = 8.0) -> None:
        self.redis.stop()
        time.sleep(seconds)
        self.redis.start()

    def fill_redis(self, seconds: float = 5.0) -> None:
        """No room for any message: the server refuses every write."""
        with self.redis_client() as client:
            client.config_set("maxmemory", 1)
            time.sleep(seconds)
            client.config_set("maxmemory", 0)

    def wake_a_hundred_times(self) -> None:
        with self.redis_client() as client:
            (message,) = self._one_wake_up(client)
            client.rpush("batch", *[message] * 100)

    # What people do to a job.

    def pause_and_resume(self) -> None:
        for job in self._open_jobs():
            if self._asked(job, "pause"):
                idle = "SELECT count(*) FROM scoring_chunk WHERE job_id = %s AND state = 'leased'"
                wait_for(lambda: self.rows(idle, job) == [(0,)], seconds=QUIET, what="a paused job without leases")  # noqa: B023 - called at once
                checked(self.client.post(f"/api/v1/jobs/{job}/resume"))

    def cancel_and_retry(self) -> None:
        for job in self._open_jobs():
            if self._asked(job, "cancel"):
                path = f"/api/v1/jobs/{job}"
                wait_for(lambda: checked(self.client.get(path))["state"] in FINAL, seconds=QUIET, what="the cancel")  # noqa: B023 - called at once
                checked(self.client.post(f"{path}/retry"))

    def _asked(self, job: str, verb: str) -> bool:
        """False: the job has ended meanwhile, so that there was nothing to do."""
        response = self.client.post(f"/api/v1/jobs/{job}/{verb}")
        assert response.is_success or response.status_code == 409, response.text
        return response.is_success

    def _open_jobs(self) -> list[str]:
        return [str(job) for (job,) in self.rows("SELECT id FROM scoring_job WHERE state IN ('queued', 'running')")]

    def _busy_worker(self) -> str:
        """One with a chunk in hand, if there is one."""
        busy = self.rows(
            "SELECT w.name FROM scoring_chunk c JOIN scoring_worker w ON w.id = c.lease_owner_id "
            "WHERE c.state = 'leased'"
        )
        return random.choice([name for (name,) in busy if name in self.workers] or self.workers)

    def _one_wake_up(self, client: Redis) -> list[bytes]:
        """A real message as the platform sends it."""
        from tests.stack import manage

        environment = dict(self.platform.environment)
        manage(environment, "shell", "--no-imports", "-c", "from scoring.dispatch import workers_wake; workers_wake()")
        found: Any = client.lrange("batch", 0, 0)
        return list(found) or [b"{}"]


DISTURBANCES: Final[dict[str, Callable[[House], None]]] = {
    method.__name__: method
    for method in (
        House.kill_a_worker,
        House.kill_both_workers,
        House.freeze_a_worker,
        House.kill_a_worker_that_stores,
        House.kill_the_web,
        House.stop_the_reconciler,
        House.kill_the_reconciler,
        House.restart_postgres,
        House.crash_postgres,
        House.flush_redis,
        House.restart_redis,
        House.take_redis_away,
        House.fill_redis,
        House.wake_a_hundred_times,
        House.pause_and_resume,
        House.cancel_and_retry,
    )
}


def ended(house: House, job: dict[str, Any], *, seconds: float = 240.0) -> dict[str, Any]:
    """The job at its end; the web server may be away in between."""
    last: dict[str, Any] = {}

    def is_final() -> bool:
        try:
            last.update(house.client.get(f"/api/v1/jobs/{job['id']}").json())
        except httpx.TransportError:
            return False
        return last.get("state") in FINAL

    wait_for(is_final, seconds=seconds, what=f"the end of job {job['id']}", every=LOOK_SECONDS)
    return last


def scores(house: House, job: dict[str, Any]) -> npt.NDArray[np.float32]:
    """Every score of the job's last stage, [Q, D]. Every pair must be in exactly one chunk, and that chunk done."""
    matrix = np.full((job["query_count"], job["document_count"]), np.inf, np.float32)
    chunks = house.rows(
        "SELECT query_start, query_count, document_start, document_count, state, raw_scores FROM scoring_chunk "
        "WHERE job_id = %s",
        job["id"],
    )
    for query, queries, document, documents, state, raw in chunks:
        assert state == "done", state
        place = matrix[query : query + queries, document : document + documents]
        assert np.isposinf(place).all(), "two chunks hold the same pair"
        place[:] = np.frombuffer(raw, "<f4").reshape(queries, documents)
    assert not np.isposinf(matrix).any(), "a pair is in no chunk"
    return matrix


def nothing_is_left(house: House, job: dict[str, Any]) -> None:
    """No lease, no reservation, one ranking for each query."""
    assert house.rows("SELECT count(*) FROM scoring_chunk WHERE state = 'leased'") == [(0,)]
    ranked = house.rows(
        "SELECT count(*), count(DISTINCT query_position), min(kept) FROM scoring_queryresult r "
        "JOIN scoring_stage s ON s.id = r.stage_id WHERE s.job_id = %s",
        job["id"],
    )
    assert ranked == [(job["query_count"], job["query_count"], job["document_count"])]
    reserved = (
        "SELECT coalesce(sum((statistics->'engine'->>'reserved_bytes')::bigint "
        "+ (statistics->'engine'->>'requests_in_flight')::bigint), 0) FROM scoring_worker "
        "WHERE state = 'ready' AND heartbeat_at > now() - interval '3 s'"
    )
    wait_for(lambda: house.rows(reserved) == [(0,)], seconds=30, what="reservations back to zero")


def end_of_the_log(folder: Path, lines: int = 30) -> str:
    logs = sorted(folder.glob("*.log"))
    return "\n".join(f"== {log.stem}\n" + "\n".join(log.read_text().splitlines()[-lines:]) for log in logs)

"""A worker whose clock is two hours ahead does everything that others do: leases and deadlines are on shared clocks."""

from __future__ import annotations

import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from assay.settings import env
from assay.supervisor import manage_command
from tests.integration.rig import wait_for
from tests.integration.running import Rows, checked, finished, registered, submitted
from tests.stack import Stack

pytestmark = [
    pytest.mark.stack,
    pytest.mark.skipif(shutil.which("cc") is None, reason="a C compiler builds the library that shifts the clock"),
]

AHEAD = """
#define _GNU_SOURCE
#include <dlfcn.h>
#include <sys/time.h>
#include <time.h>

int clock_gettime(clockid_t clock, struct timespec *now) {
    int (*real)(clockid_t, struct timespec *) = dlsym(RTLD_NEXT, "clock_gettime");
    int failed = real(clock, now);
    if (clock == CLOCK_REALTIME || clock == CLOCK_REALTIME_COARSE) now->tv_sec += 7200;
    return failed;
}
int gettimeofday(struct timeval *restrict now, void *restrict zone) {
    int (*real)(struct timeval *, void *) = dlsym(RTLD_NEXT, "gettimeofday");
    int failed = real(now, zone);
    now->tv_sec += 7200;
    return failed;
}
time_t time(time_t *now) {
    struct timespec at;
    clock_gettime(CLOCK_REALTIME, &at);
    if (now) *now = at.tv_sec;
    return at.tv_sec;
}
"""


@pytest.fixture
def rows(stack: Stack) -> Iterator[Rows]:
    rows = Rows(stack.database_url)
    yield rows
    rows.close()


@pytest.fixture
def only_worker(stack: Stack, rows: Rows, tmp_path: Path) -> Iterator[str]:
    """The one worker there is, with a clock that is two hours ahead."""
    source, library, name = tmp_path / "ahead.c", tmp_path / "ahead.so", "worker-ahead"
    source.write_text(AHEAD)
    subprocess.run(["cc", "-shared", "-fPIC", "-o", library, source, "-ldl"], check=True)
    told = "import time, datetime; print(time.time() - 7200, datetime.datetime.now().timestamp() - 7200)"
    shifted = subprocess.run(
        [sys.executable, "-c", told], env={"LD_PRELOAD": str(library)}, check=True, capture_output=True, text=True
    )
    assert all(abs(float(clock) - time.time()) < 600 for clock in shifted.stdout.split())
    for worker in list(stack.workers):
        stack.kill_worker(signal.SIGTERM, name=worker)
    environment = env.for_child({**stack.environment, "LD_PRELOAD": str(library)})
    with (tmp_path / "log").open("wb") as log:
        process = subprocess.Popen(
            manage_command("gpu_worker", "--name", name), env=environment, cwd=env.ROOT, stdout=log, stderr=log
        )
    try:
        wait_for(lambda: rows.alive() == [name], seconds=90, what="the worker")
        yield name
    finally:
        process.terminate()
        process.wait(30)
        stack.start_worker()
        wait_for(lambda: rows.alive() == stack.workers, seconds=90, what="the worker of all tests")


def test_a_worker_two_hours_ahead_works_like_any_other(stack: Stack, rows: Rows, only_worker: str) -> None:
    model = registered(stack.client, "late-ahead")
    body = {"model": model, "query": "honey", "documents": ["bees make honey", "the bridge is closed"]}
    assert checked(stack.client.post("/rerank", json=body))["results"][0]["index"] == 0
    job = submitted(stack.client, model, chunks=6)
    assert finished(stack.client, job)["state"] == "completed"
    done = rows(
        "SELECT bool_and(c.finished_at <= now()), max(c.attempts), max(c.cause) FROM scoring_chunk c WHERE job_id = %s",
        job["id"],
    )
    assert done == [(True, 0, "")]
    lost = "SELECT 1 FROM scoring_transition WHERE entity = 'worker' AND to_state = 'lost' AND actor = 'reconciler'"
    assert rows(f"{lost} AND entity_id IN (SELECT id::text FROM scoring_worker WHERE name = %s)", only_worker) == []

"""The small parts a worker's process stands on: its loops, its watchdog, its identity."""

from __future__ import annotations

import multiprocessing
import subprocess
import sys
import threading
import time
import uuid
from pathlib import Path

import pytest
from django.db import OperationalError

from workers import identity
from workers.identity import NameRefused, worker_identity
from workers.loop import Loop
from workers.watchdog import EXIT_STALLED

STALLED = """
import sys, time
sys.path[:0] = [{root!r}, {platform!r}]
from workers.watchdog import Watchdog

def hung_kernel():
    time.sleep(60)

Watchdog(progress=lambda: {progress}, limit=lambda: {limit}, last_words=lambda: print("stalled", flush=True)).start()
started = time.monotonic()
while time.monotonic() - started < {seconds}:
    hung_kernel() if {limit} and {progress} else time.sleep(0.1)
"""


def test_a_loop_outlives_what_its_step_raises(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("workers.loop.PAUSE_AFTER_ERROR", 0.01)
    errors: list[Exception] = [OperationalError("the database is gone"), ValueError("a fault of ours")]
    done = threading.Event()

    def step() -> bool:
        if errors:
            raise errors.pop()
        done.set()
        return False

    loop = Loop("test", step, seconds=0.01)
    loop.start()
    assert done.wait(5)
    assert loop.stop(timeout=5)


def test_a_wake_up_during_a_step_is_not_lost() -> None:
    calls, first = [], threading.Event()

    def step() -> bool:
        calls.append(1)
        if len(calls) == 1:
            loop.wake()
            first.set()
        return False

    loop = Loop("test", step, seconds=60)
    loop.start()
    assert first.wait(5)
    time.sleep(0.3)
    assert len(calls) == 2
    assert loop.stop(timeout=5)


@pytest.mark.parametrize(
    ("progress", "limit", "code"), [("7", "0.5", EXIT_STALLED), ("7", "None", 0), ("None", "0.5", 0)]
)
def test_work_without_progress_ends_the_process(
    progress: str, limit: str, code: int, pytestconfig: pytest.Config
) -> None:
    root = pytestconfig.rootpath
    fields = {"root": str(root), "platform": str(root / "platform"), "progress": progress, "limit": limit}
    script = STALLED.format(**fields, seconds=3)
    result = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=60, check=False)
    assert result.returncode == code, result.stderr
    assert ("stalled" in result.stdout) == (code == EXIT_STALLED)
    # Where it hung is in the log: that is what one looks for afterwards.
    assert ("hung_kernel" in result.stderr) == (code == EXIT_STALLED)


def test_a_worker_keeps_its_id_over_restarts(tmp_path: Path) -> None:
    with worker_identity("worker-1", folder=tmp_path) as first:
        pass
    with worker_identity("worker-1", folder=tmp_path) as again, worker_identity("worker-2", folder=tmp_path) as other:
        assert again == first
        assert other != first


def _hold(folder: Path, held: object, release: object) -> None:
    with worker_identity("worker-1", folder=folder):
        held.set()  # type: ignore[attr-defined]
        release.wait(30)  # type: ignore[attr-defined]


def test_a_name_belongs_to_one_process(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(identity, "PATIENCE_SECONDS", 0.3)
    context = multiprocessing.get_context("spawn")
    held, release = context.Event(), context.Event()
    process = context.Process(target=_hold, args=(tmp_path, held, release))
    process.start()
    try:
        assert held.wait(30)
        with pytest.raises(NameRefused, match="another --name"), worker_identity("worker-1", folder=tmp_path):
            pass
        process.kill()
        process.join()
        with worker_identity("worker-1", folder=tmp_path) as worker_id:
            assert isinstance(worker_id, uuid.UUID)
    finally:
        process.kill()
        process.join()


@pytest.mark.parametrize("name", ["", "../x", "a b", "x" * 64])
def test_names_that_are_no_file_names_are_refused(tmp_path: Path, name: str) -> None:
    with pytest.raises(NameRefused, match="such as worker-1"), worker_identity(name, folder=tmp_path):
        pass


def test_a_worker_without_the_gpu_it_was_started_for_says_so() -> None:
    import torch

    from workers.process import device_problem

    absent = f"cuda:{torch.cuda.device_count()}"
    assert f"DEVICE is '{absent}'" in device_problem(absent)
    assert (device_problem("cpu"), device_problem("auto")) == ("", "")

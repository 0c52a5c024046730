"""One slot, two processes: what happens when the same worker is started twice by way of a copied data folder."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest

from assay.settings import env
from assay.supervisor import manage_command
from tests.integration.rig import wait_for
from tests.stack import Stack
from workers.process import EXIT_REPLACED

pytestmark = pytest.mark.stack
NAME = "worker-slot"


@pytest.fixture
def started(stack: Stack) -> Iterator[list[subprocess.Popen[bytes]]]:
    processes: list[subprocess.Popen[bytes]] = []
    yield processes
    for process in processes:
        process.kill()
        process.wait()


def start(stack: Stack, data_dir: Path) -> subprocess.Popen[bytes]:
    environment = env.for_child({**stack.environment, "DATA_DIR": str(data_dir)})
    return subprocess.Popen(manage_command("gpu_worker", "--name", NAME), env=environment, cwd=env.ROOT)


def test_the_older_process_leaves_and_leaves_the_row_alone(
    stack: Stack, started: list[subprocess.Popen[bytes]], tmp_path: Path
) -> None:
    def row() -> tuple[object, ...]:
        with psycopg.connect(stack.database_url) as connection:
            return connection.execute("SELECT pid, state FROM scoring_worker WHERE name = %s", [NAME]).fetchone() or ()

    first_folder, second_folder = tmp_path / "first", tmp_path / "second"
    shutil.copytree(Path(stack.environment["DATA_DIR"]) / "secrets", first_folder / "secrets")
    older = start(stack, first_folder)
    started.append(older)
    wait_for(lambda: row() == (older.pid, "ready"), seconds=60, what="the first process")
    shutil.copytree(first_folder, second_folder)
    newer = start(stack, second_folder)
    started.append(newer)
    assert older.wait(60) == EXIT_REPLACED
    wait_for(lambda: row() == (newer.pid, "ready"), seconds=60, what="the second process")
    newer.terminate()
    assert newer.wait(30) == 0
    assert row() == (newer.pid, "gone")

"""What takes its time: a large upload, and a wait that somebody interrupts."""

from __future__ import annotations

import os
import pty
import signal
import subprocess
import sys
import tracemalloc
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from assay.client import Client
from assay.settings import env
from tests.client.test_commands import DOCUMENTS, QUERIES
from tests.stack import Stack

pytestmark = pytest.mark.stack

ROWS, ROW_BYTES = 40, 1_000_000
CHUNK_BYTES = 1 << 20


def test_a_large_file_is_sent_as_it_is_read(server: Stack, tmp_path: Path) -> None:
    file = tmp_path / "large.csv"
    with file.open("w") as out:
        out.write("id,text\n")
        for number in range(ROWS):
            out.write(f"{number},{'honey ' * (ROW_BYTES // 6)}\n")
    told: list[tuple[int, int]] = []
    with Client() as client:
        client.cards()  # what the first request of all costs is not the upload's
        tracemalloc.start()
        uploaded = client.document_sets.upload(file, on_progress=lambda sent, total: told.append((sent, total)))
        _, peak = tracemalloc.get_traced_memory()
        tracemalloc.stop()
        client.document_sets.delete(uploaded["id"])
    assert uploaded["counts"]["kept"] == ROWS
    assert peak < 2 * CHUNK_BYTES < file.stat().st_size / 10
    assert told[-1] == (file.stat().st_size,) * 2 and len(told) > ROWS


@pytest.mark.parametrize(("answer", "state"), [("n", "scheduled"), ("y", "cancelled")])
def test_ctrl_c_asks_what_becomes_of_the_job(server: Stack, model: str, answer: str, state: str) -> None:
    later = (datetime.now(UTC) + timedelta(days=1)).isoformat()
    with Client() as client:
        documents, queries = client.document_sets.upload(DOCUMENTS), client.query_sets.upload(QUERIES)
        job = client.jobs.create(documents["id"], queries["id"], model=model, start_at=later)
        ours, theirs = pty.openpty()
        waiting = subprocess.Popen(
            [sys.executable, "-m", "assay.cli", "jobs", "wait", job["id"]],
            env=env.for_child({}), stdin=theirs, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
            preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
        )  # fmt: skip
        assert waiting.stderr is not None
        assert job["id"] in waiting.stderr.readline()  # it watches
        waiting.send_signal(signal.SIGINT)
        os.write(ours, f"{answer}\n".encode())
        _, said = waiting.communicate(timeout=60)
        os.close(ours)
        os.close(theirs)
        assert waiting.returncode == 130 and "Traceback" not in said
        assert (f"assay jobs wait {job['id']}" in said) is (answer == "n")
        if answer == "n":
            assert client.jobs.get(job["id"])["state"] == state
            client.jobs.cancel(job["id"])
        assert client.jobs.wait(job["id"], seconds=60)["state"] == "cancelled"

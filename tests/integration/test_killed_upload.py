"""A web process killed while a file comes in: nothing of it is seen afterwards, and nothing of it stays."""

from __future__ import annotations

import signal
import socket
import threading
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlsplit

import httpx
import psutil
import pytest

from tests.integration.rig import wait_for
from tests.integration.running import Rows, checked
from tests.stack import Stack

pytestmark = pytest.mark.stack

ROWS = 150_000
BOUNDARY = "border"


@pytest.fixture
def rows(stack: Stack) -> Iterator[Rows]:
    rows = Rows(stack.database_url)
    yield rows
    rows.close()


def web_processes(stack: Stack) -> list[psutil.Process]:
    leader = stack.platform.programs["web"].process
    assert leader is not None
    parent = psutil.Process(leader.pid)
    return [parent, *parent.children(recursive=True)]


def kill_web(stack: Stack) -> None:
    """SIGKILL to every process of the web server; returns when the next one serves."""
    killed = web_processes(stack)
    stack.platform.signal("web", signal.SIGKILL)
    psutil.wait_procs(killed, timeout=20)
    stack.platform.wait_until_ready()


def open_bytes(stack: Stack, folder: Path) -> int:
    """The size of what the web server holds open below ``folder``, with a name or without."""
    size = 0
    for process in web_processes(stack):
        for link in Path(f"/proc/{process.pid}/fd").iterdir():
            if str(link.readlink()).startswith(f"{folder}/"):
                size += link.stat().st_size
    return size


def stored(rows: Rows) -> tuple[int, ...]:
    (counts,) = rows(
        "SELECT (SELECT count(*) FROM scoring_documentset), (SELECT count(*) FROM scoring_document),"
        " (SELECT count(*) FROM scoring_upload)"
    )
    return counts


def test_killed_while_the_body_streams(stack: Stack, rows: Rows) -> None:
    temporary = Path(stack.environment["DATA_DIR"]) / "uploads"
    before, files = stored(rows), list(temporary.iterdir())
    head = (
        f'--{BOUNDARY}\r\nContent-Disposition: form-data; name="file"; filename="half.csv"\r\n'
        "Content-Type: text/csv\r\n\r\nid,text\r\n"
    ).encode()
    address = urlsplit(stack.base_url)
    with socket.create_connection((address.hostname, address.port), timeout=30) as connection:
        connection.sendall(
            f"POST /api/v1/document-sets HTTP/1.1\r\nHost: {address.netloc}\r\n"
            f"Authorization: Bearer {stack.token}\r\nContent-Length: {64 << 20}\r\n"
            f"Content-Type: multipart/form-data; boundary={BOUNDARY}\r\n\r\n".encode()
            + head
            + b"1,some words\r\n" * (1 << 18)
        )
        wait_for(lambda: open_bytes(stack, temporary) > 1 << 20, what="a part of the file on the disk")
        kill_web(stack)
    assert list(temporary.iterdir()) == files
    assert stored(rows) == before
    assert "half" not in stack.client.get("/api/v1/document-sets").text


def test_killed_while_the_rows_are_copied(stack: Stack, rows: Rows) -> None:
    content = ("id,text\n" + "".join(f"{n},text {n}\n" for n in range(ROWS))).encode()
    temporary = Path(stack.environment["DATA_DIR"]) / "uploads"
    before, files = stored(rows), list(temporary.iterdir())
    outcome: list[httpx.Response | httpx.TransportError] = []

    def send(client: httpx.Client) -> httpx.Response:
        file = {"file": ("whole.csv", content, "text/csv")}
        return client.post("/api/v1/document-sets", files=file, data={"name": "killed"})

    def attempt() -> None:
        try:
            outcome.append(send(stack.client))
        except httpx.TransportError as error:
            outcome.append(error)

    uploading = threading.Thread(target=attempt)
    uploading.start()
    copied = "SELECT 1 FROM pg_stat_progress_copy WHERE relid = 'scoring_document'::regclass AND tuples_processed > 999"
    wait_for(lambda: rows(copied), seconds=60, what="the first rows")
    kill_web(stack)
    uploading.join(timeout=60)
    assert isinstance(outcome[0], httpx.TransportError)  # the answer of a finished upload would be a response

    wait_for(lambda: not rows(copied), seconds=60, what="the end of the copy")
    assert stored(rows) == before
    assert list(temporary.iterdir()) == files
    assert "killed" not in stack.client.get("/api/v1/document-sets").text
    again = checked(send(stack.client))  # what was begun is in nobody's way
    assert again["counts"]["kept"] == ROWS
    assert stored(rows) == (before[0] + 1, before[1] + ROWS, before[2])
    assert stack.client.delete(f"/api/v1/document-sets/{again['id']}").status_code == 204


def test_a_large_file_is_not_held_in_memory(stack: Stack) -> None:
    assert stack.client.get("/api/v1/document-sets").is_success  # what is loaded on first use is loaded
    content = b"id,text\n" + b"".join(b"%d,%s\n" % (n, b"words " * 150_000) for n in range(64))
    peaks_before = [forget_peak(process.pid) for process in web_processes(stack)]
    file = {"file": ("large.csv", content, "text/csv")}
    counts = checked(stack.client.post("/api/v1/document-sets/preview", files=file))["counts"]
    assert counts["kept"] == 64 and len(content) > 54 << 20
    grown = [peak(p.pid) - before for p, before in zip(web_processes(stack), peaks_before, strict=True)]
    assert max(grown) < 32 << 20


def forget_peak(pid: int) -> int:
    """Let the system count the peak of resident memory anew; returns the present one, in bytes."""
    Path(f"/proc/{pid}/clear_refs").write_text("5")
    return peak(pid)


def peak(pid: int) -> int:
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return 1024 * next(int(line.split()[1]) for line in lines if line.startswith("VmHWM:"))

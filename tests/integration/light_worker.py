"""A worker without a model: real rows, heartbeats and queues, and scores that follow from the texts.

Run as ``python -m tests.integration.light_worker NAME ID``. What it does with a request stands in the Redis hash
``light:NAME`` under ``do``: ``answer`` (also if absent), ``hold`` (acknowledge and never answer), ``wait``
(acknowledge, and answer once told something else) or the code of a refusal. What it did is counted there too.
"""

from __future__ import annotations

import os
import sys
import threading
import uuid
from collections import deque
from collections.abc import Sequence
from contextlib import suppress
from itertools import product
from typing import Any

from scoring.payloads import SyncReply, SyncRequest

SECONDS_BETWEEN_LOOKS = 0.1


def score_of(query: str, document: str) -> float:
    """What a light worker answers."""
    from scoring.affinity import digests

    return float(sum(int(digest) % 4096 for digest in digests([query, document])))


def reply_to(call: SyncRequest, *, worker: str, revision: str = "r1") -> SyncReply:
    pairs = list(
        product(call.queries, call.documents)
        if call.pairing == "matrix"
        else zip(call.queries, call.documents, strict=True)
    )
    scores: list[float | None] = [score_of(query, document) for query, document in pairs]
    return SyncReply(
        scores=scores,
        raw_scores=scores,
        statuses=["ok" if document else "empty" for _, document in pairs],
        errors={str(n): "odd" for n, score in enumerate(scores) if score and score % 97 == 0},
        truncated_tokens=[len(document) % 3 for _, document in pairs],
        query_truncated_tokens=[len(query) % 2 for query in call.queries],
        best_windows=[[0, len(document)] for _, document in pairs],
        scale="cosine",
        prompt_tokens=sum(map(len, (*call.queries, *call.documents))),
        query_tokens=sum(map(len, call.queries)),
        timings={"queue": 1.0, "tokenise": 0.0, "forward": float(len(call.documents)), "maxsim": 0.0, "total": 2.0},
        backend="cpu",
        dtype="float32",
        revision=revision,
        worker=worker,
    )


class LightWorker:
    def __init__(self, name: str, worker_id: uuid.UUID) -> None:
        from workers import tasks
        from workers.consumer import Consumer

        self.name, self.worker_id = name, worker_id
        self.sync, self.stopped = self, threading.Event()
        self.held: Sequence[uuid.UUID] = ()
        self.waiting: deque[dict[str, Any]] = deque()
        self.register()
        tasks.serve(self)  # type: ignore[arg-type] # it has what the tasks use
        self.consumer = Consumer(name=name, worker_id=worker_id, models=lambda: self.held)

    def register(self) -> None:
        from scoring.services.workers import worker_register

        self.row = worker_register(
            worker_id=self.worker_id, boot_id=uuid.uuid4(), name=self.name, host="here", pid=os.getpid(), device="cpu"
        )

    def look(self) -> None:
        """What it holds, as the rows say it; it registers again where there is no row of it any more."""
        from scoring.models import Placement
        from scoring.services.workers import worker_heartbeat, worker_move
        from scoring.states import SERVING, WorkerState

        self.held = list(
            Placement.objects.filter(worker=self.row, state__in=SERVING).values_list("model_id", flat=True)
        )
        if not worker_heartbeat(worker=self.row, progress=0, memory_bytes=0, in_hand=[], statistics={}):
            self.register()
            worker_move(worker=self.row, to=WorkerState.READY, reason="started")

    def wake(self) -> None:
        pass

    def answer(self, payload: dict[str, Any]) -> None:
        from scoring import dispatch

        call = SyncRequest.from_json(payload)
        redis, key = dispatch.connection(), f"light:{self.name}"
        if not dispatch.reply_acknowledge(call, worker_id=self.row.pk, boot_id=self.row.boot_id):
            redis.hincrby(key, "dropped")
            return
        redis.hincrby(key, "taken")
        self.obey(payload)

    def obey(self, payload: dict[str, Any]) -> None:
        from scoring import dispatch

        call = SyncRequest.from_json(payload)
        redis, key = dispatch.connection(), f"light:{self.name}"
        do = str(redis.hget(key, "do") or "answer")
        if do == "answer":
            revision = str(redis.hget(key, "revision") or "r1")
            dispatch.reply_send(call, reply_to(call, worker=self.name, revision=revision))
        elif do == "wait":
            self.waiting.append(payload)
        elif do != "hold":
            dispatch.reply_send(call, SyncReply(error_code=do, error_message=f"documents[0]: {do}"))

    def run(self) -> None:
        """Until SIGTERM: hold what the rows say that this worker holds, and come back into a database made empty."""
        from django.core.exceptions import ObjectDoesNotExist
        from django.db import DatabaseError, close_old_connections

        from scoring.services.workers import worker_move
        from scoring.states import WorkerState

        assert self.consumer.start(patience=30)
        worker_move(worker=self.row, to=WorkerState.READY, reason="started")
        while not self.stopped.wait(SECONDS_BETWEEN_LOOKS):
            for _ in range(len(self.waiting)):
                self.obey(self.waiting.popleft())
            close_old_connections()
            with suppress(ObjectDoesNotExist, DatabaseError):  # the database is made empty at this very moment
                self.look()
        worker_move(worker=self.row, to=WorkerState.DRAINING, reason="stopping")
        self.consumer.stop(4.0)
        worker_move(worker=self.row, to=WorkerState.GONE, reason="stopped")


def main() -> None:
    import signal

    import django

    django.setup()
    worker = LightWorker(sys.argv[1], uuid.UUID(sys.argv[2]))
    signal.signal(signal.SIGTERM, lambda *_: worker.stopped.set())
    worker.run()
    os._exit(0)


if __name__ == "__main__":
    main()

"""What messages leave behind in Redis: queues of workers that are gone, and messages that nobody waits for."""

from __future__ import annotations

from typing import Final

import redis

from scoring import dispatch
from scoring.dispatch import MODEL_QUEUES, model_queue, worker_queue
from scoring.models import ScoringModel
from scoring.selectors.workers import workers_answering

SWEPT: Final = "assay:queues-swept"
SWEEP_SECONDS: Final = 60


def queues_sweep(*, now: bool = False) -> int:
    """The reconciler's part, once in SWEEP_SECONDS: delete queues without a reader to come, and messages of a model's
    queue whose callers have all left. Returns how many queues it deleted."""
    try:
        if not dispatch.connection().set(SWEPT, "1", nx=not now, ex=SWEEP_SECONDS):
            return 0
        return _sweep()
    except redis.RedisError:
        return 0  # there is nothing to sweep in a Redis that is away


def _sweep() -> int:
    queues = dispatch.queues_found()
    if not queues:
        return 0
    read = {worker_queue(pk) for pk in workers_answering()}
    read |= {model_queue(pk) for pk in ScoringModel.objects.values_list("pk", flat=True)}
    waited_for = dict(zip(order := sorted(queues & read), dispatch.loads(order), strict=True))
    useless = [name for name in queues if not waited_for.get(name)]
    unread = [name for name in useless if name not in read or name.startswith(MODEL_QUEUES)]
    return dispatch.queues_delete(unread)

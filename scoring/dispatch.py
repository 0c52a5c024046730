"""The only place that sends Celery messages, by task name: the web never imports a worker's code.

Each worker has a queue of its own, each model one for whoever holds it. A synchronous call is one message, then the
reply on a private Redis list. What is not answered at once has an element before it that says who took it, so that a
dead queue is told from a slow model within ACK_SECONDS. While its caller waits, a mark of the caller's lives in Redis.
Whoever finds no mark drops the call: the caller was answered by somebody else, gave up, or died with its process.
"""

from __future__ import annotations

import json
import logging
import time
import uuid
from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import cache
from typing import Any, Final

import redis
from django.conf import settings
from kombu import Queue
from kombu.exceptions import OperationalError

from assay.celery import app
from assay.errors import AssayError
from assay.kept import Kept
from scoring.celery_message import celery_message
from scoring.payloads import PayloadError, SyncReply, SyncRequest

BATCH_QUEUE: Final = "batch"
WORKER_QUEUES: Final = "w."
MODEL_QUEUES: Final = "m."
IN_FLIGHT: Final = "assay:in-flight:"
ANSWER_TASK: Final = "workers.answer"
WAKE_TASK: Final = "workers.wake"
RECONCILER_WAKE: Final = "assay:reconciler:wake"
ACK_SECONDS: Final = 0.75
REPLY_TTL_SECONDS: Final = 60
IN_FLIGHT_TTL_SECONDS: Final = 900  # longer than any caller may wait; each entry ends by its own deadline before
CALLER_TTL_SECONDS: Final = 10
SOCKET_SECONDS: Final = 5.0
ENCODED_PAIRS: Final = 500  # pairs with documents encoded before that cost about as much as one other pair
# KEYS: the caller's mark, its private list. ARGV: the word for it, the seconds that it is kept.
_ACKNOWLEDGE: Final = """
if redis.call('EXISTS', KEYS[1]) == 0 then return 0 end
redis.call('RPUSH', KEYS[2], ARGV[1])
redis.call('EXPIRE', KEYS[2], ARGV[2])
return 1
"""

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Taken:
    """Who took a call: a worker's slot and which of its processes."""

    worker_id: str
    boot_id: str


@dataclass(frozen=True, slots=True)
class Left:
    """Said by the web to itself: the client hung up."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """Where a message goes and how long it may lie there. ``most``: how many calls may be on this queue at once."""

    queue: str
    patience: float = ACK_SECONDS
    most: int | None = None


@cache
def connection() -> redis.Redis:
    """This process's Redis connection pool (created on first use, after any fork)."""
    return redis.Redis.from_url(
        settings.REDIS_URL, decode_responses=True, health_check_interval=30, socket_timeout=SOCKET_SECONDS
    )


def worker_queue(worker_id: uuid.UUID | str) -> str:
    return f"{WORKER_QUEUES}{worker_id}"


def model_queue(model_id: uuid.UUID | str) -> str:
    """Read by every worker that holds the model ready, and by no other: nothing sticks to a worker that is loading."""
    return f"{MODEL_QUEUES}{model_id}"


def plain_queue(name: str) -> Queue:
    """Reached by its name through the default exchange: no binding is left behind in Redis when the queue goes."""
    return Queue(name, routing_key=name)


def clock() -> float:
    """Redis's time in seconds, the clock that web and workers share."""
    return time.monotonic() + _ahead.get(None)


def _read_ahead(_: None) -> float:
    return _seconds(connection().time()) - time.monotonic()


_ahead: Final = Kept[None, float](_read_ahead)  # asking for every request would be a round trip each


def workers_wake(only: Collection[uuid.UUID] | None = None) -> bool:
    """Tell the workers that there is work: one of them, who tells of it by leasing, or each of ``only``.

    Losing this costs seconds, never a result: they also poll the database.
    """
    try:
        if only is None:
            app.send_task(WAKE_TASK, queue=BATCH_QUEUE, ignore_result=True, retry=False)
        for worker_id in only or ():
            app.send_task(WAKE_TASK, queue=worker_queue(worker_id), declare=[], ignore_result=True, retry=False)
    except (redis.RedisError, OperationalError):
        logger.warning("wake-up not sent: the message queue does not answer; workers will find the work by polling")
        return False
    return True


def reconciler_wake() -> None:
    """Tell the reconciler not to wait for its next round. However many do, it is one element."""
    try:
        with connection().pipeline(transaction=True) as pipe:
            pipe.lpush(RECONCILER_WAKE, "1")
            pipe.ltrim(RECONCILER_WAKE, 0, 0)
            pipe.expire(RECONCILER_WAKE, REPLY_TTL_SECONDS)
            pipe.execute()
    except redis.RedisError:
        logger.warning(
            "wake-up not sent: the message queue does not answer; the reconciler's next round is seconds away"
        )


def reconciler_woken() -> bool:
    """Wait for a wake-up of the reconciler, for a moment."""
    return connection().blpop([RECONCILER_WAKE], timeout=SOCKET_SECONDS / 2) is not None


def queues_found() -> set[str]:
    """Queues of workers and models that Redis has anything of: messages, or calls in flight."""
    names = {key.removeprefix(IN_FLIGHT) for key in connection().scan_iter(count=1000)}
    return {name for name in names if name.startswith((WORKER_QUEUES, MODEL_QUEUES))}


def queue_depths() -> dict[str, int]:
    """Messages that nobody has taken yet, by queue."""
    queues = [BATCH_QUEUE, *sorted(queues_found())]
    with connection().pipeline(transaction=False) as pipe:
        for queue in queues:
            pipe.llen(queue)
        return dict(zip(queues, pipe.execute(), strict=True))


def queues_delete(names: Sequence[str]) -> int:
    """Returns how many of them were there."""
    if not names:
        return 0
    connection().delete(*(IN_FLIGHT + name for name in names))
    return int(connection().delete(*names))


# The caller's side


@contextmanager
def queue_needed() -> Iterator[None]:
    """A message queue that does not answer is a refusal in words."""
    try:
        yield
    except (redis.RedisError, OperationalError) as error:
        raise AssayError(
            "queue_unavailable",
            f"The message queue does not answer ({type(error).__name__}); synchronous scoring must wait until it does.",
            status=503,
            retry_after=5,
        ) from error


def loads(queues: Sequence[str]) -> list[int]:
    """How many pairs callers now wait for, by queue."""
    with connection().pipeline(transaction=False) as pipe:
        pipe.time()
        for queue in queues:
            pipe.zrange(IN_FLIGHT + queue, 0, -1, withscores=True)
        now, *entries = pipe.execute()
    return [sum(int(member.partition(":")[0]) for member, end in members if end > _seconds(now)) for members in entries]


def call_send(call: SyncRequest, target: Target, *, seconds: float) -> SyncRequest:
    """Send ``call`` under a new reply key; what is returned names it. ``seconds``: how long its caller may wait.

    Raises AssayError 429 ``too_many_waiting`` when ``target.most`` callers wait there already.
    """
    now = clock()
    key, queue = f"assay:reply:{uuid.uuid4().hex}", target.queue
    call = replace(call, reply_key=key, queue=queue, sent=now, deadline=now + seconds)
    # The queue is not declared: a list needs no declaration, and declaring would leave a binding for each that was.
    message = celery_message(ANSWER_TASK, call.to_json(), queue=target.queue)
    entries = IN_FLIGHT + target.queue
    with connection().pipeline(transaction=True) as pipe:
        pipe.set(caller_key(call.reply_key), "1", ex=CALLER_TTL_SECONDS)
        pipe.zremrangebyscore(entries, "-inf", now)
        pipe.zadd(entries, {_entry(call): call.deadline})
        pipe.expire(entries, IN_FLIGHT_TTL_SECONDS)
        if target.most is None:
            pipe.lpush(target.queue, message)
            pipe.execute()
            return call
        pipe.zcard(entries)
        *_, count = pipe.execute()
    if count > target.most:
        call_end(call, target.queue)
        raise AssayError(
            "too_many_waiting",
            f"{target.most} requests wait already for model '{call.model_name}' to be loaded; send this one later.",
            status=429,
            retry_after=5,
            extra={"model": call.model_name, "queue": target.queue},
        )
    connection().lpush(target.queue, message)
    return call


def call_taken(call: SyncRequest, queue: str, by: str) -> None:
    """What was sent to ``queue`` is from now on a load of the worker's that took it."""
    with connection().pipeline(transaction=True) as pipe:
        pipe.zrem(IN_FLIGHT + queue, _entry(call))
        pipe.zadd(IN_FLIGHT + by, {_entry(call): call.deadline})
        pipe.expire(IN_FLIGHT + by, IN_FLIGHT_TTL_SECONDS)
        pipe.execute()


def call_end(call: SyncRequest, *queues: str) -> None:
    """Nobody waits for ``call`` any more: whoever has it drops it. Its reply does the same at ``call.queue``."""
    with connection().pipeline(transaction=True) as pipe:
        pipe.delete(caller_key(call.reply_key), call.reply_key)
        for queue in queues:
            pipe.zrem(IN_FLIGHT + queue, _entry(call))
        pipe.execute()


def callers_stay(calls: Collection[SyncRequest]) -> None:
    """Renew the marks of calls that somebody waits for."""
    with connection().pipeline(transaction=False) as pipe:
        for call in calls:
            pipe.set(caller_key(call.reply_key), "1", ex=CALLER_TTL_SECONDS)
        pipe.execute()


def callers_leave(calls: Collection[SyncRequest]) -> None:
    """Take the marks away at once, so that what is not started is dropped, and wake the thread that waits."""
    with connection().pipeline(transaction=True) as pipe:
        for call in calls:
            pipe.delete(caller_key(call.reply_key))
            pipe.rpush(call.reply_key, json.dumps({"left": True}))
            pipe.expire(call.reply_key, CALLER_TTL_SECONDS)
        pipe.execute()


def answer_pop(calls: Sequence[SyncRequest], seconds: float) -> tuple[int, Taken | Left | SyncReply] | None:
    """Wait for the next word on any of ``calls``: its place in the list and what was said."""
    keys = [call.reply_key for call in calls]
    # A slice is shorter than the socket's own timeout, which so tells a dead server from a slow model.
    popped: Any = connection().blpop(keys, timeout=min(max(seconds, 0.01), SOCKET_SECONDS / 2))
    if popped is None:
        return None
    place, word = keys.index(popped[0]), json.loads(popped[1])
    if "left" in word:
        return place, Left()
    return place, Taken(**word["taken"]) if "taken" in word else reply_read(word)


def reply_read(word: dict[str, Any]) -> SyncReply:
    try:
        return SyncReply.from_json(word)
    except PayloadError as error:
        raise AssayError("unknown_payload", f"The worker's reply cannot be read: {error}", status=503) from error


def no_worker(model_name: str, why: str, *, queue: str = BATCH_QUEUE) -> AssayError:
    return AssayError(
        "no_worker",
        f"Model '{model_name}' cannot answer now: {why} (queue '{queue}'). "
        "Start a worker with `manage.py gpu_worker`, or try again shortly.",
        status=503,
        retry_after=5,
        extra={"model": model_name, "queue": queue},
    )


# The worker's side


def reply_send(call: SyncRequest, reply: SyncReply) -> None:
    """The call ends with it: a caller that was not told who has it has nothing left to tidy away."""
    with connection().pipeline(transaction=True) as pipe:
        pipe.rpush(call.reply_key, json.dumps(reply.to_json(), allow_nan=False))
        pipe.expire(call.reply_key, REPLY_TTL_SECONDS)
        pipe.delete(caller_key(call.reply_key))
        if call.queue:
            pipe.zrem(IN_FLIGHT + call.queue, _entry(call))
        pipe.execute()


def reply_acknowledge(call: SyncRequest, *, worker_id: uuid.UUID, boot_id: uuid.UUID) -> bool:
    """Tell the caller who took its request. False: nobody waits for it any more, do not start."""
    word = json.dumps({"taken": {"worker_id": str(worker_id), "boot_id": str(boot_id)}})
    keys = [caller_key(call.reply_key), call.reply_key]
    return bool(_acknowledge()(keys, [word, REPLY_TTL_SECONDS]))


@cache
def _acknowledge() -> Any:
    return connection().register_script(_ACKNOWLEDGE)


def caller_left(calls: Sequence[SyncRequest]) -> list[bool]:
    with connection().pipeline(transaction=False) as pipe:
        for call in calls:
            pipe.exists(caller_key(call.reply_key))
        return [not present for present in pipe.execute()]


def caller_key(reply_key: str) -> str:
    return f"{reply_key}:caller"


def pairs_of(call: SyncRequest) -> int:
    if call.options.ranking:
        return call.options.ranking.count
    queries = len(call.queries) + len(call.query_ids) if call.pairing == "matrix" else 1
    return queries * (len(call.documents) + len(call.document_ids))


def load_of(call: SyncRequest) -> int:
    """Pairs by what they cost: documents that are encoded already cost next to nothing."""
    ranking = call.options.ranking
    return 1 + ranking.count // ENCODED_PAIRS if ranking and ranking.packed else pairs_of(call)


def _entry(call: SyncRequest) -> str:
    """A call among those in flight, with the pairs that it asks for."""
    return f"{load_of(call)}:{call.reply_key}"


def _seconds(time_reply: Any) -> float:
    seconds, microseconds = time_reply
    return float(seconds) + float(microseconds) / 1e6

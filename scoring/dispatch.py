"""The only place that sends Celery messages, by task name: the web never imports a worker's code.

A synchronous call: one message out, then two elements on a private Redis list. The first is the worker's
acknowledgement, so that a dead queue is told from a slow model within ACK_SECONDS; the second is the reply.
"""

from __future__ import annotations

import json
import logging
import time
import uuid
from dataclasses import replace
from functools import cache
from typing import Any, Final

import redis
from django.conf import settings
from kombu.exceptions import OperationalError

from assay.celery import app
from assay.errors import AssayError
from scoring.payloads import PayloadError, SyncReply, SyncRequest

SYNC_QUEUE: Final = "sync"
BATCH_QUEUE: Final = "batch"
ANSWER_TASK: Final = "workers.answer"
WAKE_TASK: Final = "workers.wake"
ACK_SECONDS: Final = 1.5
REPLY_TTL_SECONDS: Final = 60
SOCKET_SECONDS: Final = 5.0
ACK: Final = "taken"

logger = logging.getLogger(__name__)


@cache
def connection() -> redis.Redis:
    """This process's Redis connection pool (created on first use, after any fork)."""
    return redis.Redis.from_url(
        settings.REDIS_URL, decode_responses=True, health_check_interval=30, socket_timeout=SOCKET_SECONDS
    )


def gone_key(reply_key: str) -> str:
    """Set when the caller left: the worker then drops the request instead of starting it."""
    return f"{reply_key}:gone"


def clock() -> float:
    """Redis's time in seconds, the clock that web and workers share."""
    seconds, microseconds = connection().time()
    return float(seconds) + float(microseconds) / 1e6


def workers_wake() -> bool:
    """Tell the workers that there is work. Losing this costs seconds, never a result: they also poll the database."""
    try:
        app.send_task(WAKE_TASK, queue=BATCH_QUEUE, ignore_result=True, retry=False)
    except (redis.RedisError, OperationalError):
        logger.warning("wake-up not sent: the message queue does not answer; workers will find the work by polling")
        return False
    return True


def model_call(request: SyncRequest, *, timeout_seconds: float) -> SyncReply:
    """Send ``request`` (its ``reply_key`` and ``deadline`` are filled in here) and wait for the reply.

    Raises AssayError 503 ``no_worker`` when nobody took the message, 504 ``deadline_exceeded`` when the reply is late,
    503 ``queue_unavailable`` when Redis does not answer.
    """
    reply_key = f"assay:reply:{uuid.uuid4().hex}"
    try:
        call = replace(request, reply_key=reply_key, deadline=clock() + timeout_seconds)
        app.send_task(
            ANSWER_TASK,
            args=[call.to_json()],
            queue=SYNC_QUEUE,
            ignore_result=True,
            retry=False,
        )
        return _wait(call, timeout_seconds)
    except (redis.RedisError, OperationalError) as error:
        raise AssayError(
            "queue_unavailable",
            f"The message queue does not answer ({type(error).__name__}); synchronous scoring must wait until it does.",
            status=503,
            retry_after=5,
        ) from error


def _wait(call: SyncRequest, timeout_seconds: float) -> SyncReply:
    give_up = time.monotonic() + timeout_seconds
    taken = _pop(call.reply_key, min(ACK_SECONDS, timeout_seconds))
    answer = _pop(call.reply_key, give_up - time.monotonic()) if taken else None
    if answer is not None:
        return _read(answer)
    _leave(call.reply_key)
    if taken is None and timeout_seconds >= ACK_SECONDS:
        raise no_worker(call.model_name, f"no worker took the request within {ACK_SECONDS} s")
    raise AssayError(
        "deadline_exceeded",
        f"Model '{call.model_name}' did not answer within {timeout_seconds:g} s. "
        "Send fewer or shorter documents, or a larger X-Timeout-Ms.",
        status=504,
    )


def _read(answer: str) -> SyncReply:
    try:
        return SyncReply.from_json(json.loads(answer))
    except PayloadError as error:
        raise AssayError("unknown_payload", f"The worker's reply cannot be read: {error}", status=503) from error


def no_worker(model_name: str, why: str) -> AssayError:
    return AssayError(
        "no_worker",
        f"Model '{model_name}' cannot answer now: {why} (queue '{SYNC_QUEUE}'). "
        "Start a worker with `manage.py gpu_worker`, or try again shortly.",
        status=503,
        retry_after=5,
        extra={"model": model_name, "queue": SYNC_QUEUE},
    )


def reply_send(call: SyncRequest, reply: SyncReply) -> None:
    """The worker's side of the private list."""
    _push(call.reply_key, json.dumps(reply.to_json(), allow_nan=False))


def reply_acknowledge(call: SyncRequest) -> bool:
    """Tell the caller that its request was taken. False: the caller has left already, do not start."""
    if connection().exists(gone_key(call.reply_key)):
        return False
    _push(call.reply_key, ACK)
    return True


def caller_left(call: SyncRequest) -> bool:
    return bool(connection().exists(gone_key(call.reply_key)))


def _push(key: str, value: str) -> None:
    with connection().pipeline(transaction=True) as pipe:
        pipe.rpush(key, value)
        pipe.expire(key, REPLY_TTL_SECONDS)
        pipe.execute()


def _pop(key: str, seconds: float) -> str | None:
    """Wait in slices shorter than the socket's own timeout, which tells a dead server from a slow model."""
    end = time.monotonic() + seconds
    while True:
        left = end - time.monotonic()
        popped: Any = connection().blpop([key], timeout=min(max(left, 0.01), SOCKET_SECONDS / 2))
        if popped or left <= SOCKET_SECONDS / 2:
            return popped[1] if popped else None


def _leave(reply_key: str) -> None:
    connection().set(gone_key(reply_key), "1", ex=REPLY_TTL_SECONDS)

"""A job's events as server-sent events. However many streams a process has open, they share one thread, one connection
of the database and one look into it a second.

An event of a transaction that ends late may come after one with a larger id; it still comes, once.
"""

from __future__ import annotations

import asyncio
import logging
import uuid
from collections import Counter, defaultdict
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any, Final

from django.db import DatabaseError, close_old_connections
from django.db.models import Max
from django.http import StreamingHttpResponse
from rest_framework.renderers import JSONRenderer
from rest_framework.serializers import BaseSerializer

from accounts.services import is_let_in
from assay.api.principal import Principal
from scoring.models import Job, Transition
from scoring.selectors.job_events import JobEvent, job_events
from scoring.states import FINAL_JOB_STATES

LOOK_SECONDS: Final = 1.0
QUIET_SECONDS: Final = 15.0  # then a comment tells proxies and clients that somebody is there
LIFE_SECONDS: Final = 300.0  # then the client comes again
LATE_IDS: Final = 1000  # so far behind the newest event one may still appear
PAGE: Final = 200

Viewer = tuple[str | None, int | None]  # the public id of a token, else the id of a user

logger = logging.getLogger(__name__)


class EventStreamRenderer(JSONRenderer):
    """Makes ``Accept: text/event-stream`` acceptable; what it renders itself are refusals, which are JSON."""

    media_type = "text/event-stream"
    format = "events"


class Feed:
    """What the followed jobs have had lately, as of the last look. Lives on the event loop of its process."""

    def __init__(self) -> None:
        self.recent: Mapping[uuid.UUID, set[int]] = {}
        self.ended: Mapping[uuid.UUID, str] = {}  # the states of jobs that have no further event to come
        self._newest = 0
        self.barred: frozenset[Viewer] = frozenset()  # who would not be let in now
        self._followed: Counter[uuid.UUID] = Counter()
        self._viewers: Counter[Viewer] = Counter()
        self._looked = asyncio.Event()
        self._looking: asyncio.Task[None] | None = None
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="events")

    @contextmanager
    def following(self, job_id: uuid.UUID, viewer: Viewer) -> Iterator[None]:
        self._followed[job_id] += 1
        self._viewers[viewer] += 1
        if self._looking is None:
            self._looking = asyncio.create_task(self._look())
        try:
            yield
        finally:
            self._followed -= Counter([job_id])
            self._viewers -= Counter([viewer])

    async def look(self) -> None:
        """Return after the next look into the database."""
        await self._looked.wait()

    async def read(self, query: Callable[..., Any], *arguments: Any) -> Any:
        def run() -> Any:
            close_old_connections()
            return query(*arguments)

        return await asyncio.get_running_loop().run_in_executor(self._thread, run)

    async def _look(self) -> None:
        self._newest = 0
        while self._followed:
            try:
                self.ended, self.recent, self._newest = await self.read(_lately, list(self._followed), self._newest)
                self.barred = await self.read(_barred, list(self._viewers))
            except DatabaseError:
                logger.warning("event streams get no news: the database does not answer")
            looked, self._looked = self._looked, asyncio.Event()
            looked.set()
            await asyncio.sleep(LOOK_SECONDS)
        self._looking = None


feed: Final = Feed()


def event_stream(
    job: Job, principal: Principal, *, after: int, serializer: Callable[[JobEvent], BaseSerializer[Any]]
) -> StreamingHttpResponse:
    """The job's events with ids over ``after``: those there are, then those that come, until the job has ended or the
    principal's token was revoked."""
    viewer = (
        principal.token.public_id if principal.token else None,
        principal.user.pk if principal.user else None,
    )
    response = StreamingHttpResponse(_pieces(job.pk, viewer, after, serializer), content_type="text/event-stream")
    response["Cache-Control"] = "no-store"
    response["X-Accel-Buffering"] = "no"  # a proxy should hand on each event as it comes
    return response


async def _pieces(
    job_id: uuid.UUID, viewer: Viewer, after: int, serializer: Callable[[JobEvent], BaseSerializer[Any]]
) -> AsyncIterator[bytes]:
    def piece(event: JobEvent) -> bytes:
        data = JSONRenderer().render(serializer(event).data)
        return b"id: %d\nevent: %s\ndata: %s\n\n" % (event.id, event.entity.encode(), data)

    clock = asyncio.get_running_loop().time
    begun = spoken = clock()
    sent: set[int] = set()
    last = after
    yield b"retry: 1000\n\n"
    with feed.following(job_id, viewer):
        while events := await feed.read(_page, job_id, last):
            last = events[-1].id
            sent.update(event.id for event in events)
            for event in events:
                yield piece(event)
        while clock() < begun + LIFE_SECONDS:
            await feed.look()
            if viewer in feed.barred:
                return
            recent, state = feed.recent.get(job_id, set()), feed.ended.get(job_id)
            sent &= recent  # what is not recent any more does not come again
            for event in await feed.read(_named, fresh) if (fresh := {n for n in recent - sent if n > after}) else ():
                sent.add(event.id)
                spoken = clock()
                yield piece(event)
            if state is not None:
                yield b"event: end\ndata: %s\n\n" % JSONRenderer().render({"state": state})
                return
            if clock() > spoken + QUIET_SECONDS:
                spoken = clock()
                yield b": still here\n\n"


def _lately(jobs: list[uuid.UUID], newest: int) -> tuple[dict[uuid.UUID, str], dict[uuid.UUID, set[int]], int]:
    """Jobs that have ended (read first: their last events are then seen), ids of late events by job, the newest id."""
    states = dict(Job.objects.filter(pk__in=jobs).values_list("pk", "state"))
    ended = {job: states.get(job, "deleted") for job in jobs if states.get(job) in (None, *FINAL_JOB_STATES)}
    now = Transition.objects.aggregate(newest=Max("pk"))["newest"] or 0
    recent: dict[uuid.UUID, set[int]] = defaultdict(set)
    rows = Transition.objects.filter(job__in=jobs, pk__gt=(newest or now) - LATE_IDS)
    for job, number in rows.values_list("job_id", "pk"):
        recent[job].add(number)
    return ended, recent, now


def _barred(viewers: list[Viewer]) -> frozenset[Viewer]:
    return frozenset(each for each in viewers if not is_let_in(token_id=each[0], user_id=each[1]))


def _page(job_id: uuid.UUID, after: int) -> list[JobEvent]:
    rows = Transition.objects.filter(job=job_id, pk__gt=after).order_by("pk")
    return job_events(rows[:PAGE])


def _named(numbers: set[int]) -> list[JobEvent]:
    return job_events(Transition.objects.filter(pk__in=numbers).order_by("pk"))

"""A job's events as server-sent events. However many streams a process has open, they share one thread, one connection
of the database and one look into it a second.

Events come in the order of their ids, so that a client which comes again with the last one that it saw misses none. An
id is drawn when a row is written and seen when its transaction ends, so a smaller one may appear after a larger one:
events are shown up to the id below which no transaction can still write. Whoever wrote a row, or is about to draw an id
for one, holds the table's lock for that until its transaction ends.
"""

from __future__ import annotations

import asyncio
import logging
import uuid
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any, Final

from django.db import DatabaseError, close_old_connections, connection
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
WRITERS: Final = """
SELECT virtualtransaction FROM pg_locks
WHERE locktype = 'relation' AND mode = 'RowExclusiveLock' AND granted
    AND database = (SELECT oid FROM pg_database WHERE datname = current_database()) AND relation = %s::regclass
"""
PAGE: Final = 200

Viewer = tuple[str | None, int | None]  # the public id of a token, else the id of a user

logger = logging.getLogger(__name__)


class EventStreamRenderer(JSONRenderer):
    """Makes ``Accept: text/event-stream`` acceptable; what it renders itself are refusals, which are JSON."""

    media_type = "text/event-stream"
    format = "events"


@dataclass(frozen=True, slots=True)
class Mark:
    """The newest id at some moment, who could still write smaller ones, and which jobs had ended by then."""

    newest: int
    writers: frozenset[str]
    ended: Mapping[uuid.UUID, str]


class Feed:
    """What the followed jobs have had, as of the last look. Lives on the event loop of its process."""

    def __init__(self) -> None:
        self.settled: int | None = None  # up to this id nothing comes any more; None: nobody has looked yet
        self.latest: dict[uuid.UUID, int] = {}  # the newest settled event of jobs that had one since somebody looks
        self.ended: Mapping[uuid.UUID, str] = {}  # the states of jobs that have no further event to come
        self.barred: frozenset[Viewer] = frozenset()  # who would not be let in now
        self._mark: Mark | None = None  # waits for its writers
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
        self.settled, self._mark, self.latest, self.ended = None, None, {}, {}
        while self._followed:
            try:
                await self._settle(list(self._followed))
                self.barred = await self.read(_barred, list(self._viewers))
            except DatabaseError:
                logger.warning("event streams get no news: the database does not answer")
            looked, self._looked = self._looked, asyncio.Event()
            looked.set()
            await asyncio.sleep(LOOK_SECONDS)
        self._looking = None

    async def _settle(self, jobs: list[uuid.UUID]) -> None:
        mark = self._mark = await self.read(mark_move, self._mark, jobs)
        if mark.writers:
            return
        if self.settled is not None:
            self.latest |= await self.read(_latest, jobs, self.settled, mark.newest)
        self.settled, self.ended, self._mark = mark.newest, mark.ended, None


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
    last, read_up_to = after, 0
    yield b"retry: 1000\n\n"
    with feed.following(job_id, viewer):
        while clock() < begun + LIFE_SECONDS:
            await feed.look()
            if viewer in feed.barred:
                return
            settled, state = feed.settled or 0, feed.ended.get(job_id)
            if not read_up_to or feed.latest.get(job_id, 0) > last:
                while events := await feed.read(_page, job_id, last, settled):
                    for event in events:
                        yield piece(event)
                    last, spoken = events[-1].id, clock()
                read_up_to = settled
            if state is not None:
                yield b"event: end\ndata: %s\n\n" % JSONRenderer().render({"state": state})
                return
            if clock() > spoken + QUIET_SECONDS:
                spoken = clock()
                yield b": still here\n\n"


def mark_move(mark: Mark | None, jobs: list[uuid.UUID]) -> Mark:
    """``mark`` with the writers that still write; a new one if there is none. Without writers it is settled."""
    if mark is not None:
        return replace(mark, writers=mark.writers & _writers())
    states = dict(Job.objects.filter(pk__in=jobs).values_list("pk", "state"))  # first: their last events are then seen
    ended = {job: states.get(job, "deleted") for job in jobs if states.get(job) in (None, *FINAL_JOB_STATES)}
    newest = Transition.objects.aggregate(newest=Max("pk"))["newest"] or 0
    return Mark(newest, _writers(), ended)  # last: whoever draws an id later draws a larger one


def _writers() -> frozenset[str]:
    """The transactions, of whatever process, that may write events."""
    with connection.cursor() as cursor:
        cursor.execute(WRITERS, [Transition._meta.db_table])
        return frozenset(row[0] for row in cursor.fetchall())


def _latest(jobs: list[uuid.UUID], after: int, up_to: int) -> dict[uuid.UUID, int]:
    rows = Transition.objects.filter(job__in=jobs, pk__gt=after, pk__lte=up_to).order_by()
    return {job: newest for job, newest in rows.values_list("job_id").annotate(Max("pk")) if job is not None}


def _barred(viewers: list[Viewer]) -> frozenset[Viewer]:
    return frozenset(each for each in viewers if not is_let_in(token_id=each[0], user_id=each[1]))


def _page(job_id: uuid.UUID, after: int, up_to: int) -> list[JobEvent]:
    rows = Transition.objects.filter(job=job_id, pk__gt=after, pk__lte=up_to).order_by("pk")
    return job_events(rows[:PAGE])

"""Usage by day: counted from requests and jobs while the day lasts, kept for ever once it is closed.

Days are those of UTC on the database's clock. Whoever deletes what an open day is counted from calls ``usage_carry``
before, in the same transaction. A lock keeps the two apart, so that nothing is counted twice or never.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from datetime import UTC, date, datetime, time, timedelta
from typing import Any, Final

from django.db import connection, transaction
from django.db.models import BigIntegerField, Count, F, FloatField, Max, Min, Q, QuerySet, Sum
from django.db.models.fields.json import KeyTextTransform as Key
from django.db.models.functions import Cast, Coalesce

from scoring.models import Chunk, Job, ScoreRequest, Stage, Usage, UsageClosing, UsageSource
from scoring.states import ChunkState, StageState

USAGE_LOCK: Final = 0x41737361_7A
LATE: Final = timedelta(hours=1)  # an answer written after midnight may belong to the day before


@dataclass(slots=True)
class Figures:
    requests: int = 0
    errors: int = 0
    documents: int = 0
    tokens: int = 0
    compute_seconds: float = 0.0


Holder = tuple[int, int | None, str, UsageSource]  # team, token, name of the model, source


def usage_roll_up() -> int:
    """Count every day anew that is not closed, and close those that are over. Returns how many days it counted.

    May be called at any time by anybody, and twice.
    """
    now = _database_now()
    days = 0
    day = _first_open_day(now)
    while day <= now.date():
        with transaction.atomic():
            _lock()
            if not UsageClosing.objects.filter(day=day).exists():
                _count(day)
                if now >= _start(day + timedelta(days=1)) + LATE:
                    UsageClosing.objects.create(day=day)
                days += 1
        day += timedelta(days=1)
    return days


def usage_carry(*, chunks: QuerySet[Chunk]) -> None:
    """``chunks`` are about to be deleted: what they and their stages count on open days stays counted.

    Call it in the transaction that deletes them.
    """
    _lock()
    first = _start(_first_open_day(_database_now()))
    done = chunks.filter(state=ChunkState.DONE, finished_at__gte=first).exclude(stage__model=None)
    stages = Stage.objects.filter(pk__in=chunks.values("stage"), state=StageState.DONE, finished_at__gte=first)
    days = {moment.date() for moment in (*_moments(done), *_moments(stages.exclude(model=None)))}
    for day in days:
        for (team, token, model_name, source), figures in _of_jobs(day, done, stages).items():
            row, _ = Usage.objects.get_or_create(
                day=day, team_id=team, token_id=token, model_name=model_name, source=source, carried=True
            )
            added = {name: F(name) + value for name, value in asdict(figures).items()}
            Usage.objects.filter(pk=row.pk).update(**added)


def _moments(rows: QuerySet[Any]) -> Iterator[datetime]:
    """One of each day."""
    return rows.order_by().datetimes("finished_at", "day", tzinfo=UTC).iterator()


def _count(day: date) -> None:
    # Only stages that ran on that day are looked into: an index finds their chunks.
    recent = Stage.objects.filter(Q(finished_at=None) | Q(finished_at__gte=_start(day)), started_at__isnull=False)
    chunks = Chunk.objects.filter(stage__in=recent, state=ChunkState.DONE)
    counted = _of_requests(day) | _of_jobs(day, chunks, Stage.objects.filter(state=StageState.DONE))
    Usage.objects.filter(day=day, carried=False).delete()
    Usage.objects.bulk_create(
        Usage(day=day, team_id=team, token_id=token, model_name=name, source=source, **asdict(figures))
        for (team, token, name, source), figures in counted.items()
    )


def _of_requests(day: date) -> dict[Holder, Figures]:
    rows = ScoreRequest.objects.filter(created_at__range=_bounds(day)).order_by()
    figures = rows.values("team", "token", "model_name").annotate(
        asked=Count("pk"),
        refused=Count("pk", filter=Q(status_code__gte=400)),
        scored=Sum("scored_count"),
        read=Sum("prompt_tokens"),
        computed=Sum("compute_seconds"),
    )
    return {
        (row["team"], row["token"], row["model_name"], UsageSource.REQUESTS): Figures(
            row["asked"], row["refused"], row["scored"], row["read"], row["computed"]
        )
        for row in figures
    }


def _of_jobs(day: date, chunks: QuerySet[Chunk], stages: QuerySet[Stage]) -> dict[Holder, Figures]:
    """Of stages that a model scored: pairs count on the day of their chunk, the stage on the day on which it ended."""
    scored = chunks.filter(finished_at__range=_bounds(day)).exclude(stage__model=None).order_by()
    forward, maxsim = (Key(phase, Key("timings", "report")) for phase in ("forward", "maxsim"))
    milliseconds = Coalesce(Cast(forward, FloatField()), 0.0) + Coalesce(Cast(maxsim, FloatField()), 0.0)
    of_chunks = scored.values("job__team", "job__token", "stage__model__name").annotate(
        documents=Sum("scored_pairs"),
        tokens=Sum(Cast(Key("prompt_tokens", "report"), BigIntegerField())),
        compute_seconds=Sum(milliseconds) / 1000,
    )
    ended = stages.filter(finished_at__range=_bounds(day)).exclude(model=None).order_by()
    of_stages = ended.values("job__team", "job__token", "model__name").annotate(
        requests=Count("pk"), errors=Count("pk", filter=Q(statistics__pairs__failed__gt=0))
    )
    counted: dict[Holder, Figures] = defaultdict(Figures)
    for chunk in of_chunks:
        figures = counted[chunk["job__team"], chunk["job__token"], chunk["stage__model__name"], UsageSource.JOBS]
        figures.documents, figures.tokens = chunk["documents"] or 0, chunk["tokens"] or 0
        figures.compute_seconds = chunk["compute_seconds"] or 0.0
    for stage in of_stages:
        figures = counted[stage["job__team"], stage["job__token"], stage["model__name"], UsageSource.JOBS]
        figures.requests, figures.errors = stage["requests"], stage["errors"]
    return counted


def _first_open_day(now: datetime) -> date:
    """Behind the last closed day; before there is any, the day of the oldest row that counts."""
    if closed := UsageClosing.objects.aggregate(last=Max("day"))["last"]:
        return closed + timedelta(days=1)
    oldest = [
        ScoreRequest.objects.aggregate(at=Min("created_at"))["at"],
        Job.objects.aggregate(at=Min("created_at"))["at"],
        now,
    ]
    return min(moment for moment in oldest if moment is not None).astimezone(UTC).date()


def _bounds(day: date) -> tuple[datetime, datetime]:
    return _start(day), _start(day + timedelta(days=1)) - timedelta(microseconds=1)


def _start(day: date) -> datetime:
    return datetime.combine(day, time(), UTC)


def _lock() -> None:
    """Held until the transaction ends."""
    with connection.cursor() as cursor:
        cursor.execute("SELECT pg_advisory_xact_lock(%s)", [USAGE_LOCK])


def _database_now() -> datetime:
    with connection.cursor() as cursor:
        cursor.execute("SELECT clock_timestamp()")
        row = cursor.fetchone()
    assert row is not None
    moment: datetime = row[0]
    return moment.astimezone(UTC)

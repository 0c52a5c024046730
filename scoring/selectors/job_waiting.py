"""Why a job does not get on: what it waits for, as a code for programs and a sentence for people."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from django.db.models import Exists, OuterRef, Q
from django.utils import timezone

from scoring.models import Chunk, Job, Placement, ScoringModel, Transition
from scoring.selectors.job_limits import job_usage
from scoring.selectors.workers import workers_alive
from scoring.states import COMING, SERVING, ChunkState, JobState, ModelState, PlacementState, StageState


@dataclass(frozen=True, slots=True)
class Waiting:
    """``code`` is stable; ``sentence`` has no capital and no stop, so that it can follow a colon."""

    code: str
    sentence: str


NOTHING = Waiting("", "")


def job_waiting(job: Job, chunks: Mapping[str, int]) -> Waiting:
    """``chunks``: how many of the job's are in each state. ``NOTHING`` when it gets on, or has ended."""
    in_hand = chunks.get(ChunkState.LEASED, 0)
    match job.state:
        case JobState.SCHEDULED:
            return _scheduled(job)
        case JobState.PAUSED if in_hand:
            still = "chunk is" if in_hand == 1 else "chunks are"
            return Waiting("pausing", f"it is being paused, {in_hand:,} {still} still in hand")
        case JobState.PAUSED:
            pause = job_pause_move(job)
            return Waiting("paused", f"it was paused by {pause.actor if pause else 'nobody in particular'}")
        case JobState.QUEUED | JobState.RUNNING if not in_hand and chunks.get(ChunkState.PENDING, 0):
            return _queued(job)
    return NOTHING


def _scheduled(job: Job) -> Waiting:
    if job.start_at is not None and job.start_at > timezone.now():
        return Waiting("scheduled", f"it is scheduled for {job.start_at:%Y-%m-%d %H:%M:%S} UTC")
    usage = job_usage(team=job.team, user=job.created_by)
    if not usage.room:
        who = job.created_by.get_username() if job.created_by else "this team's tokens"
        return Waiting(
            "quota",
            f"{usage.running_jobs:,} jobs of {who} are queued or running, and {usage.running_limit:,} may be at once",
        )
    return Waiting("scheduled", "it joins the queue within seconds")


def job_pause_move(job: Job) -> Transition | None:
    """Who paused the job last, and out of which state."""
    pauses = Transition.objects.filter(job=job, entity="job", to_state=JobState.PAUSED)
    return pauses.exclude(from_state=JobState.PAUSED).order_by("-id").first()  # that would be a change of its settings


def paused_before_start(job: Job) -> bool:
    """Whether it is paused and had not joined the queue by then."""
    pause = job_pause_move(job) if job.state == JobState.PAUSED else None
    return pause is not None and pause.from_state == JobState.SCHEDULED


def _queued(job: Job) -> Waiting:
    models = [stage.model for stage in job.stages.all() if stage.model and stage.state == StageState.RUNNING]
    for model in models:
        if model.state != ModelState.AVAILABLE:
            return Waiting(
                "model_not_served", f"model '{model.name}' is not served: {model.get_state_display().lower()}"
            )
    if not workers_alive().exists():
        return Waiting("no_worker", "no worker is running")
    for model in models:
        if reason := _unplaced(model):
            return reason
    return _behind(job) or Waiting("next", "a worker is about to take it")


def _unplaced(model: ScoringModel) -> Waiting | None:
    """Why no worker can score by ``model`` now; None if one can."""
    here = Q(worker=None) | Q(worker__in=workers_alive())
    rows = list(Placement.objects.filter(here, model=model, present=True).select_related("worker"))
    if serving := [row for row in rows if row.state in SERVING]:
        if model.is_remote and all(row.state == PlacementState.DEGRADED for row in serving):
            why = serving[0].cause.rstrip(".")
            return Waiting("remote_unavailable", why[:1].lower() + why[1:])
        return None
    if loading := next((row for row in rows if row.worker and row.state in COMING), None):
        return Waiting("model_loading", f"model '{model.name}' is being loaded on {loading.worker}")
    if refusals := " ".join(sentence for row in rows for sentence in row.refusals.values()):
        return Waiting("no_placement", f"no worker has room for model '{model.name}': {refusals.rstrip('.')}")
    if failed := next((row for row in rows if row.state == PlacementState.FAILED), None):
        why = failed.cause.rstrip(".")
        return Waiting("no_placement", f"model '{model.name}' could not be loaded on {failed.worker}: {why}")
    return Waiting("no_placement", f"no worker has loaded model '{model.name}' yet")


def _behind(job: Job) -> Waiting | None:
    """Jobs whose chunks are taken first. Those of the team are named, the others only counted."""
    waiting = Chunk.objects.filter(job=OuterRef("pk"), state=ChunkState.PENDING)
    first = Q(priority__gt=job.priority) | Q(priority=job.priority, queued_at__lt=job.queued_at)
    ahead = Job.objects.filter(first, Exists(waiting), state__in=(JobState.QUEUED, JobState.RUNNING))
    count = ahead.count()
    if not count:
        return None
    name = ahead.filter(team=job.team_id).order_by("-priority", "queued_at").values_list("name", flat=True).first()
    others = count - (name is not None)
    counted = f"{others:,} other job{'s' if others > 1 else ''}" if others else ""
    return Waiting("behind", "waiting behind " + " and ".join(part for part in (name and f"'{name}'", counted) if part))

"""Every state a row may be in, and every move between states.

``scoring.services.transitions.transition`` is the only function that makes a move; the database refuses unknown values
by check constraint.

    job     scheduled → queued → running → finalizing → completed | completed_with_errors | failed
            scheduled | queued | running → paused → scheduled | queued | running
            scheduled | queued | running | paused → cancelling → cancelled | expired | failed, as ``JobEnd`` says why
            cancelled | expired | failed | completed_with_errors → queued (a retry of what is unfinished)
    stage   waiting → running → done;  waiting → skipped;  done → running | waiting, skipped → waiting (a retry)
    chunk   pending → leased → done | failed;  leased → pending (with a cause);  pending | leased → cancelled
    model   registered → testing → available | rejected;  any but testing → disabled → registered
    set     receiving → ready | failed
    worker  starting → ready ⇄ stalled;  ready → draining → drained → ready | gone;  ready ⇄ maintenance;
            any → quarantined → ready;  any but maintenance → lost → ready | gone
    placement   wanted → claimed → loading → warming → ready ⇄ degraded;  any of these → failed → claimed
                ready | degraded → updating → ready;  ready | degraded → draining → unloaded → wanted
                any → unknown (its worker is lost) → ready | unloaded
    batch       validating → in_progress → finalizing → completed | expired;  validating → failed
                validating | in_progress → cancelling → cancelled
    errand  waiting → running → done | failed;  waiting → failed
    pool    open ⇄ closed
    encoding    waiting → running → done | failed | cancelled;  waiting → failed | cancelled
                done | failed | cancelled → deleting
    delivery    pending → delivered | failed;  delivered | failed → pending (a replay)
"""

from __future__ import annotations

from django.db.models import TextChoices


class JobState(TextChoices):
    SCHEDULED = "scheduled"
    QUEUED = "queued"
    RUNNING = "running"
    PAUSED = "paused"
    CANCELLING = "cancelling", "stopping"
    FINALIZING = "finalizing"
    COMPLETED = "completed"
    COMPLETED_WITH_ERRORS = "completed_with_errors", "completed with errors"
    CANCELLED = "cancelled"
    EXPIRED = "expired"
    FAILED = "failed"

    @property
    def is_final(self) -> bool:
        return self in FINAL_JOB_STATES


class JobEnd(TextChoices):
    """Why a job was stopped before everything was scored; each has the state that the job ends in."""

    CANCELLED = "cancelled"
    EXPIRED = "expired", "not done in time"
    TOO_MANY_ERRORS = "too_many_errors", "too many errors"

    @property
    def job_state(self) -> JobState:
        return {JobEnd.CANCELLED: JobState.CANCELLED, JobEnd.EXPIRED: JobState.EXPIRED}.get(self, JobState.FAILED)


class StageState(TextChoices):
    WAITING = "waiting"
    RUNNING = "running"
    DONE = "done"
    SKIPPED = "skipped"


class ChunkState(TextChoices):
    PENDING = "pending"
    LEASED = "leased"
    DONE = "done"
    FAILED = "failed"
    CANCELLED = "cancelled"


class ChunkCause(TextChoices):
    """Why a chunk came back. Only the counted ones use up its attempts: the others are not the chunk's fault."""

    RELEASED = "released"
    LEASE_EXPIRED = "lease_expired", "lease expired"
    WORKER_LOST = "worker_lost", "worker lost"
    WORKER_CRASHED = "worker_crashed", "worker crashed"
    ITEM_ERROR = "item_error", "item error"


COUNTED_CAUSES = frozenset({ChunkCause.WORKER_CRASHED, ChunkCause.ITEM_ERROR})


class ModelState(TextChoices):
    REGISTERED = "registered", "waiting for its self-test"
    TESTING = "testing", "self-test running"
    AVAILABLE = "available"
    REJECTED = "rejected", "self-test failed"
    DISABLED = "disabled"


class SetState(TextChoices):
    RECEIVING = "receiving"
    READY = "ready"
    FAILED = "failed"


class WorkerState(TextChoices):
    STARTING = "starting"
    READY = "ready"
    STALLED = "stalled"
    DRAINING = "draining"
    DRAINED = "drained"
    MAINTENANCE = "maintenance"
    QUARANTINED = "quarantined"
    LOST = "lost"
    GONE = "gone"


class WorkerHold(TextChoices):
    """What keeps a worker from taking work, until somebody lifts it."""

    DRAIN = "drain"
    MAINTENANCE = "maintenance"
    QUARANTINE = "quarantine"

    @property
    def state(self) -> WorkerState:
        """The state that it puts a worker in."""
        return HOLD_STATES[self]


HOLD_STATES = {
    WorkerHold.DRAIN: WorkerState.DRAINING,
    WorkerHold.MAINTENANCE: WorkerState.MAINTENANCE,
    WorkerHold.QUARANTINE: WorkerState.QUARANTINED,
}
# A worker in one of them takes no work and gives up what it holds.
HELD_STATES = frozenset({*HOLD_STATES.values(), WorkerState.DRAINED})


class PlacementState(TextChoices):
    WANTED = "wanted"
    CLAIMED = "claimed"
    LOADING = "loading"
    WARMING = "warming"
    READY = "ready"
    DEGRADED = "degraded"
    UPDATING = "updating"
    DRAINING = "draining"
    UNLOADED = "unloaded"
    FAILED = "failed"
    UNKNOWN = "unknown", "unknown (worker lost)"


class ErrandState(TextChoices):
    """Of what a person asked a worker to do once."""

    WAITING = "waiting", "waiting for a worker"
    RUNNING = "running"
    DONE = "done"
    FAILED = "failed"

    @property
    def is_final(self) -> bool:
        return self in (ErrandState.DONE, ErrandState.FAILED)


class EncodingState(TextChoices):
    """Of a document set that a worker encodes ahead; when what it encoded is let go, the row goes."""

    WAITING = "waiting", "waiting for the model"
    RUNNING = "running"
    DONE = "done", "ready"
    FAILED = "failed"
    CANCELLED = "cancelled"
    DELETING = "deleting", "being deleted"

    @property
    def is_open(self) -> bool:
        return self in (EncodingState.WAITING, EncodingState.RUNNING, EncodingState.DELETING)


class ExportState(TextChoices):
    """Of a file that is made in the background."""

    WAITING = "waiting"
    RUNNING = "running", "being made"
    DONE = "done", "ready"
    FAILED = "failed"

    @property
    def is_final(self) -> bool:
        return self in (ExportState.DONE, ExportState.FAILED)


class PoolState(TextChoices):
    """Of pairs to judge: a closed pool hands out none."""

    OPEN = "open"
    CLOSED = "closed"


class DeliveryState(TextChoices):
    """Of a message to a webhook; failed: given up."""

    PENDING = "pending"
    DELIVERED = "delivered"
    FAILED = "failed"


# Serves, and nothing is on its way.
SETTLED = (PlacementState.READY, PlacementState.DEGRADED)
# The model answers requests there: while it is updated, the old weights do.
SERVING = (*SETTLED, PlacementState.UPDATING)
# On its way to that.
COMING = (PlacementState.CLAIMED, PlacementState.LOADING, PlacementState.WARMING)
# What it claimed of the worker's memory counts.
CLAIMING = (*COMING, *SERVING, PlacementState.DRAINING)


class PlacementDemand(TextChoices):
    """Why a replica is wanted; batch work may evict less than the others."""

    INTERACTIVE = "interactive"
    BATCH = "batch"
    PIN = "pin"
    PERSON = "person", "somebody asked"


class MemorySource(TextChoices):
    """Where the figure of a claim comes from; the first that is known counts."""

    OVERRIDE = "override", "set by an administrator"
    MEASURED = "measured", "measured at the last warm-up"
    ESTIMATED = "estimated", "estimated from the checkpoint"


class BatchState(TextChoices):
    """Of requests from a file; OpenAI's names."""

    VALIDATING = "validating"
    FAILED = "failed"
    IN_PROGRESS = "in_progress", "in progress"
    FINALIZING = "finalizing"
    COMPLETED = "completed"
    EXPIRED = "expired"
    CANCELLING = "cancelling"
    CANCELLED = "cancelled"

    @property
    def is_final(self) -> bool:
        return self in (BatchState.FAILED, BatchState.COMPLETED, BatchState.EXPIRED, BatchState.CANCELLED)


class LineState(TextChoices):
    PENDING = "pending"
    LEASED = "leased"
    DONE = "done"
    FAILED = "failed"


OPEN_LINES = (LineState.PENDING, LineState.LEASED)


class ItemStatus(TextChoices):
    """What happened to one query-document pair; the order is the byte stored per pair."""

    OK = "ok"
    TRUNCATED = "truncated"
    EMPTY = "empty"
    FAILED = "failed"


ITEM_STATUSES = tuple(ItemStatus)

RETRIABLE_JOB_STATES = frozenset(
    {JobState.COMPLETED_WITH_ERRORS, JobState.CANCELLED, JobState.EXPIRED, JobState.FAILED}
)
FINAL_JOB_STATES = RETRIABLE_JOB_STATES | {JobState.COMPLETED}
STOPPABLE_JOB_STATES = frozenset({JobState.SCHEDULED, JobState.QUEUED, JobState.RUNNING, JobState.PAUSED})
TIMED_JOB_STATES = STOPPABLE_JOB_STATES - {JobState.SCHEDULED}  # in which ``complete_within`` runs
ADMITTED_JOB_STATES = frozenset({JobState.QUEUED, JobState.RUNNING, JobState.CANCELLING, JobState.FINALIZING})
WAITING_JOB_STATES = frozenset({JobState.SCHEDULED, JobState.PAUSED})

_HOLDS = frozenset(HOLD_STATES.values())
_ENDINGS = frozenset({WorkerState.LOST, WorkerState.GONE, WorkerState.STARTING})
_GIVEN_UP = frozenset({PlacementState.FAILED, PlacementState.WANTED, PlacementState.UNKNOWN})

TRANSITIONS: dict[type[TextChoices], dict[str, frozenset[str]]] = {
    JobState: {
        JobState.SCHEDULED: frozenset({JobState.QUEUED, JobState.PAUSED, JobState.CANCELLING}),
        JobState.QUEUED: frozenset({JobState.RUNNING, JobState.PAUSED, JobState.CANCELLING}),
        JobState.RUNNING: frozenset({JobState.FINALIZING, JobState.PAUSED, JobState.CANCELLING}),
        JobState.PAUSED: frozenset({JobState.SCHEDULED, JobState.QUEUED, JobState.RUNNING, JobState.CANCELLING}),
        JobState.CANCELLING: frozenset({JobState.CANCELLED, JobState.EXPIRED, JobState.FAILED}),
        JobState.FINALIZING: frozenset({JobState.COMPLETED, JobState.COMPLETED_WITH_ERRORS, JobState.FAILED}),
        **dict.fromkeys(RETRIABLE_JOB_STATES, frozenset({JobState.QUEUED})),
    },
    StageState: {
        StageState.WAITING: frozenset({StageState.RUNNING, StageState.SKIPPED}),
        StageState.RUNNING: frozenset({StageState.DONE}),
        StageState.DONE: frozenset(
            {StageState.RUNNING, StageState.WAITING}
        ),  # a retry: of its own chunks, its source's
        StageState.SKIPPED: frozenset({StageState.WAITING}),
    },
    ChunkState: {
        ChunkState.PENDING: frozenset({ChunkState.LEASED, ChunkState.CANCELLED, ChunkState.FAILED}),
        ChunkState.LEASED: frozenset({ChunkState.DONE, ChunkState.FAILED, ChunkState.PENDING, ChunkState.CANCELLED}),
        ChunkState.FAILED: frozenset({ChunkState.PENDING}),  # a retry
        ChunkState.CANCELLED: frozenset({ChunkState.PENDING}),
    },
    ModelState: {
        ModelState.REGISTERED: frozenset({ModelState.TESTING, ModelState.DISABLED}),
        ModelState.TESTING: frozenset({ModelState.AVAILABLE, ModelState.REJECTED, ModelState.REGISTERED}),
        ModelState.AVAILABLE: frozenset({ModelState.REGISTERED, ModelState.DISABLED}),
        ModelState.REJECTED: frozenset({ModelState.REGISTERED, ModelState.DISABLED}),
        ModelState.DISABLED: frozenset({ModelState.REGISTERED}),
    },
    SetState: {SetState.RECEIVING: frozenset({SetState.READY, SetState.FAILED})},
    WorkerState: {
        WorkerState.STARTING: _HOLDS | {WorkerState.READY, WorkerState.LOST, WorkerState.GONE},
        WorkerState.READY: _HOLDS | _ENDINGS | {WorkerState.STALLED},
        WorkerState.STALLED: _HOLDS | _ENDINGS | {WorkerState.READY},
        WorkerState.DRAINING: _HOLDS | _ENDINGS | {WorkerState.READY, WorkerState.DRAINED},
        WorkerState.DRAINED: _HOLDS | _ENDINGS | {WorkerState.READY},
        WorkerState.MAINTENANCE: _HOLDS | _ENDINGS - {WorkerState.LOST} | {WorkerState.READY},
        WorkerState.QUARANTINED: _HOLDS | _ENDINGS | {WorkerState.READY},
        WorkerState.LOST: _HOLDS | {WorkerState.READY, WorkerState.GONE, WorkerState.STARTING},
        WorkerState.GONE: frozenset({WorkerState.STARTING}),
    },
    PlacementState: {
        PlacementState.WANTED: frozenset({PlacementState.CLAIMED, PlacementState.UNLOADED, PlacementState.UNKNOWN}),
        PlacementState.CLAIMED: _GIVEN_UP | {PlacementState.LOADING, PlacementState.UNLOADED},
        PlacementState.LOADING: _GIVEN_UP | {PlacementState.WARMING, PlacementState.UNLOADED},
        PlacementState.WARMING: _GIVEN_UP | {PlacementState.READY, PlacementState.UNLOADED},
        PlacementState.READY: _GIVEN_UP | {PlacementState.DEGRADED, PlacementState.UPDATING, PlacementState.DRAINING},
        PlacementState.DEGRADED: _GIVEN_UP | {PlacementState.READY, PlacementState.UPDATING, PlacementState.DRAINING},
        PlacementState.UPDATING: _GIVEN_UP | {PlacementState.READY, PlacementState.DEGRADED},
        PlacementState.DRAINING: _GIVEN_UP | {PlacementState.READY, PlacementState.UNLOADED},
        PlacementState.FAILED: _GIVEN_UP - {PlacementState.FAILED} | {PlacementState.CLAIMED, PlacementState.UNLOADED},
        PlacementState.UNKNOWN: frozenset({PlacementState.READY, PlacementState.WANTED, PlacementState.UNLOADED}),
        PlacementState.UNLOADED: frozenset({PlacementState.WANTED, PlacementState.CLAIMED}),
    },
    BatchState: {
        BatchState.VALIDATING: frozenset({BatchState.IN_PROGRESS, BatchState.FAILED, BatchState.CANCELLING}),
        BatchState.IN_PROGRESS: frozenset({BatchState.FINALIZING, BatchState.CANCELLING}),
        BatchState.FINALIZING: frozenset({BatchState.COMPLETED, BatchState.EXPIRED}),
        BatchState.CANCELLING: frozenset({BatchState.CANCELLED}),
    },
    ErrandState: {
        ErrandState.WAITING: frozenset({ErrandState.RUNNING, ErrandState.FAILED}),
        ErrandState.RUNNING: frozenset({ErrandState.DONE, ErrandState.FAILED}),
    },
    EncodingState: {
        EncodingState.WAITING: frozenset({EncodingState.RUNNING, EncodingState.FAILED, EncodingState.CANCELLED}),
        EncodingState.RUNNING: frozenset({EncodingState.DONE, EncodingState.FAILED, EncodingState.CANCELLED}),
        EncodingState.DONE: frozenset({EncodingState.DELETING}),
        EncodingState.FAILED: frozenset({EncodingState.DELETING}),
        EncodingState.CANCELLED: frozenset({EncodingState.DELETING}),
    },
    ExportState: {
        ExportState.WAITING: frozenset({ExportState.RUNNING}),
        ExportState.RUNNING: frozenset({ExportState.DONE, ExportState.FAILED, ExportState.WAITING}),
    },
    PoolState: {
        PoolState.OPEN: frozenset({PoolState.CLOSED}),
        PoolState.CLOSED: frozenset({PoolState.OPEN}),
    },
    DeliveryState: {
        DeliveryState.PENDING: frozenset({DeliveryState.DELIVERED, DeliveryState.FAILED}),
        DeliveryState.DELIVERED: frozenset({DeliveryState.PENDING}),
        DeliveryState.FAILED: frozenset({DeliveryState.PENDING}),
    },
}


def may_move(state: TextChoices, to: TextChoices) -> bool:
    return to in TRANSITIONS[type(state)].get(state, frozenset())

"""Every state a row may be in, and every move between states.

``scoring.services.transitions.transition`` is the only function that makes a move; the database refuses unknown values
by check constraint.

    job     queued → running → finalizing → completed | completed_with_errors | failed
            queued | running → cancelling → cancelled
    chunk   pending → leased → done | failed;  leased → pending (with a cause);  pending | leased → cancelled
    model   registered → testing → available | rejected;  any but testing → disabled → registered
    set     receiving → ready | failed
    worker  starting → ready ⇄ stalled;  ready → draining → gone;  any → lost → ready | gone
    placement (observed)   wanted → loading → warming → ready | failed;  ready → unloading → unloaded → wanted
"""

from __future__ import annotations

from django.db.models import TextChoices


class JobState(TextChoices):
    QUEUED = "queued"
    RUNNING = "running"
    CANCELLING = "cancelling"
    FINALIZING = "finalizing"
    COMPLETED = "completed"
    COMPLETED_WITH_ERRORS = "completed_with_errors", "completed with errors"
    CANCELLED = "cancelled"
    FAILED = "failed"

    @property
    def is_final(self) -> bool:
        return not TRANSITIONS[type(self)].get(self)


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
    LOST = "lost"
    GONE = "gone"


class PlacementState(TextChoices):
    WANTED = "wanted"
    LOADING = "loading"
    WARMING = "warming"
    READY = "ready"
    FAILED = "failed"
    UNLOADING = "unloading"
    UNLOADED = "unloaded"


class ItemStatus(TextChoices):
    """What happened to one query-document pair; the order is the byte stored per pair."""

    OK = "ok"
    TRUNCATED = "truncated"
    EMPTY = "empty"
    FAILED = "failed"


ITEM_STATUSES = tuple(ItemStatus)

TRANSITIONS: dict[type[TextChoices], dict[str, frozenset[str]]] = {
    JobState: {
        JobState.QUEUED: frozenset({JobState.RUNNING, JobState.CANCELLING, JobState.FAILED}),
        JobState.RUNNING: frozenset({JobState.FINALIZING, JobState.CANCELLING, JobState.FAILED}),
        JobState.CANCELLING: frozenset({JobState.CANCELLED}),
        JobState.FINALIZING: frozenset({JobState.COMPLETED, JobState.COMPLETED_WITH_ERRORS, JobState.FAILED}),
    },
    ChunkState: {
        ChunkState.PENDING: frozenset({ChunkState.LEASED, ChunkState.CANCELLED, ChunkState.FAILED}),
        ChunkState.LEASED: frozenset({ChunkState.DONE, ChunkState.FAILED, ChunkState.PENDING, ChunkState.CANCELLED}),
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
        WorkerState.STARTING: frozenset({WorkerState.READY, WorkerState.LOST, WorkerState.GONE}),
        WorkerState.READY: frozenset(
            {WorkerState.STALLED, WorkerState.DRAINING, WorkerState.LOST, WorkerState.GONE, WorkerState.STARTING}
        ),
        WorkerState.STALLED: frozenset({WorkerState.READY, WorkerState.LOST, WorkerState.GONE, WorkerState.STARTING}),
        WorkerState.DRAINING: frozenset({WorkerState.GONE, WorkerState.LOST, WorkerState.STARTING}),
        WorkerState.LOST: frozenset({WorkerState.READY, WorkerState.GONE, WorkerState.STARTING}),
        WorkerState.GONE: frozenset({WorkerState.STARTING}),
    },
    PlacementState: {
        PlacementState.WANTED: frozenset({PlacementState.LOADING, PlacementState.UNLOADED}),
        PlacementState.LOADING: frozenset({PlacementState.WARMING, PlacementState.FAILED, PlacementState.WANTED}),
        PlacementState.WARMING: frozenset({PlacementState.READY, PlacementState.FAILED, PlacementState.WANTED}),
        PlacementState.READY: frozenset(
            {PlacementState.LOADING, PlacementState.UNLOADING, PlacementState.WANTED, PlacementState.FAILED}
        ),
        PlacementState.FAILED: frozenset({PlacementState.LOADING, PlacementState.WANTED, PlacementState.UNLOADED}),
        PlacementState.UNLOADING: frozenset({PlacementState.UNLOADED, PlacementState.FAILED, PlacementState.WANTED}),
        PlacementState.UNLOADED: frozenset({PlacementState.WANTED, PlacementState.LOADING}),
    },
}


def may_move(state: TextChoices, to: TextChoices) -> bool:
    return to in TRANSITIONS[type(state)].get(state, frozenset())

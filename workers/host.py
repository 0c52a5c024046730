"""Which models this process holds, and the loop that makes them what their rows say.

Everything that takes time (load, reload, unload, self-test, canary) happens in the host's one thread, so only one load
runs at a time. Others ask with ``ensure`` and wait on a future; however many wait for a model, it is loaded once.
"""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable
from concurrent.futures import Future
from typing import TYPE_CHECKING, Any, Final, TypeVar

from django.db.models import Q
from django.db.models.functions import Now

from scoring.models import Placement, ScoringModel, Worker
from scoring.services.chunks import worker_label
from scoring.services.claims import placement_move, placement_observe, placements_used
from scoring.services.placements import model_demand, placement_want
from scoring.services.workers import worker_equip
from scoring.states import (
    CLAIMING,
    COMING,
    HELD_STATES,
    SERVING,
    SETTLED,
    ModelState,
    PlacementDemand,
    PlacementState,
    WorkerHold,
)
from workers.canary import Canary
from workers.claimant import Claimant, by_urgency
from workers.device_memory import DeviceMemory
from workers.engine.types import (
    EncodingOutput,
    EncodingRequest,
    PoolingOutput,
    PoolingRequest,
    ScoringOutput,
    ScoringRequest,
)
from workers.held_models import HeldModel, HeldModels
from workers.loading import Loader, Proof, observed
from workers.loop import Loop
from workers.memory_need import MemoryNeeds
from workers.remote.spec import RemoteSpec
from workers.remote.troubles import troubles_note
from workers.self_tests import self_test_next
from workers.sources import SourceError, model_spec
from workers.usage import Usage
from workers.waiters import Failure, Waiters

if TYPE_CHECKING:  # importing it brings torch in
    from workers.engine.token_reader import TokenReader
    from workers.remote.engine import EngineWithRemotes

BUSY_SECONDS: Final = 1.0  # while something is on its way here, or in use
WAITING_SECONDS: Final = 3.0  # while a replica waits for room
IDLE_SECONDS: Final = 10.0  # the heartbeat tells of changes
DRAIN_SECONDS: Final = 30.0  # for what is in flight when a model is to go
NOT_TO_BE_HELD: Final = (ModelState.REJECTED, ModelState.DISABLED)
LEFT_HALF_DONE: Final = (PlacementState.LOADING, PlacementState.WARMING, PlacementState.UPDATING)

Answer = TypeVar("Answer")


class Host:
    def __init__(
        self,
        *,
        engine: EngineWithRemotes,
        worker: Worker,
        changed: Callable[[], None],
        memory: DeviceMemory | None = None,
    ) -> None:
        """``changed`` is called after every load, good or bad. Without ``memory``: the worker's device's."""
        self.worker = worker
        self.usage = Usage()
        self.memory = memory or DeviceMemory.of(worker.device)
        self._engine = engine
        self._held = HeldModels(engine)
        self._canary = Canary(engine=engine, worker=worker)
        self._needs = MemoryNeeds(self.memory.device_class, lambda spec: engine.estimate(spec).bytes)
        self._loader = Loader(
            engine=engine,
            worker=worker,
            memory=self.memory,
            needs=self._needs,
            held=self._held,
            canary=self._canary,
            changed=changed,
        )
        self._claimant = Claimant(
            worker=worker, memory=self.memory, needs=self._needs, busy=self.usage.busy, evict=self._evict
        )
        self._waiters = Waiters(worker=worker, held=self._held, shut=engine.shut)
        self._draining: dict[uuid.UUID, float] = {}  # since time.monotonic()
        self._pause = BUSY_SECONDS
        self._loop = Loop("host", self._step, seconds=lambda: self._pause)
        self.stop, self.wake = self._loop.stop, self._loop.wake

    def start(self) -> None:
        worker_equip(
            worker=self.worker,
            device_class=self.memory.device_class,
            memory_budget_bytes=self.memory.budget_bytes,
        )
        self._loop.start()

    def ensure(self, model: ScoringModel, *, demand: PlacementDemand = PlacementDemand.INTERACTIVE) -> Future[str]:
        """The engine's name for ``model``, once it is loaded as its row says; ModelUnavailable if it cannot be.

        A synchronous request wants it here. Batch work wants it somewhere: ask again for as long as it is not done.
        """
        future = self._waiters.ask(model, demand)
        if not future.done():
            self.wake()
        return future

    def submit(self, model_id: uuid.UUID, request: ScoringRequest, *, interactive: bool) -> Future[ScoringOutput]:
        """To the engine; until it is answered, the model is not evicted."""
        return self._tracked(model_id, self._engine.submit(request), interactive=interactive)

    def pool(self, model_id: uuid.UUID, request: PoolingRequest) -> Future[PoolingOutput]:
        """The same for single texts."""
        return self._tracked(model_id, self._engine.submit_pooling(request), interactive=True)

    def pre_encode(self, model_id: uuid.UUID, request: EncodingRequest) -> Future[EncodingOutput]:
        """For requests to come; nobody waits for it."""
        return self._tracked(model_id, self._engine.pre_encode(request), interactive=False)

    def _tracked(self, model_id: uuid.UUID, answer: Future[Answer], *, interactive: bool) -> Future[Answer]:
        self.usage.track(model_id, answer, interactive=interactive)
        if self._pause > BUSY_SECONDS:
            self.wake()  # others see the load by the rows
        return answer

    def reader(self, name: str) -> TokenReader:
        return self._engine.reader(name)

    def serving(self) -> set[uuid.UUID]:
        """Ids of the models that answer requests here; none while the worker is kept from work."""
        return set() if self._is_held_back else self._held.ids() - set(self._draining)

    def names(self) -> list[str]:
        return sorted(self._engine.models())

    @property
    def loading(self) -> bool:
        return self._loader.loading

    @property
    def _is_held_back(self) -> bool:
        return self.worker.state in HELD_STATES

    # From here on: the host's thread only.

    def _step(self) -> bool:
        waiting, needed = self._waiters.asked()
        in_flight, interactive = self.usage.report()
        placements_used(worker=self.worker, in_flight=in_flight, interactive=interactive)
        if not self._is_held_back:
            self._ask(waiting, needed)
        mine, unclaimed = self._rows()
        troubles_note(self._engine, self._held, mine)
        loaded = any(self._follow(placement, mine) for placement in mine)
        if not loaded and not self._is_held_back:
            loaded = any(self._take(placement, mine) for placement in by_urgency(unclaimed))
        for model_id in self._held.ids() - {placement.model_id for placement in mine}:
            self._held.release(model_id)  # the model's row is gone
        self._waiters.settle(waiting, mine)
        if not loaded and not self._loop.stopping and not self._is_held_back:
            loaded = self_test_next(self, mine) or self._check_one(mine)
        self._pause = self._next(mine, unclaimed, bool(in_flight))
        return loaded

    def _ask(self, waiting: set[uuid.UUID], needed: set[uuid.UUID]) -> None:
        asked = waiting | needed
        for model in ScoringModel.objects.filter(pk__in=asked, state=ModelState.AVAILABLE) if asked else ():
            if model.pk in waiting:
                actor = worker_label(self.worker)
                placement_want(model=model, worker=self.worker, demand=PlacementDemand.INTERACTIVE, actor=actor)
            else:
                model_demand(model=model, demand=PlacementDemand.BATCH)

    def _rows(self) -> tuple[list[Placement], list[Placement]]:
        """This worker's, and those that nobody has claimed. One query."""
        rows = Placement.objects.filter(Q(worker=self.worker) | Q(worker=None)).select_related("model", "worker")
        mine: list[Placement] = []
        unclaimed: list[Placement] = []
        failures = {}
        for row in rows.annotate(now=Now()):
            (mine if row.worker_id else unclaimed).append(row)
            if row.state == PlacementState.FAILED and row.next_try_at:
                pause = (row.next_try_at - row.now).total_seconds()
                failures[row.model_id] = Failure(row.attempt, row.cause, time.monotonic() + pause)
        self._waiters.note_failures(failures)
        return sorted(mine, key=lambda row: row.present), unclaimed  # what is to go first: it makes room

    def _follow(self, placement: Placement, mine: list[Placement]) -> bool:
        """Bring one model a step nearer to what is wanted of it here. True: that was a load, the rows are old now."""
        model, held = placement.model, self._held.get(placement.model_id)
        self._come_back(placement, held)
        if self._is_held_back:
            self._empty(placement)
        elif not placement.present or model.state in NOT_TO_BE_HELD:
            self._let_go(placement, PlacementState.UNLOADED, reason="not wanted")
        elif model.state != ModelState.AVAILABLE:
            return False  # its self-test decides
        elif held is None or placement.state not in SERVING:
            return self._bring_in_new(placement, mine)
        elif placement.reload_requested > placement.reloaded:
            return self._read_again(placement, mine)
        elif not held.serves(model):
            return self._renew(placement, held, mine)
        elif placement.state == PlacementState.DEGRADED and placement.drifts:
            return self._read_again(placement, mine, after_drift=True)
        return False

    def _come_back(self, placement: Placement, held: HeldModel | None) -> None:
        """Rows that a lost connection, or a worker called lost, left behind."""
        state = placement.state
        if held and state == PlacementState.DRAINING and placement.present and not self._is_held_back:
            self._draining.pop(placement.model_id, None)
            placement_move(placement=placement, to=PlacementState.READY, reason="wanted again", **observed(held))
        elif held and state in (PlacementState.UPDATING, PlacementState.UNKNOWN):
            need = self._needs.of(placement.model)
            claim: dict[str, Any] = {"claimed_bytes": need.bytes, "claim_source": need.source}
            placement_move(placement=placement, to=PlacementState.READY, reason="back", **claim, **observed(held))
        elif state == PlacementState.UNKNOWN:
            placement_move(placement=placement, to=PlacementState.UNLOADED, reason="back", present=False)
        elif state in LEFT_HALF_DONE:
            placement_move(placement=placement, to=PlacementState.WANTED, reason="interrupted")

    def _take(self, placement: Placement, mine: list[Placement]) -> bool:
        """A replica that nobody has claimed yet, if it fits here and nothing of the model is here."""
        here = any(row.model_id == placement.model_id and row.state != PlacementState.UNLOADED for row in mine)
        if here or placement.model.state != ModelState.AVAILABLE or not self._claimant.claim(placement, mine):
            return False
        self._loader.bring_in(placement, prove=self._loader.warm_up(placement.model))
        return True

    def _bring_in_new(self, placement: Placement, mine: list[Placement]) -> bool:
        if placement.state == PlacementState.FAILED and self._waiters.must_wait(placement.model_id):
            return False
        return self.try_out(placement, mine, prove=self._loader.warm_up(placement.model)) is not None

    def try_out(self, placement: Placement, mine: list[Placement], *, prove: Proof) -> str | None:
        """Claim memory and load, or read again what serves. Why it failed, nothing, or None: no room."""
        if placement.state in SERVING:
            self._make_room_for_both(placement, mine)
        if placement.state not in SERVING:
            self._held.release(placement.model_id)
            if placement.state != PlacementState.CLAIMED and not self._claimant.claim(placement, mine):
                return None
        return self._loader.bring_in(placement, prove=prove)

    def has_room(self, model: ScoringModel, mine: list[Placement]) -> bool:
        """Whether a replica can be had here. If not, one is wanted here whose row says why: it costs nothing to look
        again, and nothing is written until the answer changes."""
        here = next((row for row in mine if row.model_id == model.pk), None)
        if here is not None and here.state in CLAIMING:
            return True
        obstacle = self._claimant.obstacle(here or Placement(model=model, demand=PlacementDemand.PERSON), mine)
        if obstacle:
            wanted = here or placement_want(
                model=model, worker=self.worker, demand=PlacementDemand.PERSON, actor=worker_label(self.worker)
            )
            self._claimant.refuse(wanted, obstacle)
        return not obstacle

    def _make_room_for_both(self, placement: Placement, mine: list[Placement]) -> None:
        """The old weights serve while the new ones are read. Where both do not fit, the old ones go first."""
        if self._needs.of(placement.model).bytes > self._claimant.room(mine):
            placement_move(placement=placement, to=PlacementState.DRAINING, reason="no room for old and new")
            self._held.release(placement.model_id)
            placement_move(placement=placement, to=PlacementState.WANTED, reason="no room for old and new")

    def _read_again(self, placement: Placement, mine: list[Placement], *, after_drift: bool = False) -> bool:
        cause = self.try_out(placement, mine, prove=self._loader.warm_up(placement.model))
        if cause and after_drift:
            self._canary.drifted(placement, cause)
        return cause is not None

    def _renew(self, placement: Placement, held: HeldModel, mine: list[Placement]) -> bool:
        """The row changed. A toggle or a cache's budget comes into force in place; anything else is a load."""
        model = placement.model
        try:
            spec = model_spec(model)
        except SourceError:
            spec = None
        same_weights = held.info.revision == model.revision
        if spec and same_weights and held.spec.settled_as(spec) == spec:
            info = self._engine.configure(spec)
            placement_observe(placement=placement, **observed(self._held.put(model, spec, info)))
            return False
        return self._read_again(placement, mine)

    def _empty(self, placement: Placement) -> None:
        """The worker is kept from work. What is pinned to one under maintenance, or about to restart, comes back."""
        stays = self.worker.hold in ("", WorkerHold.MAINTENANCE) and placement.present
        if not stays:
            self._let_go(placement, PlacementState.UNLOADED, reason=f"worker {self.worker.state}", present=False)
        elif placement.state in (*COMING, *SERVING, PlacementState.DRAINING):
            self._let_go(placement, PlacementState.WANTED, reason=f"worker {self.worker.state}")

    def _let_go(self, placement: Placement, to: PlacementState, *, reason: str, **fields: Any) -> None:
        """Unload, once what is in flight has been answered."""
        if placement.state in SERVING:
            placement_move(placement=placement, to=PlacementState.DRAINING, reason=reason)
        if placement.state == PlacementState.DRAINING:
            since = self._draining.setdefault(placement.model_id, time.monotonic())
            if placement.model_id in self.usage.busy() and time.monotonic() - since < DRAIN_SECONDS:
                return
        self._held.release(placement.model_id)
        self._canary.forget(placement.model_id)
        self._draining.pop(placement.model_id, None)
        if placement.state != to:
            placement_move(placement=placement, to=to, reason=reason, **fields)

    def _evict(self, placement: Placement) -> None:
        """Idle by the claimant's account: nothing to wait for."""
        self._let_go(placement, PlacementState.UNLOADED, reason="evicted", present=False, evicted_at=Now())

    def _check_one(self, mine: list[Placement]) -> bool:
        """The canary of one idle model. True: look at the rows again, it may have to be read anew."""
        for placement in mine:
            held = self._held.get(placement.model_id)
            if held and isinstance(held.spec, RemoteSpec):
                continue  # its endpoint bills each call, and tells of itself by the calls that are made
            settled = placement.state in SETTLED and placement.present
            idle = placement.model_id not in self.usage.busy()
            if held and settled and idle and held.serves(placement.model) and self._canary.due(placement.model_id):
                self._canary.check(placement, held)
                return True
        return False

    def _next(self, mine: list[Placement], unclaimed: list[Placement], in_use: bool) -> float:
        """Seconds to the next look, if nobody wakes us."""
        on_its_way = any(row.state in (*COMING, PlacementState.DRAINING) for row in mine)
        if in_use or on_its_way or self._waiters.any_waiting():
            return BUSY_SECONDS
        waits = unclaimed or any(row.state == PlacementState.WANTED for row in mine)
        return max(min([WAITING_SECONDS if waits else IDLE_SECONDS, *self._waiters.next_tries()]), BUSY_SECONDS)

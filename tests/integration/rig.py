"""A worker's host and batch loops in this process, on a real engine and tiny checkpoints with random weights."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from assay.api.principal import Principal
from scoring.models import Placement, ScoringModel, Worker
from scoring.services.registry import model_register
from scoring.states import ModelState, PlacementState
from tests.engine.tiny import build
from workers.batch import Batch
from workers.host import Host
from workers.remote.engine import EngineWithRemotes


def wait_for(
    condition: Callable[[], object], *, seconds: float = 30.0, what: str = "the condition", every: float = 0.05
) -> None:
    """Return once ``condition()`` is true, asked ``every`` so many seconds; an AssertionError after ``seconds``."""
    give_up = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < give_up, f"{what} did not come true within {seconds:g} s"
        time.sleep(every)


@dataclass
class Rig:
    engine: EngineWithRemotes
    worker: Worker
    host: Host
    batch: Batch
    root: Path
    principal: Principal

    def checkpoint(self, name: str = "bert") -> Path:
        return build("bert", self.root / name)

    def register(self, name: str, *, wait: bool = True, **fields: Any) -> ScoringModel:
        """Register a late-interaction model with random weights and wait for the end of its self-test."""
        given = {"kind": "late-interaction", "self_test_mode": "numbers", "dtype": "float32", **fields}
        if "source" not in given:
            given["source"] = str(self.checkpoint(name))
        model = model_register(principal=self.principal, name=name, **given)
        if wait:
            self.wait_for_state(model, ModelState.AVAILABLE, ModelState.REJECTED)
        return model

    def wait_for_state(self, model: ScoringModel, *states: ModelState) -> None:
        def reached() -> bool:
            model.refresh_from_db()
            return model.state in states

        wait_for(reached, what=f"{model} {states}")

    def placement(self, model: ScoringModel) -> Placement:
        return Placement.objects.get(model=model, worker=self.worker)

    def wait_for_placement(self, model: ScoringModel, state: PlacementState, **fields: Any) -> Placement:
        rows = Placement.objects.filter(model=model, worker=self.worker, state=state, **fields)
        wait_for(rows.exists, what=f"the placement of {model} {state} {fields}")
        return rows.get()

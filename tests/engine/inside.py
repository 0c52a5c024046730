"""Looks inside the engine where its border shows nothing: what is reserved, what runs through the body."""

from __future__ import annotations

from typing import Any

from transformers import PreTrainedModel

from workers.engine import Engine, ModelSpec
from workers.engine.pooling.late_interaction import LateInteractionRunner
from workers.engine.pooling.runner import PoolingRunner
from workers.engine.task_runner import TaskRunner


def spec_of(engine: Engine, name: str) -> ModelSpec:
    return engine._models[name].spec


def task_of(engine: Engine, name: str) -> TaskRunner:
    return engine._models[name].task


def clear_caches(engine: Engine, name: str) -> None:
    """What is asked next is computed afresh."""
    engine._clear_caches(engine._models[name])


def body_of(engine: Engine, name: str) -> PreTrainedModel:
    task: Any = engine._models[name].task
    body: PreTrainedModel = task._model.model
    return body


def late_runner_of(engine: Engine, name: str) -> LateInteractionRunner:
    task = engine._models[name].task
    assert isinstance(task, PoolingRunner) and task.late_interaction is not None
    return task.late_interaction


def record_rows(engine: Engine, name: str) -> list[list[int]]:
    """From now on, the token ids of every row that goes through the model's body."""
    rows: list[list[int]] = []

    def note(module: Any, args: Any, inputs: dict[str, Any]) -> None:
        packed = inputs.get("packed_batch")
        own = inputs["input_ids"][0][inputs["attention_mask"][0].bool()] if packed is None else packed.token_ids
        rows.append(own.tolist())  # without what fills the row up

    body_of(engine, name).register_forward_pre_hook(note, with_kwargs=True)
    return rows

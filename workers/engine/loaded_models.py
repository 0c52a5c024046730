"""The models that serve, by name, and what each of them may keep of documents."""

from __future__ import annotations

import threading
import weakref
from dataclasses import replace

from workers.engine.caches.cached_encoding import Owner
from workers.engine.caches.embedding_cache import EmbeddingCache
from workers.engine.candidate import LoadedModel
from workers.engine.model_types import ModelInfo, ModelSpec
from workers.engine.statistics import DocumentShare
from workers.engine.task_runner import TaskRunner


class LoadedModels:
    """Thread-safe."""

    def __init__(self, encodings: EmbeddingCache) -> None:
        """``encodings``: of documents."""
        self._encodings = encodings
        self._models: dict[str, LoadedModel] = {}
        self._tasks: weakref.WeakSet[TaskRunner] = weakref.WeakSet()
        self._lock = threading.Lock()

    def __getitem__(self, name: str) -> LoadedModel:
        with self._lock:
            return self._models[name]

    def infos(self) -> dict[str, ModelInfo]:
        with self._lock:
            return {name: model.info for name, model in self._models.items()}

    def introduce(self, task: TaskRunner) -> None:
        """One that may be put here later; whatever becomes of it, it is told of for as long as it is in memory."""
        with self._lock:
            self._tasks.add(task)

    def tasks(self) -> list[TaskRunner]:
        with self._lock:
            return list(self._tasks)

    def put(self, spec: ModelSpec, task: TaskRunner) -> LoadedModel | None:
        """Returns the one that it replaces."""
        with self._lock:
            replaced = self._models.get(spec.name)
            self._models[spec.name] = LoadedModel(spec, task)
            self._bound(task.encodings_owner)
            if replaced is not None:
                self._bound(replaced.task.encodings_owner)
            return replaced

    def settle(self, spec: ModelSpec) -> None:
        """The model of that name goes by what can be changed of it without a reload."""
        with self._lock:
            if (model := self._models.get(spec.name)) is not None:
                self._models[spec.name] = replace(model, spec=model.spec.settled_as(spec))
                self._bound(model.task.encodings_owner)

    def remove(self, name: str) -> LoadedModel | None:
        """Those that it replaced and whose requests still run go with it."""
        with self._lock:
            model = self._models.pop(name, None)
            if model is not None:
                for task in [task for task in self._tasks if task.info.name == name]:
                    task.unloaded = task is model.task or task.retired
                self._bound(model.task.encodings_owner)
            return model

    def shares(self) -> dict[str, DocumentShare]:
        with self._lock:
            owners = {name: model.task.encodings_owner for name, model in self._models.items()}
        return {name: self._encodings.share(owner) for name, owner in owners.items() if owner is not None}

    def _bound(self, owner: Owner | None) -> None:
        """Of models that share an encoder, and so its entries, the one that may keep the most decides."""
        if owner is None:
            return
        specs = [model.spec for model in self._models.values() if model.task.encodings_owner == owner]
        budgets = [spec.document_cache_bytes for spec in specs if spec.document_cache_bytes is not None]
        self._encodings.limit(owner, max(budgets) if budgets and len(budgets) == len(specs) else None)

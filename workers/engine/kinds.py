"""The kinds of models: what each one's scores mean and who computes them. A new kind is a row in these tables."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from workers.engine.caches.building import Caches
from workers.engine.counters import Counters
from workers.engine.families.classification import classifier_recipe
from workers.engine.families.colbert_folder import colbert_recipe
from workers.engine.families.hybrid import hybrid_recipe
from workers.engine.families.sentence_folder import sentence_recipe
from workers.engine.families.sparse import sparse_recipe
from workers.engine.label_scoring import LabelRunner
from workers.engine.listwise_runner import ListwiseRunner
from workers.engine.loading.checkpoint import INT8, Checkpoint
from workers.engine.loading.matryoshka import shorter_dimensions
from workers.engine.model_types import ModelInfo, ModelKind, ModelSpec, Scale
from workers.engine.pair_runner import PairRunner
from workers.engine.pooling.late_interaction import maxsim_backend
from workers.engine.pooling.recipe import Recipe
from workers.engine.pooling.runner import PoolingRunner
from workers.engine.task_runner import TaskRunner

_SCALES = {
    ModelKind.CROSS_ENCODER: Scale.PROBABILITY,  # unless its checkpoint names another activation
    ModelKind.BI_ENCODER: Scale.COSINE,
    ModelKind.LATE_INTERACTION: Scale.MAXSIM,
    ModelKind.SPARSE: Scale.DOT,
    ModelKind.HYBRID: Scale.FUSED,
    ModelKind.LISTWISE: Scale.COSINE,
    ModelKind.CLASSIFIER: Scale.PROBABILITY,  # of labels: it scores no pairs
    ModelKind.GENERATIVE: Scale.PROBABILITY,
}
_RUNNERS: dict[ModelKind, Callable[[ModelSpec, Checkpoint, ModelInfo, Caches, Counters], TaskRunner]] = {
    ModelKind.CROSS_ENCODER: lambda spec, checkpoint, info, _, counters: PairRunner(spec, checkpoint, info, counters),
    ModelKind.LISTWISE: lambda _, checkpoint, info, __, counters: ListwiseRunner(checkpoint, info, counters),
    ModelKind.GENERATIVE: lambda spec, checkpoint, info, _, counters: LabelRunner(spec, checkpoint, info, counters),
}
# Kinds that read one text at a time differ in their recipe only.
_RECIPES: dict[ModelKind, Callable[[ModelSpec, Checkpoint], Recipe]] = {
    ModelKind.BI_ENCODER: sentence_recipe,
    ModelKind.LATE_INTERACTION: colbert_recipe,
    ModelKind.SPARSE: sparse_recipe,
    ModelKind.HYBRID: hybrid_recipe,
    ModelKind.CLASSIFIER: classifier_recipe,
}
_WITH_DENSE = (ModelKind.BI_ENCODER, ModelKind.HYBRID)
_USES_MAXSIM = (ModelKind.LATE_INTERACTION, ModelKind.HYBRID)


def build_runner(
    spec: ModelSpec, checkpoint: Checkpoint, info: ModelInfo, caches: Caches, counters: Counters
) -> TaskRunner:
    if spec.kind in _RECIPES:
        recipe = _RECIPES[spec.kind](spec, checkpoint)
        return PoolingRunner(recipe, checkpoint, replace(info, scale=recipe.scale or info.scale), caches, counters)
    return _RUNNERS[spec.kind](spec, checkpoint, info, caches, counters)


def describe(spec: ModelSpec, checkpoint: Checkpoint, generation: int, seconds: float) -> ModelInfo:
    runner = checkpoint.runner
    return ModelInfo(
        name=spec.name,
        kind=spec.kind,
        scale=_SCALES[spec.kind],
        revision=checkpoint.revision,
        generation=generation,
        architecture=runner.model.config.model_type,
        execution=runner.execution,
        dtype=INT8 if spec.dtype == INT8 else str(runner.dtype).removeprefix("torch."),
        device=str(runner.device),
        gpu_maxsim=spec.gpu_maxsim,
        maxsim_backend=maxsim_backend(runner.device, spec.gpu_maxsim) if spec.kind in _USES_MAXSIM else None,
        max_length=checkpoint.max_length,
        weight_bytes=checkpoint.weight_bytes,
        load_seconds=seconds,
        shorter_dimensions=shorter_dimensions(checkpoint.folder) if spec.kind in _WITH_DENSE else None,
    )

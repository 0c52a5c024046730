"""Bi-encoders as sentence-transformers saves them: a transformer, a pooling, and what is chained behind.

A folder without ``modules.json`` is pooled by the mean, as the library does.

Shapes: T tokens on the row, N sequences, E hidden."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from workers.engine.errors import EngineError
from workers.engine.families.sentence_modules import Module, Step, check_transformer, read_modules, read_step
from workers.engine.forward.packed_batch import PackedBatch
from workers.engine.forward.steady_rows import by_rows
from workers.engine.loading.checkpoint import Checkpoint
from workers.engine.loading.weights import read_json
from workers.engine.model_types import ModelSpec, Scale
from workers.engine.pooling.encoding import Part
from workers.engine.pooling.modes import POOLING_MODES, cut_segments
from workers.engine.pooling.recipe import Pooled, Recipe
from workers.engine.role import Role
from workers.engine.sequence import Sequence
from workers.engine.texts.text_prompts import PromptedLayout
from workers.engine.types import PoolingRequest, PoolingTask, ScoringRequest

_SIMILARITIES = {"cosine": Scale.COSINE, "dot": Scale.DOT, "dot_product": Scale.DOT}
_LEGACY_MODES = {
    "pooling_mode_cls_token": "cls",
    "pooling_mode_max_tokens": "max",
    "pooling_mode_mean_tokens": "mean",
    "pooling_mode_mean_sqrt_len_tokens": "mean_sqrt_len_tokens",
    "pooling_mode_weightedmean_tokens": "weightedmean",
    "pooling_mode_lasttoken": "lasttoken",
}  # in the order in which several are joined


def sentence_recipe(spec: ModelSpec, checkpoint: Checkpoint) -> Recipe:
    folder, device = checkpoint.folder, checkpoint.runner.device
    settings = read_json(folder / "config_sentence_transformers.json")
    pooling, *behind = read_modules(folder)[1:] or [Module("Pooling", folder / "1_Pooling")]
    if pooling.kind != "Pooling":
        raise EngineError(
            "unsupported_module",
            f"{folder} has a {pooling.kind} behind its transformer, where a bi-encoder needs a Pooling.",
        )
    check_transformer(folder)
    layout = PromptedLayout(checkpoint.tokenizer, checkpoint.max_length, read_prompts(settings))
    steps = [read_step(module, device, torch.float32) for module in behind]
    if settings.get("truncate_dim"):
        width = int(settings["truncate_dim"])
        steps.append(lambda vectors: vectors[:, :width])
    whole = pooling.config.get("include_prompt", True)
    pooler = SentencePooler(*read_pooling(pooling), steps=steps, prompt_length=None if whole else layout.prompt_length)
    return Recipe(
        layout=layout,
        poolers={Part.DENSE: pooler},
        tasks={PoolingTask.EMBED: frozenset({Part.DENSE})},
        weights={Part.DENSE: 1.0},
        takes_instruction=layout.takes_instruction,
        scale=read_similarity(settings),
    )


class SentencePooler:
    """One vector per text, in float32; several modes are joined."""

    def __init__(
        self, *modes: str, steps: list[Step] | None = None, prompt_length: Callable[[Role, str], int] | None = None
    ) -> None:
        self._modes = [POOLING_MODES[mode] for mode in modes]
        self._steps = steps or []
        self._prompt_length = prompt_length

    def __call__(self, hidden: Tensor, batch: PackedBatch, sequences: list[Sequence], chosen: list[int]) -> Pooled:
        segments = cut_segments(hidden, batch, [self._skipped(sequence) for sequence in sequences])
        vectors = torch.cat([mode(segments) for mode in self._modes], dim=-1)[chosen]  # [n, E]
        for step in self._steps:
            vectors = by_rows(step, vectors)
        return Pooled([row.clone() for row in vectors], torch.isfinite(vectors).all(dim=1).tolist())

    def _skipped(self, sequence: Sequence) -> int:
        if self._prompt_length is None:
            return 0
        request = sequence.work.request
        if isinstance(request, PoolingRequest) and request.input_ids:  # no prompt was put before them
            return 0
        instruction = request.options.instruction if isinstance(request, ScoringRequest) else ""
        return self._prompt_length(sequence.role, instruction)


def read_prompts(settings: dict[str, Any]) -> dict[Role, str]:
    """As the library's ``encode_query`` and ``encode_document`` choose them: by these two names and no other."""
    prompts = settings.get("prompts") or {}
    return {role: prompts[role.value] for role in (Role.QUERY, Role.DOCUMENT) if prompts.get(role.value)}


def read_similarity(settings: dict[str, Any]) -> Scale:
    """Cosine where the folder says nothing."""
    name = settings.get("similarity_fn_name") or "cosine"
    if name not in _SIMILARITIES:
        raise EngineError(
            "unsupported_similarity",
            f"The checkpoint compares its vectors by '{name}'; supported are cosine and dot. Its scores by one of "
            "these would be others than it was trained for.",
        )
    return _SIMILARITIES[name]


def read_pooling(module: Module) -> tuple[str, ...]:
    """The modes in the order in which they are joined; mean where the folder is silent."""
    config = module.config
    flags = [key for key, on in config.items() if key.startswith("pooling_mode_") and on]
    legacy = [mode for key, mode in _LEGACY_MODES.items() if key in flags] + sorted(set(flags) - _LEGACY_MODES.keys())
    given = config.get("pooling_mode") or legacy or ["mean"]
    modes = (given,) if isinstance(given, str) else tuple(given)
    unknown = [mode for mode in modes if mode not in POOLING_MODES]
    if unknown:
        raise EngineError(
            "unsupported_pooling",
            f"{module.folder} pools by {', '.join(unknown)}; supported are {', '.join(POOLING_MODES)}.",
        )
    return modes

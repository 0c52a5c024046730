"""Classifiers: shares of labels for a text (``…ForSequenceClassification``) or for each of its tokens
(``…ForTokenClassification``).

Shares are the softmax over the labels; one label alone, or labels that do not exclude each other, have the sigmoid of
their own logit. Neighbouring tokens of one label are merged to spans of the text. A step-reward model, whose config
names a ``step_tag_id``, judges the places of that token only; where it is a control token, its name in a text stands
for it, as nothing else could say where a step ends.

Shapes: T tokens on the row, N sequences, E hidden, n tokens of one sequence, K labels."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial

import torch
from torch import Tensor
from transformers import PretrainedConfig

from workers.engine.forward.heads import Head, classification_head, label_names
from workers.engine.forward.own_head import PositionwiseHead
from workers.engine.forward.packed_batch import PackedBatch
from workers.engine.forward.steady_rows import by_rows
from workers.engine.loading.checkpoint import Checkpoint
from workers.engine.model_types import ModelSpec
from workers.engine.pooling.encoding import Part
from workers.engine.pooling.recipe import PlainLayout, Pooled, Recipe
from workers.engine.pooling.spans import token_offsets, token_spans
from workers.engine.role import Role
from workers.engine.sequence import Sequence as Waiting
from workers.engine.texts.tokenizer import TextTokenizer, Tokens
from workers.engine.types import PoolingOutput, PoolingRequest, PoolingTask


def classifier_recipe(spec: ModelSpec, checkpoint: Checkpoint) -> Recipe:
    config, tokenizer = checkpoint.model.config, checkpoint.tokenizer
    labels, activation = label_names(config), _activation(config)
    plain = PlainLayout(tokenizer, checkpoint.max_length)
    if not type(checkpoint.model).__name__.endswith("ForTokenClassification"):
        return Recipe(
            layout=plain,
            poolers={Part.CLASSES: ClassPooler(classification_head(checkpoint.model, labels[0]))},
            tasks={PoolingTask.CLASSIFY: frozenset({Part.CLASSES})},
            labels=labels,
            activation=activation,
        )
    step: int | None = getattr(config, "step_tag_id", None)
    return Recipe(
        layout=plain if step is None else StepLayout(tokenizer, checkpoint.max_length, step),
        poolers={Part.TOKEN_CLASSES: TokenClassPooler(PositionwiseHead(checkpoint.model), tokenizer, step)},
        tasks={PoolingTask.TOKEN_CLASSIFY: frozenset({Part.TOKEN_CLASSES})},
        labels=labels,
        activation=activation,
        refine=partial(_add_spans, tokenizer) if step is None else None,
        sample_tail="" if step is None else tokenizer.text_of(step),
    )


class ClassPooler:
    """The logits of a text, in float32."""

    def __init__(self, head: Head) -> None:
        self._head = head

    def __call__(self, hidden: Tensor, batch: PackedBatch, sequences: list[Waiting], chosen: list[int]) -> Pooled:
        with torch.inference_mode():
            logits = by_rows(self._head.project, self._head.pool(hidden, batch, chosen).float())  # [N, K]
        return Pooled([row.clone() for row in logits], torch.isfinite(logits).all(dim=1).tolist())


class TokenClassPooler:
    """The logits of a text's own tokens, control tokens left out, or of its step tokens."""

    def __init__(self, head: Callable[[Tensor], Tensor], tokenizer: TextTokenizer, step: int | None) -> None:
        self._head = head
        self._before, self._behind = len(tokenizer.prefix_ids), len(tokenizer.suffix_ids)
        self._step = step

    def __call__(self, hidden: Tensor, batch: PackedBatch, sequences: list[Waiting], chosen: list[int]) -> Pooled:
        parts = self._head(hidden).float().cpu().split(batch.lengths_cpu)  # N of [n, K]
        kept = [self._kept(sequences[i].token_ids) for i in chosen]
        values = [parts[i][list(own)] for i, own in zip(chosen, kept, strict=True)]
        return Pooled(values, [bool(torch.isfinite(value).all()) for value in values], kept)

    def _kept(self, token_ids: list[int]) -> Sequence[int]:
        own = range(self._before, len(token_ids) - self._behind)
        return own if self._step is None else [place for place in own if token_ids[place] == self._step]


class StepLayout(PlainLayout):
    """As plain, but the step token's name in a text becomes that token."""

    def __init__(self, tokenizer: TextTokenizer, max_length: int, step: int) -> None:
        super().__init__(tokenizer, max_length)
        self._step = step
        self._name = next((name for name, token_id in tokenizer.control.items() if token_id == step), None)

    def encode(self, texts: Sequence[str], role: Role, limit: int, instruction: str) -> list[Tokens]:
        if self._name is None:
            return super().encode(texts, role, limit, instruction)
        return [self._encode(text.split(self._name), limit) for text in texts]

    def _encode(self, steps: list[str], limit: int) -> Tokens:
        tokenizer = self._tokenizer
        ids = tokenizer.encode(steps[0])
        for step in steps[1:]:
            ids += [self._step, *tokenizer.encode(step)]
        kept = ids[:limit]
        return Tokens([*tokenizer.prefix_ids, *kept, *tokenizer.suffix_ids], len(ids) - len(kept), len(kept))


def _activation(config: PretrainedConfig) -> Callable[[Tensor], Tensor] | None:
    if config.problem_type == "regression":
        return None
    if config.problem_type == "multi_label_classification" or config.num_labels == 1:
        return torch.sigmoid
    return partial(torch.softmax, dim=-1)


def _add_spans(tokenizer: TextTokenizer, request: PoolingRequest, output: PoolingOutput) -> PoolingOutput:
    """Logits have none: a span's score is a share."""
    if not request.options.use_activation:
        return output
    data = list(output.data)
    for place, (text, pooled) in enumerate(zip(request.inputs, output.data, strict=True)):
        if pooled.token_classes is not None:
            offsets = token_offsets(tokenizer, text, len(pooled.token_ids))
            data[place] = replace(pooled, spans=token_spans(text, pooled.token_classes, offsets, output.labels))
    return replace(output, data=tuple(data))

"""From hidden states to one raw score per pair: the last step of cross-encoders and LLM rerankers, always in float32.

A head is a way of pooling and the modules behind it. Those of sequence classification are rows of one table; an LLM
reranker has none: the rows of its output embedding that belong to the answers are its head.

Shapes: T tokens on the row, n pairs, E hidden, K labels, V vocabulary."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from transformers import PretrainedConfig, PreTrainedModel
from transformers.activations import ACT2FN
from transformers.modeling_layers import GenericForSequenceClassification

from workers.engine.errors import EngineError
from workers.engine.forward.packed_batch import PackedBatch
from workers.engine.forward.steady_rows import by_rows
from workers.engine.forward.vocabulary import cap_logits
from workers.engine.loading.architectures import final_softcap


@dataclass(frozen=True, slots=True)
class Head:
    """``project`` maps float32 ``[n, E]`` to ``[n, K]``. Several exclusive labels become the log-odds of the positive
    one against all others, which never saturate; of labels that do not exclude each other its own logit counts."""

    pooling: str  # "first" | "last" | "mean"
    project: Callable[[Tensor], Tensor]
    positive: int = 0
    exclusive: bool = True

    def raw_scores(self, pooled: Tensor) -> Tensor:
        """``[n, E]`` to float32 ``[n]``."""
        logits = by_rows(self.project, pooled.float())  # [n, K]
        positive = logits[:, self.positive]
        if logits.shape[1] == 1 or not self.exclusive:
            return positive
        others = [label for label in range(logits.shape[1]) if label != self.positive]
        return positive - logits[:, others].logsumexp(dim=-1)

    def pool(self, hidden: Tensor, batch: PackedBatch, rows: list[int]) -> Tensor:
        """``[T, E]`` to ``[n, E]``, for the pieces ``rows`` of the batch."""
        cursor = batch.cursor
        if self.pooling == "mean":
            means = torch.segment_reduce(hidden.float(), "mean", lengths=cursor.last - cursor.first + 1, axis=0)
            return means[rows]
        return hidden[(cursor.first if self.pooling == "first" else cursor.last)[rows]]


@dataclass(frozen=True, slots=True)
class _Row:
    """``modules``: names in the model, or activations, in their order behind the pooled state."""

    modules: tuple[str | nn.Module, ...]
    pooling: str = "first"


def _roberta_like(activation: nn.Module) -> _Row:
    return _Row(("classifier.dense", activation, "classifier.out_proj"))


_CLASSIFIERS: dict[str, Callable[[PretrainedConfig], _Row]] = {
    "bert": lambda config: _Row(("bert.pooler.dense", nn.Tanh(), "classifier")),
    "camembert": lambda config: _roberta_like(nn.Tanh()),
    "deberta-v2": lambda config: _Row(("pooler.dense", ACT2FN[config.pooler_hidden_act], "classifier")),
    "distilbert": lambda config: _Row(("pre_classifier", nn.ReLU(), "classifier")),
    "electra": lambda config: _roberta_like(ACT2FN["gelu"]),
    "modernbert": lambda config: _Row(
        ("head", "classifier"), {"cls": "first", "mean": "mean"}[config.classifier_pooling]
    ),
    "mpnet": lambda config: _roberta_like(nn.Tanh()),
    "roberta": lambda config: _roberta_like(nn.Tanh()),
    "xlm-roberta": lambda config: _roberta_like(nn.Tanh()),
}


def classification_head(model: PreTrainedModel, positive_class: str) -> Head:
    """The head of a ``…ForSequenceClassification``; its modules become float32 and leave the body's forward."""
    config = model.config
    positive = _positive_index(label_names(config), positive_class)
    if isinstance(model, GenericForSequenceClassification):
        row = _Row(("score",), "last")
    elif config.model_type in _CLASSIFIERS:
        row = _CLASSIFIERS[config.model_type](config)
    else:
        raise EngineError(
            "unsupported_architecture",
            f"'{config.model_type}' is not among the cross-encoders scored here: {', '.join(sorted(_CLASSIFIERS))} and "
            "decoders with one linear layer over the last token (Qwen3, Llama, Gemma). Give such a checkpoint.",
        )
    modules = [model.get_submodule(part) if isinstance(part, str) else part for part in row.modules]
    body: Any = model.base_model
    if getattr(body, "pooler", None) is not None:  # it would run over the whole row, for nothing
        body.pooler = None
    exclusive = config.problem_type != "multi_label_classification"
    return Head(row.pooling, nn.Sequential(*modules).float(), positive, exclusive)


def label_head(model: PreTrainedModel, true_id: int, false_id: int | None) -> Head:
    """The logit of one token after the prompt, or its difference to another's: ``[n, 1]``.

    Without a soft cap the difference of two logits is the product with the difference of two rows: folded once."""
    head: Any = model.get_output_embeddings()
    ids = [true_id] if false_id is None else [true_id, false_id]
    vocabulary = len(head.weight)
    if max(ids) >= vocabulary:
        raise EngineError("unknown_token_id", f"Token ids {ids} are outside the vocabulary of {vocabulary} tokens.")
    weight, bias = head.weight[ids].float(), head.bias[ids].float() if head.bias is not None else torch.zeros(len(ids))
    bias = bias.to(weight.device)
    sign = weight.new_tensor([[1.0, -1.0][: len(ids)]])  # [1, 1 or 2]
    softcap = final_softcap(model.config)
    if softcap is not None:
        return Head("last", lambda hidden: cap_logits(F.linear(hidden, weight, bias), softcap) @ sign.T)
    folded, offset = sign @ weight, sign @ bias  # [1, E], [1]
    return Head("last", lambda hidden: F.linear(hidden, folded, offset))


def label_names(config: PretrainedConfig) -> tuple[str, ...]:
    names: Any = config.id2label
    return tuple(names[index] for index in sorted(names))


def _positive_index(labels: tuple[str, ...], wanted: str) -> int:
    if wanted in labels:
        return labels.index(wanted)
    if wanted:
        raise EngineError(
            "unknown_positive_class",
            f"The positive class is given as '{wanted}', but the checkpoint's labels are {', '.join(labels)}. "
            "Give one of them.",
        )
    if len(labels) > 1:
        raise EngineError(
            "positive_class_needed",
            f"The checkpoint has {len(labels)} labels: {', '.join(labels)}. Name in positive_class the one that means "
            "'relevant'; its share becomes the score.",
        )
    return 0

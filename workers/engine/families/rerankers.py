"""Which cross-encoder a checkpoint is, read off the checkpoint: where its texts go, what its head is, what becomes of
its raw score.

1. A tokenizer whose chat template has the roles ``query`` and ``document`` says itself what a prompt looks like
   (sentence-transformers' layout). Chat templates without these roles are a base model's, and play no part.
2. Else a causal checkpoint (``…ForCausalLM``) registered as a cross-encoder is the reranker that its family has:
   Qwen3 is Qwen3-Reranker, Qwen2 is mxbai-rerank-v2, Gemma is bge-reranker-v2-gemma. Each has its published prompt.
   The answers' token ids come from ``1_LogitScore`` where the folder has it, else from the published recipe.
3. ``Qwen3ForSequenceClassification`` with one label and a Qwen3 vocabulary (it holds ``<think>``), not saved by
   sentence-transformers itself (no ``modules.json``), is the export of Qwen3-Reranker: the same prompt.
4. Every other ``…ForSequenceClassification`` reads a pair as its tokenizer places it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from workers.engine.errors import EngineError
from workers.engine.forward.activations import Activation, read_activation
from workers.engine.forward.heads import Head, classification_head, label_head, label_names
from workers.engine.loading.checkpoint import Checkpoint
from workers.engine.loading.weights import read_json
from workers.engine.texts.chat_roles import role_prompt
from workers.engine.texts.pair_layout import PairLayout, PromptedPair, Segment, SeparatedPair, Slot
from workers.engine.texts.tokenizer import TextTokenizer

_QWEN3_START = (
    "<|im_start|>system\nJudge whether the Document meets the requirements based on the Query and the Instruct "
    'provided. Note that the answer can only be "yes" or "no".<|im_end|>\n<|im_start|>user\n'
)
_QWEN3_END = "<|im_end|>\n<|im_start|>assistant\n<think>\n\n</think>\n\n"
_QWEN3_INSTRUCTION = "Given a web search query, retrieve relevant passages that answer the query"
_MXBAI_START = (
    "<|im_start|>system\nYou are Qwen, created by Alibaba Cloud. You are a helpful assistant.<|im_end|>\n"
    "<|im_start|>user\n"
)
_MXBAI_TASK = (
    "You are a search relevance expert who evaluates how well documents match search queries. For each query-document "
    "pair, carefully analyze the semantic relationship between them, then provide your binary relevance judgment "
    "(0 for not relevant, 1 for relevant).\nRelevance:"
)
_MXBAI_END = "<|im_end|>\n<|im_start|>assistant\n"
_GEMMA_TASK = (
    "Given a query A and a passage B, determine whether the passage contains an answer to the query by providing a "
    "prediction of either 'Yes' or 'No'."
)


@dataclass(frozen=True, slots=True)
class Reranker:
    layout: PairLayout
    head: Head
    activation: Activation


@dataclass(frozen=True, slots=True)
class _Recipe:
    """A family's published way of asking, and the answers whose logits count (no second one: the first alone)."""

    prompt: Callable[[TextTokenizer], PromptedPair]
    answers: tuple[str, str | None]


def read_reranker(checkpoint: Checkpoint, positive_class: str) -> Reranker:
    """Raises ``EngineError`` where the checkpoint is no cross-encoder that is known here."""
    model, folder = checkpoint.model, checkpoint.folder
    if model.get_output_embeddings() is None:
        head = classification_head(model, positive_class)
        labels = len(label_names(model.config))
        activation, exclusive = read_activation(folder, labels=labels, exclusive=head.exclusive)
        return Reranker(_classifier_layout(checkpoint), replace(head, exclusive=exclusive), activation)
    if positive_class:
        raise EngineError(
            "unknown_positive_class",
            f"The positive class is given as '{positive_class}', but a causal reranker has a single score. "
            "Leave positive_class out.",
        )
    layout, ids = _causal_layout(checkpoint)
    activation, _ = read_activation(folder, labels=1, exclusive=True)
    return Reranker(layout, label_head(model, *ids), activation)


def _classifier_layout(checkpoint: Checkpoint) -> PairLayout:
    model, tokenizer, folder = checkpoint.model, checkpoint.tokenizer, checkpoint.folder
    roles = role_prompt(folder, tokenizer)
    if roles is not None:
        return roles
    exported = (
        model.config.model_type == "qwen3" and len(label_names(model.config)) == 1 and "<think>" in tokenizer.control
    )
    if exported and not (folder / "modules.json").is_file():
        return _RECIPES["qwen3"].prompt(tokenizer)
    return SeparatedPair(tokenizer, typed=checkpoint.token_types)


def _causal_layout(checkpoint: Checkpoint) -> tuple[PairLayout, tuple[int, int | None]]:
    tokenizer, folder = checkpoint.tokenizer, checkpoint.folder
    family = checkpoint.model.config.model_type
    recipe = _RECIPES.get(family)
    roles = role_prompt(folder, tokenizer)
    ids = _logit_score(folder)
    if recipe is None and (roles is None or ids is None):
        raise EngineError(
            "unsupported_reranker",
            f"No way is known in which a causal '{family}' model is asked about a pair. Known are "
            f"{', '.join(sorted(_RECIPES))} (Qwen3-Reranker, mxbai-rerank-v2, bge-reranker-v2-gemma) and folders with "
            "1_LogitScore and a chat template for the roles query and document. Register it as generative, with a "
            "template of your own.",
        )
    if ids is None:
        assert recipe is not None
        positive, negative = recipe.answers
        ids = _answer_id(tokenizer, positive), None if negative is None else _answer_id(tokenizer, negative)
    if roles is not None:
        return roles, ids
    assert recipe is not None
    return recipe.prompt(tokenizer), ids


def _logit_score(folder: Path) -> tuple[int, int | None] | None:
    """The token ids of sentence-transformers' ``LogitScore`` module, if the folder has one."""
    modules: Any = read_json(folder / "modules.json") or []
    for module in modules:
        if module["type"].endswith(".LogitScore"):
            config = read_json(folder / module["path"] / "config.json")
            false_id = config.get("false_token_id")
            return int(config["true_token_id"]), None if false_id is None else int(false_id)
    return None


def _answer_id(tokenizer: TextTokenizer, answer: str) -> int:
    ids = tokenizer.encode(answer)
    if len(ids) != 1:
        raise EngineError(
            "answer_not_single_token",
            f"The answer '{answer}' is {len(ids)} tokens {ids} here, so the checkpoint is not its family's "
            "reranker. Register it as generative, with labels of its own.",
        )
    return ids[0]


def _qwen3(tokenizer: TextTokenizer) -> PromptedPair:
    """The body is one string to the tokenizer; start and end are tokenised apart from it."""
    body = ("<Instruct>: ", Slot.INSTRUCTION, "\n<Query>: ", Slot.QUERY, "\n<Document>: ", Slot.DOCUMENT)
    start, end = (tokenizer.encode_with_control(text) for text in (_QWEN3_START, _QWEN3_END))
    return PromptedPair(tokenizer, [start, body, end], default_instruction=_QWEN3_INSTRUCTION)


def _mxbai(tokenizer: TextTokenizer) -> PromptedPair:
    """Piece by piece, as published; the instruction stands in one string with the query."""
    encode = tokenizer.encode_with_control
    line, tail = encode("\n"), [*encode("\n"), *encode(_MXBAI_TASK), *encode(_MXBAI_END)]
    query: Segment = ("query: ", Slot.QUERY)
    instructed: Segment = ("instruction: ", Slot.INSTRUCTION, "\nquery: ", Slot.QUERY)
    document: Segment = ("document: ", Slot.DOCUMENT)
    plain, asked = ([encode(_MXBAI_START), first, line, document, tail] for first in (query, instructed))
    return PromptedPair(tokenizer, plain, instructed=asked)


def _gemma(tokenizer: TextTokenizer) -> PromptedPair:
    """Piece by piece, as published. Its task sentence is what an instruction replaces there."""
    line = tokenizer.encode("\n")
    start = tokenizer.prefix_ids
    segments: list[Segment] = [start, ("A: ", Slot.QUERY), line, ("B: ", Slot.DOCUMENT), line, (Slot.INSTRUCTION,)]
    return PromptedPair(tokenizer, segments, default_instruction=_GEMMA_TASK)


_RECIPES = {
    "gemma": _Recipe(_gemma, ("Yes", None)),
    "qwen2": _Recipe(_mxbai, ("1", "0")),
    "qwen3": _Recipe(_qwen3, ("yes", "no")),
}

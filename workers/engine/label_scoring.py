"""Generative scoring: how likely is each label as the next token after a prompt about one query and one item.

Items of one query share the tokens their prompts begin with: those run once per micro-batch and every item attends to
them.

Shapes: n prompts of a micro-batch, E hidden, V vocabulary, K labels, P pairs."""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
import torch.nn.functional as F
from torch import Tensor

from workers.engine.architectures import final_softcap
from workers.engine.counters import Counters
from workers.engine.errors import EngineError
from workers.engine.loading import Checkpoint
from workers.engine.model_types import ModelInfo, ModelSpec
from workers.engine.outputs import PairFacts, assemble_output, is_blank, pair_indices, refuse_too_long
from workers.engine.packed_batch import Piece
from workers.engine.role import Role
from workers.engine.sequence import Prefix, Sequence, Work
from workers.engine.task_runner import CHARACTERS_PER_TOKEN, TaskRunner
from workers.engine.templates import Prompt, PromptTemplate, default_template
from workers.engine.tokenizer import TextTokenizer
from workers.engine.types import LabelScores, ScoringOptions, ScoringOutput, ScoringRequest
from workers.engine.vocabulary import cap_logits, vocabulary_logsumexp

_TEMPLATE_TOKENS = 64  # a guess, only to bound what waits


@dataclass(frozen=True, slots=True)
class Labels:
    names: tuple[str, ...]  # K
    token_ids: tuple[int, ...]  # K


@dataclass(eq=False, slots=True)
class LabelResults:
    """What one request gathers; prompts are the distinct (query, item) pairs that hold text."""

    labels: Labels
    prompt_of: npt.NDArray[np.intp]  # [P], -1: empty
    logprobs: npt.NDArray[np.float32]  # [distinct prompts, K]
    prompts: list[Prompt | None] = field(default_factory=list)  # None: no room for the item
    fallback: str | None = None  # why the vocabulary was summed another way than wanted


class LabelRunner(TaskRunner):
    """One causal model. Label logits are computed in float32 from the last token's hidden state."""

    def __init__(self, spec: ModelSpec, checkpoint: Checkpoint, info: ModelInfo, counters: Counters) -> None:
        super().__init__(info)
        self._model = checkpoint.runner
        self._tokenizer = checkpoint.tokenizer
        self._counters = counters
        self._default_labels = spec.labels or ("yes", "no")
        head: Any = checkpoint.model.get_output_embeddings()
        self._weight: Tensor = head.weight  # [V, E]
        self._bias: Tensor | None = getattr(head, "bias", None)  # [V]
        self._softcap = final_softcap(checkpoint.runner.model.config)
        tokenizer = checkpoint.tokenizer  # not self: a cycle would keep the weights after an unload
        own = spec.template or default_template(tokenizer)
        self._template = lru_cache(maxsize=64)(
            lambda given, first: PromptTemplate(given or own, tokenizer, item_first=first, registered=not given)
        )
        self._labels(ScoringOptions(), self._template("", False))  # a bad registration fails now

    def estimate(self, request: ScoringRequest) -> int:
        queries, documents = pair_indices(request)
        query_characters = np.array([len(text) for text in request.queries])
        item_characters = np.array([len(text) for text in request.documents])
        tokens = _TEMPLATE_TOKENS + (query_characters[queries] + item_characters[documents]) // CHARACTERS_PER_TOKEN
        return int(np.minimum(tokens, self.info.max_length).sum())

    def prepare(self, work: Work) -> None:
        request, options = work.scoring, work.scoring.options
        template = self._template(options.template, options.item_first)
        labels = self._labels(options, template)
        prompt_of, pairs = _distinct_pairs(request)
        prompts = [
            template.build(
                request.queries[query],
                request.documents[document],
                max_length=self.info.max_length,
                max_query=options.max_tokens_per_query,
                max_item=options.max_tokens_per_document,
            )
            for query, document in pairs
        ]
        refuse_too_long(
            options.truncation,
            "documents",
            {d: p.truncated for (_, d), p in zip(pairs, prompts, strict=True) if p and p.truncated},
        )
        refuse_too_long(
            options.truncation,
            "queries",
            {q: p.query_truncated for (q, _), p in zip(pairs, prompts, strict=True) if p and p.query_truncated},
        )
        self._counters.add(truncations=sum(bool(p and p.truncated) for p in prompts))
        logprobs = np.full((len(prompts), len(labels.names)), np.nan, dtype=np.float32)
        work.results = LabelResults(labels, prompt_of, logprobs, prompts)
        by_query: dict[int, list[tuple[int, list[int]]]] = {}
        for index, ((query, _), prompt) in enumerate(zip(pairs, prompts, strict=True)):
            if prompt is not None:
                by_query.setdefault(query, []).append((index, prompt.token_ids))
        for members in by_query.values():
            shared = _shared_length([ids for _, ids in members]) if self._model.execution == "packed" else 0
            prefix = Prefix(members[0][1][:shared]) if shared else None
            work.pending.extend(
                Sequence(work, Role.PROMPT, index, ids[shared:], prefix=prefix) for index, ids in members
            )

    def run(self, sequences: list[Sequence]) -> None:
        started = time.monotonic()
        self._score(sequences, in_float32=False)
        again = [s for s in sequences if not np.isfinite(s.work.results.logprobs[s.index]).all()]
        if again and self._model.dtype != torch.float32:
            self._counters.add(float32_retries=len(again))
            self._score(again, in_float32=True)
        elapsed = time.monotonic() - started
        for work in {sequence.work for sequence in sequences}:
            work.forward_seconds += elapsed

    def finish(self, work: Work) -> ScoringOutput:
        results: LabelResults = work.results
        request = work.scoring
        prompts = [results.prompts[place] if place >= 0 else None for place in results.prompt_of]
        logprobs = np.full((len(prompts), len(results.labels.names)), np.nan, dtype=np.float32)  # [P, K]
        filled = results.prompt_of >= 0
        logprobs[filled] = results.logprobs[results.prompt_of[filled]]
        positive = logprobs[:, 0]
        raw = _log_odds(logprobs) if request.options.apply_softmax else positive
        cut = np.array([prompt.truncated if prompt else 0 for prompt in prompts], dtype=np.int32)
        query_cut = np.array([prompt.query_truncated if prompt else 0 for prompt in prompts], dtype=np.int32)
        pair_queries, _ = pair_indices(request)
        query_truncated = np.zeros(len(request.queries), dtype=np.int32)
        np.maximum.at(query_truncated, pair_queries, query_cut)
        no_room = {
            pair: "prompt_too_long"
            for pair, (fits, prompt) in enumerate(zip(filled, prompts, strict=True))
            if fits and prompt is None
        }
        token_ids = tuple((token_id,) for token_id in results.labels.token_ids)
        return assemble_output(
            work,
            self.info,
            self._counters,
            scores=np.exp(positive),
            raw_scores=raw,
            facts=PairFacts(~filled, cut, query_cut),
            errors=no_room,
            query_truncated=query_truncated,
            prompt_tokens=sum(len(prompt.token_ids) for prompt in prompts if prompt),
            fallback=results.fallback,
            labels=LabelScores(results.labels.names, token_ids, np.exp(logprobs), logprobs),
        )

    def _labels(self, options: ScoringOptions, template: PromptTemplate) -> Labels:
        """Label strings become the ids by which the end of the prompt grows when the label is written behind it."""
        if options.label_token_ids:
            ids = options.label_token_ids
            unknown = [token_id for token_id in ids if not 0 <= token_id < len(self._weight)]
            if unknown:
                raise EngineError(
                    "unknown_token_id", f"Token ids {unknown} are outside the vocabulary of {len(self._weight)} tokens."
                )
            labels = Labels(tuple(self._tokenizer.text_of(token_id) for token_id in ids), ids)
        else:
            names = options.labels or self._default_labels
            labels = Labels(names, tuple(_label_id(self._tokenizer, template.tail, name) for name in names))
        if len(set(labels.token_ids)) < len(labels.token_ids):
            raise EngineError(
                "equal_labels",
                f"Two of the labels {list(labels.names)} are the same token {list(labels.token_ids)}. "
                "Give labels that differ in it.",
            )
        if options.apply_softmax and len(labels.names) < 2:
            raise EngineError(
                "one_label",
                "Among one label its probability is always 1. Give a second label, or set apply_softmax to false.",
            )
        return labels

    def _score(self, sequences: list[Sequence], *, in_float32: bool) -> None:
        """Fill ``logprobs`` of the sequences' prompts, NaN where the model's numbers are."""
        hidden, ordered = self._last_hidden(sequences, in_float32)  # [n, E]
        groups: dict[Work, list[int]] = {}
        for row, sequence in enumerate(ordered):
            groups.setdefault(sequence.work, []).append(row)
        for work, rows in groups.items():
            logprobs = self._label_logprobs(hidden[rows], work.results, work.scoring.options.apply_softmax)
            work.results.logprobs[[ordered[row].index for row in rows]] = logprobs.cpu().numpy()

    def _last_hidden(self, sequences: list[Sequence], in_float32: bool) -> tuple[Tensor, list[Sequence]]:
        """One row ``[prefix | item | item … | prefix | item …]``; each last state, in the order returned."""
        ordered = sorted(
            sequences, key=lambda s: (id(s.prefix), len(s.token_ids))
        )  # equal lengths side by side: one attention call
        pieces: list[Piece] = []
        places: dict[Prefix, int] = {}
        rows = []
        for sequence in ordered:
            prefix = sequence.prefix
            if prefix is not None and prefix not in places:
                places[prefix] = len(pieces)
                pieces.append(Piece(prefix.token_ids))
            rows.append(len(pieces))
            pieces.append(Piece(sequence.token_ids, prefix=None if prefix is None else places[prefix]))
        batch = self._model.pack(pieces)
        hidden = self._model.forward(batch, in_float32=in_float32)  # [T, E]
        return hidden[batch.cursor.last[rows]], ordered

    def _label_logprobs(self, hidden: Tensor, results: LabelResults, over_labels: bool) -> Tensor:
        """``[n, E]`` to float32 ``[n, K]``, normalised over the labels (only their rows are multiplied) or over all."""
        rows = list(results.labels.token_ids)
        bias = None if self._bias is None else self._bias[rows].float()
        logits = F.linear(hidden.float(), self._weight[rows].float(), bias)  # [n, K]
        logits = cap_logits(logits, self._softcap)
        if over_labels:
            return logits.log_softmax(dim=-1)
        total, reason = vocabulary_logsumexp(hidden, self._weight, self._bias, self._softcap)
        if reason is not None and results.fallback is None:
            results.fallback = reason
            self._counters.add(label_fallbacks=1)
        return logits - total[:, None]


def _label_id(tokenizer: TextTokenizer, tail: str, name: str) -> int:
    before, after = tokenizer.encode(tail), tokenizer.encode(tail + name)
    if after[: len(before)] != before:
        raise EngineError(
            "label_merges_with_prompt",
            f"The label '{name}' written behind the prompt's end {tail!r} changes that end's own tokens. "
            "End the template with a line break, or give label_token_ids.",
        )
    if len(after) != len(before) + 1:
        raise EngineError(
            "label_not_single_token",
            f"The label '{name}' is {len(after) - len(before)} tokens {after[len(before) :]} behind the prompt. "
            "Give labels of one token, or label_token_ids.",
        )
    return after[-1]


def _distinct_pairs(request: ScoringRequest) -> tuple[npt.NDArray[np.intp], list[tuple[int, int]]]:
    """Each pair's prompt (-1: a side is blank), and for each prompt one (query, document) that it is for."""
    places: dict[tuple[str, str], int] = {}
    pairs: list[tuple[int, int]] = []
    prompt_of = []
    for query, document in zip(*pair_indices(request), strict=True):
        texts = request.queries[query], request.documents[document]
        if is_blank(texts[0]) or is_blank(texts[1]):
            prompt_of.append(-1)
            continue
        if texts not in places:
            places[texts] = len(pairs)
            pairs.append((int(query), int(document)))
        prompt_of.append(places[texts])
    return np.array(prompt_of, dtype=np.intp), pairs


def _shared_length(prompts: list[list[int]]) -> int:
    """How many tokens all prompts begin with, each keeping one of its own; 0 for a single prompt."""
    if len(prompts) < 2:
        return 0
    first, last = min(prompts), max(prompts)  # in dictionary order the two extremes differ earliest
    shared = next((i for i, (a, b) in enumerate(zip(first, last, strict=False)) if a != b), min(len(first), len(last)))
    return min(shared, min(map(len, prompts)) - 1)


def _log_odds(logprobs: npt.NDArray[np.float32]) -> npt.NDArray[np.float32]:
    """Of the first label against all others together: unlike the probability, it never saturates."""
    others = torch.from_numpy(logprobs[:, 1:]).logsumexp(dim=-1).numpy()
    odds: npt.NDArray[np.float32] = logprobs[:, 0] - others
    return odds

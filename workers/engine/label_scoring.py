"""Generative scoring: how likely is each label behind a prompt about one query and one item.

What is computed. The log-probability of a label with tokens t1 … tm behind a prompt x is the sum of the log p(ti | x,
t1 … ti-1), each over the model's whole vocabulary, in float32. With ``apply_softmax`` these sums are normalised over
the labels: a label's share is exp(sum) over all labels' exp(sum) added up. Nothing is divided by a label's length: a
longer label is less likely for its length alone, and no label is likelier than one that it begins with.

Prompts share what they begin with, labels share their prompt (``prompt_row.py``).

Shapes: n prompts of a micro-batch, E hidden, V vocabulary, K labels, L tokens of a continuation, P pairs."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
import torch.nn.functional as F
from torch import Tensor

from workers.engine.counters import Counters
from workers.engine.forward.packed_batch import PackedBatch
from workers.engine.forward.steady_rows import by_rows, fill_rows
from workers.engine.forward.vocabulary import cap_logits, vocabulary_logsumexp
from workers.engine.loading.architectures import final_softcap
from workers.engine.loading.checkpoint import Checkpoint
from workers.engine.model_types import ModelInfo, ModelSpec
from workers.engine.outputs import PairFacts, assemble_output, pair_indices
from workers.engine.prompt_row import LaidPrompt, PromptRow, chained_sequences, name_prefixes, score_with_retry
from workers.engine.role import Role
from workers.engine.sequence import Sequence, Work
from workers.engine.task_runner import CHARACTERS_PER_TOKEN, ReadingRunner
from workers.engine.texts.labels import Labels, find_labels
from workers.engine.texts.prompts import PromptBuilder, Side, refuse_strange_ids, sides
from workers.engine.texts.templates import Prompt, PromptTemplate, default_template
from workers.engine.types import LabelScores, ScoringOptions, ScoringOutput, ScoringRequest

_TEMPLATE_TOKENS = 64  # a guess, only to bound what waits


@dataclass(eq=False, slots=True)
class LabelResults:
    """What one request gathers; prompts are the distinct (query, item) pairs that hold text."""

    labels: Labels
    prompt_of: npt.NDArray[np.intp]  # [P], -1: empty
    logprobs: npt.NDArray[np.float32]  # [distinct prompts, K]
    prompts: list[Prompt | None] = field(default_factory=list)  # None: no room for the item
    fallback: str | None = None  # why the vocabulary was summed another way than wanted


class LabelRunner(ReadingRunner):
    """One causal model. Label logits are computed in float32 from the hidden states that precede the labels' tokens."""

    takes_token_ids = True
    reads_whole_pairs = True

    def __init__(self, spec: ModelSpec, checkpoint: Checkpoint, info: ModelInfo, counters: Counters) -> None:
        super().__init__(info)
        self._model = checkpoint.runner
        self.tokenizer = checkpoint.tokenizer
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
        self._labels_and_prompts(ScoringOptions(), by_ids=False)  # a bad registration fails now

    def estimate(self, request: ScoringRequest) -> int:
        queries, documents = pair_indices(request)
        query_tokens, item_tokens = (np.array([_about_tokens(each) for each in side]) for side in sides(request))
        tokens = _TEMPLATE_TOKENS + query_tokens[queries] + item_tokens[documents]
        return int(np.minimum(tokens, self.info.max_length).sum())

    def document_excess(self, query: Side, document: Side, options: ScoringOptions) -> int:
        by_ids = not (isinstance(query, str) and isinstance(document, str))
        prompt = self._labels_and_prompts(options, by_ids=by_ids)[1].build(query, document)
        return prompt.truncated if prompt else 0

    def prepare(self, work: Work) -> None:
        request, options = work.scoring, work.scoring.options
        refuse_strange_ids(request, len(self._weight))
        labels, builder = self._labels_and_prompts(options, by_ids=bool(request.query_ids or request.document_ids))
        made = builder.build_all(request)
        self._counters.add(truncations=sum(bool(prompt and prompt.truncated) for prompt in made.prompts))
        logprobs = np.full((len(made.prompts), len(labels.names)), np.nan, dtype=np.float32)
        work.results = LabelResults(labels, made.of_pair, logprobs, made.prompts)
        queries, documents = sides(request)
        groups: dict[Side, list[int]] = {}  # prompts that begin alike
        for index, ((query, document), prompt) in enumerate(zip(made.pairs, made.prompts, strict=True)):
            if prompt is not None:
                groups.setdefault(documents[document] if options.item_first else queries[query], []).append(index)
        for members in groups.values():
            work.pending.extend(self._sequences(work, members))

    def rows(self, work: Work) -> list[tuple[Role, list[int]]]:
        return [(Role.PROMPT, prompt.token_ids) for prompt in work.results.prompts if prompt]

    def rows_of(self, work: Work, pair: int) -> list[tuple[Role, list[int]]]:
        place = work.results.prompt_of[pair]
        read: Prompt | None = work.results.prompts[place] if place >= 0 else None
        return [(Role.PROMPT, read.token_ids)] if read else []

    def run(self, sequences: list[Sequence]) -> None:
        score_with_retry(sequences, self._score, self._model, self._counters)

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
        query_truncated = np.zeros(request.query_count, dtype=np.int32)
        np.maximum.at(query_truncated, pair_queries, query_cut)
        no_room = {
            pair: "prompt_too_long"
            for pair, (fits, prompt) in enumerate(zip(filled, prompts, strict=True))
            if fits and prompt is None
        }
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
            labels=LabelScores(results.labels.names, results.labels.token_ids, np.exp(logprobs), logprobs),
        )

    def _labels_and_prompts(self, options: ScoringOptions, *, by_ids: bool) -> tuple[Labels, PromptBuilder]:
        template = None if by_ids else self._template(options.template, options.item_first)
        tail = template.tail if template else ""
        labels = find_labels(options, self._default_labels, tail, self.tokenizer, len(self._weight))
        whole = min(self.info.max_length, options.max_tokens or self.info.max_length)
        return labels, PromptBuilder(template, self.tokenizer, options, whole - labels.room)

    def _sequences(self, work: Work, members: list[int]) -> list[Sequence]:
        results: LabelResults = work.results
        prompts = [prompt for index in members if (prompt := results.prompts[index])]
        continuations = results.labels.continuations
        if self._model.execution == "packed":
            key_of = name_prefixes(self.prefix_cache, self._model, self.info, work)
            return chained_sequences(work, members, prompts, key_of, continuations)
        return [
            Sequence(work, Role.PROMPT, index, prompt.token_ids, continuations=continuations)
            for index, prompt in zip(members, prompts, strict=True)
        ]

    def _score(self, sequences: list[Sequence], *, in_float32: bool) -> list[Sequence]:
        """Fill ``logprobs`` of the sequences' prompts; returns those that came out with numbers that are none."""
        keeping = self._model.keeps_prefixes and not in_float32
        row = PromptRow(self.prefix_cache if keeping else None, packed=self._model.execution == "packed")
        laid = row.lay(sequences)
        failed = []
        if row.pieces:
            batch = self._model.pack(row.pieces)
            hidden = self._model.forward(batch, in_float32=in_float32)  # [T, E]
            groups: dict[Work, list[LaidPrompt]] = {}
            for each in laid:
                groups.setdefault(each.sequence.work, []).append(each)
            for work, prompts in groups.items():
                logprobs = self._label_logprobs(hidden, batch, prompts, work)  # [n, K]
                work.results.logprobs[[each.sequence.index for each in prompts]] = logprobs.cpu().numpy()
            failed = [
                s for s in sequences if s.fills is None and not np.isfinite(s.work.results.logprobs[s.index]).all()
            ]
        row.hand_over(sequences, set(failed), retired=self.retired)
        return failed

    def _label_logprobs(self, hidden: Tensor, batch: PackedBatch, prompts: list[LaidPrompt], work: Work) -> Tensor:
        """``hidden [T, E]`` to float32 ``[n, K]``. Where only single tokens compete, only their rows are multiplied."""
        results: LabelResults = work.results
        labels, over_labels = results.labels, work.scoring.options.apply_softmax
        first = hidden[batch.cursor.last[[each.piece for each in prompts]]]  # [n, E]
        behind = [
            hidden[_last_rows(batch, [each.continuations[place] for each in prompts], len(ids))]  # [n, L, E]
            for place, ids in enumerate(labels.continuations)
        ]
        logprobs = self._logits(first, torch.tensor([ids[0] for ids in labels.token_ids]))  # [n, K]
        summed = [*([] if over_labels else [first]), *(states.flatten(0, 1) for states in behind)]
        totals = list(self._vocabulary_sums(summed, results))
        if not over_labels:  # else it is the same for all labels
            logprobs = logprobs - totals.pop(0)[:, None]
        for ids, states, total in zip(labels.continuations, behind, totals, strict=True):
            places = [k for k, label in enumerate(labels.token_ids) if label[:-1] == ids and ids]
            for k in places:
                wanted = labels.token_ids[k][1:]
                steps = [self._logits(states[:, i], torch.tensor([t]))[:, 0] for i, t in enumerate(wanted)]
                logprobs[:, k] += (torch.stack(steps, dim=1) - total.view(len(prompts), -1)).sum(dim=1)
        return logprobs.log_softmax(dim=-1) if over_labels else logprobs

    def _logits(self, states: Tensor, token_ids: Tensor) -> Tensor:
        """``[n, E]`` and k ids to float32 ``[n, k]``."""
        bias = None if self._bias is None else self._bias[token_ids].float()
        weight = self._weight[token_ids].float()
        return by_rows(lambda rows: cap_logits(F.linear(rows, weight, bias), self._softcap), states.float())

    def _vocabulary_sums(self, states: list[Tensor], results: LabelResults) -> tuple[Tensor, ...]:
        """Log of the summed exponentials of all logits, for several ``[n, E]`` in one pass over the vocabulary."""
        if not states:
            return ()
        rows = torch.cat(states)
        total, reason = vocabulary_logsumexp(fill_rows(rows), self._weight, self._bias, self._softcap)
        if reason is not None and results.fallback is None:
            results.fallback = reason
            self._counters.add(label_fallbacks=1)
        return total[: len(rows)].split([len(each) for each in states])


def _last_rows(batch: PackedBatch, pieces: list[int], count: int) -> Tensor:
    """The rows of each piece's last ``count`` tokens, ``[n, count]``."""
    ends = torch.tensor([batch.starts_cpu[piece] + batch.lengths_cpu[piece] for piece in pieces])
    return ends[:, None] + torch.arange(-count, 0)


def _about_tokens(side: Side) -> int:
    return len(side) // CHARACTERS_PER_TOKEN if isinstance(side, str) else len(side)


def _log_odds(logprobs: npt.NDArray[np.float32]) -> npt.NDArray[np.float32]:
    """Of the first label against all others together: unlike the probability, it never saturates."""
    others = torch.from_numpy(np.ascontiguousarray(logprobs[:, 1:])).logsumexp(dim=-1).numpy()
    odds: npt.NDArray[np.float32] = logprobs[:, 0] - others
    return odds

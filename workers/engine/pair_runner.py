"""Cross-encoders and LLM rerankers: query and document go through the model together, one forward per distinct pair.

Pairs of one query share the tokens that an LLM's prompts begin with: those run once per micro-batch.

Shapes: T tokens on the row, n pairs of a micro-batch, E hidden, P pairs."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from workers.engine.counters import Counters
from workers.engine.errors import EngineError
from workers.engine.families.rerankers import read_reranker
from workers.engine.forward.last_rows import last_rows
from workers.engine.forward.packed_batch import PackedBatch
from workers.engine.forward.steady_rows import by_rows, fill_rows
from workers.engine.loading.checkpoint import Checkpoint
from workers.engine.model_types import ModelInfo, ModelSpec, Scale
from workers.engine.outputs import PairFacts, assemble_output, is_blank, pair_indices, refuse_too_long
from workers.engine.prompt_row import PromptRow, chained_sequences, name_prefixes, score_with_retry
from workers.engine.role import Role
from workers.engine.sequence import Sequence, Work
from workers.engine.task_runner import CHARACTERS_PER_TOKEN, ReadingRunner
from workers.engine.texts.pair_layout import Limits, Pair
from workers.engine.texts.prompts import Side
from workers.engine.types import ScoringOptions, ScoringOutput, ScoringRequest


@dataclass(eq=False, slots=True)
class PairResults:
    """What one request gathers, by distinct (query, document)."""

    pair_of: npt.NDArray[np.intp]  # [P], -1: empty
    raw: npt.NDArray[np.float32]  # [distinct pairs], NaN until scored
    pairs: list[Pair | None] = field(default_factory=list)  # None: no room for the document


class PairRunner(ReadingRunner):
    """One model with a head. Raw scores are float32 logits, or the log-odds of the positive class."""

    reads_whole_pairs = True

    def __init__(self, spec: ModelSpec, checkpoint: Checkpoint, info: ModelInfo, counters: Counters) -> None:
        reranker = read_reranker(checkpoint, spec.positive_class)
        super().__init__(replace(info, scale=reranker.activation.scale))
        self._model = checkpoint.runner
        self.tokenizer = checkpoint.tokenizer
        self._counters = counters
        self._layout = reranker.layout
        self._head = reranker.head
        self.takes_instruction = reranker.layout.takes_instruction
        self._activation = reranker.activation
        packed = checkpoint.runner.execution == "packed"
        self._last_rows = last_rows(checkpoint.runner.model) if packed and self._head.pooling == "first" else None
        self._shares_prefix = checkpoint.causal and packed
        if self._layout.overhead + 2 > info.max_length:
            raise EngineError(
                "max_length_too_small",
                f"The limit of {info.max_length} tokens leaves no room: {self._layout.overhead} of every pair are the "
                "template's. Give a larger max_length.",
            )

    def estimate(self, request: ScoringRequest) -> int:
        queries, documents = pair_indices(request)
        query_characters = np.array([len(text) for text in request.queries])
        document_characters = np.array([len(text) for text in request.documents])
        characters = query_characters[queries] + document_characters[documents]
        return int(np.minimum(self._layout.overhead + characters // CHARACTERS_PER_TOKEN, self.info.max_length).sum())

    def document_excess(self, query: Side, document: Side, options: ScoringOptions) -> int:
        assert isinstance(query, str) and isinstance(document, str)
        pair = self._layout.place([query], [document], [(0, 0)], self._limits(options), options.instruction)[0]
        return pair.truncated if pair else 0

    def prepare(self, work: Work) -> None:
        request, options = work.scoring, work.scoring.options
        pair_of, distinct = _distinct_pairs(request)
        limits = self._limits(options)
        pairs = self._layout.place(request.queries, request.documents, distinct, limits, options.instruction)
        placed = [(query, document, pair) for (query, document), pair in zip(distinct, pairs, strict=True) if pair]
        refuse_too_long(options.truncation, "documents", {d: pair.truncated for _, d, pair in placed if pair.truncated})
        refuse_too_long(
            options.truncation, "queries", {q: pair.query_truncated for q, _, pair in placed if pair.query_truncated}
        )
        self._counters.add(truncations=sum(pair.truncated > 0 for _, _, pair in placed))
        work.results = PairResults(pair_of, np.full(len(pairs), np.nan, dtype=np.float32), pairs)
        by_query: dict[int, list[int]] = {}
        for index, ((query, _), pair) in enumerate(zip(distinct, pairs, strict=True)):
            if pair is not None and pair.token_ids:
                by_query.setdefault(query if self._shares_prefix else 0, []).append(index)
        for members in by_query.values():
            work.pending.extend(self._sequences(work, members))

    def rows(self, work: Work) -> list[tuple[Role, list[int]]]:
        return [(Role.PROMPT, pair.token_ids) for pair in work.results.pairs if pair]

    def rows_of(self, work: Work, pair: int) -> list[tuple[Role, list[int]]]:
        place = work.results.pair_of[pair]
        read: Pair | None = work.results.pairs[place] if place >= 0 else None
        return [(Role.PROMPT, read.token_ids)] if read else []

    def run(self, sequences: list[Sequence]) -> None:
        score_with_retry(sequences, self._score, self._model, self._counters)

    def finish(self, work: Work) -> ScoringOutput:
        results: PairResults = work.results
        request = work.scoring
        pairs = [results.pairs[place] if place >= 0 else None for place in results.pair_of]
        filled = results.pair_of >= 0
        empty = np.array(
            [not full or (pair is not None and not pair.token_ids) for full, pair in zip(filled, pairs, strict=True)],
            dtype=np.bool_,
        )
        raw = np.full(len(pairs), np.nan, dtype=np.float32)
        raw[filled] = results.raw[results.pair_of[filled]]
        cut = np.array([pair.truncated if pair else 0 for pair in pairs], dtype=np.int32)
        query_cut = np.array([pair.query_truncated if pair else 0 for pair in pairs], dtype=np.int32)
        query_truncated = np.zeros(len(request.queries), dtype=np.int32)
        np.maximum.at(query_truncated, pair_indices(request)[0], query_cut)
        activated = request.options.use_activation
        return assemble_output(
            work,
            self.info if activated else replace(self.info, scale=Scale.LOGIT),
            self._counters,
            scores=by_rows(self._activation.function, torch.from_numpy(raw)).numpy() if activated else raw,
            raw_scores=raw,
            facts=PairFacts(empty, cut, query_cut),
            errors={
                place: "prompt_too_long"
                for place, (full, pair) in enumerate(zip(filled, pairs, strict=True))
                if full and pair is None
            },
            query_truncated=query_truncated,
            prompt_tokens=sum(len(pair.token_ids) for pair in results.pairs if pair),
        )

    def _limits(self, options: ScoringOptions) -> Limits:
        whole = min(self.info.max_length, options.max_tokens or self.info.max_length)
        if whole < self._layout.overhead + 2:
            raise EngineError(
                "max_tokens_too_small",
                f"A limit of {whole} tokens a pair leaves no room: {self._layout.overhead} of every pair are the "
                f"template's. Give at least {self._layout.overhead + 2}.",
            )
        return Limits(whole, options.max_tokens_per_query, options.max_tokens_per_document)

    def _sequences(self, work: Work, members: list[int]) -> list[Sequence]:
        """Pairs by index, equal lengths side by side; those of one query behind a prefix they share."""
        ordered = sorted(
            ((index, pair) for index in members if (pair := work.results.pairs[index])),
            key=lambda p: len(p[1].token_ids),
        )
        if self._shares_prefix:
            key_of = name_prefixes(self.prefix_cache, self._model, self.info, work)
            return chained_sequences(work, [index for index, _ in ordered], [pair for _, pair in ordered], key_of)
        return [
            Sequence(work, Role.PROMPT, index, pair.token_ids, token_types=pair.token_types) for index, pair in ordered
        ]

    def _score(self, sequences: list[Sequence], *, in_float32: bool) -> list[Sequence]:
        """Fill ``raw`` of the sequences' pairs; returns those that came out with numbers that are none."""
        keeping = self._model.keeps_prefixes and not in_float32
        row = PromptRow(self.prefix_cache if keeping else None, packed=self._model.execution == "packed")
        laid = row.lay(sequences)
        failed = []
        if row.pieces:
            batch = self._model.pack(row.pieces)
            raw = self._raw_scores(batch, [each.piece for each in laid], in_float32).cpu().numpy()  # [n]
            for each, value in zip(laid, raw, strict=True):
                each.sequence.work.results.raw[each.sequence.index] = value
            failed = [each.sequence for each, value in zip(laid, raw, strict=True) if not np.isfinite(value)]
        row.hand_over(sequences, set(failed), retired=self.retired)
        return failed

    def _raw_scores(self, batch: PackedBatch, pieces: list[int], in_float32: bool) -> Tensor:
        with torch.inference_mode():
            if self._last_rows is not None:
                first = batch.cursor.first
                with self._last_rows.only(fill_rows(first)):
                    pooled = self._model.forward(batch, in_float32=in_float32)[: len(first)]  # [n, E]
            else:
                pooled = self._head.pool(self._model.forward(batch, in_float32=in_float32), batch, pieces)  # [n, E]
            return self._head.raw_scores(pooled)


def _distinct_pairs(request: ScoringRequest) -> tuple[npt.NDArray[np.intp], list[tuple[int, int]]]:
    """Each pair's place among the distinct ones (-1: a side is blank), and those as (query, document)."""
    queries, documents = _first_places(request.queries), _first_places(request.documents)
    places: dict[tuple[int, int], int] = {}
    pair_of = []
    for query, document in zip(*pair_indices(request), strict=True):
        pair = queries[query], documents[document]
        pair_of.append(-1 if min(pair) < 0 else places.setdefault(pair, len(places)))
    return np.array(pair_of, dtype=np.intp), list(places)


def _first_places(texts: tuple[str, ...]) -> list[int]:
    """For each text where it appears first, -1 for a blank one."""
    first: dict[str, int] = {}
    return [-1 if is_blank(text) else first.setdefault(text, index) for index, text in enumerate(texts)]

"""Texts to encodings, and those to scores or answers, for every model that reads one text at a time. The checkpoint's
recipe says how; the late-interaction part is composed in, not written in.

Shapes: T tokens on the row, N sequences, E hidden, n tokens of one sequence."""

from __future__ import annotations

import sys
import time
from dataclasses import replace

import numpy as np
import torch

from workers.engine.caches.cached_encoding import CachedEncoding, CacheKey, content_digest, owner_of
from workers.engine.caches.embedding_cache import EmbeddingCache
from workers.engine.counters import Counters
from workers.engine.errors import EngineError
from workers.engine.explanation_types import PairExplanation
from workers.engine.forward.packed_batch import Piece
from workers.engine.loading.checkpoint import Checkpoint
from workers.engine.model_types import ModelInfo
from workers.engine.outputs import is_blank, pair_indices, refuse_too_long
from workers.engine.pooling.against_packed import PackedLists, await_queries
from workers.engine.pooling.encoding import Encoding, Part
from workers.engine.pooling.encoding_ahead import assemble_encoding, await_new_ones, distinct_documents
from workers.engine.pooling.given_rows import given_rows
from workers.engine.pooling.late_interaction import LateInteractionRunner, maxsim_backend
from workers.engine.pooling.output import assemble_pooling
from workers.engine.pooling.pair_explanations import explain_encodings
from workers.engine.pooling.pair_scores import assemble_scores
from workers.engine.pooling.recipe import Recipe
from workers.engine.role import Role
from workers.engine.sequence import EmbeddingResults, PoolingResults, Sequence, Work
from workers.engine.task_runner import TaskRunner
from workers.engine.texts.distinct import distinct_texts
from workers.engine.types import (
    EncodingOutput,
    EncodingRequest,
    PoolingOutput,
    PoolingRequest,
    ScoringOptions,
    ScoringOutput,
    ScoringRequest,
)


class PoolingRunner(TaskRunner):
    """One loaded encoder; requests for different tasks share a micro-batch."""

    room_depends_on_query = False

    def __init__(
        self,
        recipe: Recipe,
        checkpoint: Checkpoint,
        info: ModelInfo,
        caches: dict[Role, EmbeddingCache],
        counters: Counters,
    ) -> None:
        super().__init__(info)
        self.tasks = recipe.tasks.keys()
        self.scores_pairs = self.keeps_encodings = bool(recipe.weights)
        self.sample_tail = recipe.sample_tail
        self._recipe = recipe
        self.takes_instruction = recipe.takes_instruction
        self.takes_dimensions = recipe.weights.keys() == {Part.DENSE}
        self._model = checkpoint.runner
        self.tokenizer = checkpoint.tokenizer
        self._memory = self._model.device if self._model.device.type == "cuda" else None  # its own, not the host's
        self._caches = caches
        self._identity, self._device = checkpoint.identity, str(self._model.device)
        self.encodings_owner = owner_of(self._identity, self._device)
        self._counters = counters
        self.late_interaction: LateInteractionRunner | None = None
        if Part.TOKENS in recipe.weights:
            self.late_interaction = LateInteractionRunner(
                self._model.device, counters, gpu_maxsim=info.gpu_maxsim, mean=recipe.mean_maxsim
            )
        self._kept_for_finish = frozenset(recipe.weights) - {Part.TOKENS}

    def set_gpu_maxsim(self, wanted: bool) -> None:
        if self.late_interaction is not None:
            self.late_interaction.gpu_maxsim = wanted
            self.info = replace(self.info, gpu_maxsim=wanted, maxsim_backend=maxsim_backend(self._model.device, wanted))

    def estimate(self, request: ScoringRequest) -> int:
        return self.estimate_texts({*request.queries, *request.documents})  # each is encoded once

    def document_room(self, query: str, options: ScoringOptions) -> int:
        room = self._recipe.layout.room(Role.DOCUMENT, options.instruction if self._recipe.takes_instruction else "")
        return min(room, options.max_tokens_per_document or room)

    def prepare(self, work: Work) -> None:
        if isinstance(work.request, PoolingRequest):
            self._prepare_texts(work, work.request)
        elif isinstance(work.request, EncodingRequest):
            self._prepare_documents(work, work.request)
        else:
            self._prepare_pairs(work, work.request)

    def run(self, sequences: list[Sequence]) -> None:
        """One micro-batch: encode what is new, keep it, hand everything on to where the scores are made."""
        started = time.monotonic()
        fresh = sorted((s for s in sequences if s.encoding is None), key=lambda s: len(s.token_ids))
        for sequence, encoding in zip(fresh, self._encode(fresh) if fresh else (), strict=True):
            sequence.encoding = encoding
        elapsed = time.monotonic() - started
        for work in {sequence.work for sequence in fresh}:
            work.forward_seconds += elapsed
        pairs = [s for s in sequences if isinstance(s.work.request, ScoringRequest)]
        for sequence in pairs if self._kept_for_finish else ():
            if sequence.encoding is not None:
                place = sequence.role, sequence.index
                sequence.work.results.encodings[place] = replace(sequence.encoding, tokens=None)
        if self.late_interaction is not None and pairs:
            self.late_interaction.postprocess_pooler_output(
                [(s, s.encoding) for s in pairs if s.encoding is not None and s.encoding.tokens is not None]
            )

    def finish(self, work: Work) -> ScoringOutput | PoolingOutput | EncodingOutput:
        if isinstance(work.request, PoolingRequest):
            output = assemble_pooling(work, self.info, self._recipe.labels, self._recipe.activation)
            return output if self._recipe.refine is None else self._recipe.refine(work.request, output)
        if isinstance(work.request, EncodingRequest):
            if work.request.pack_as:
                self._keep(work)
            return assemble_encoding(work, self._packed(work.request.options.max_tokens_per_document).key)
        return assemble_scores(work, self._recipe.weights, self.info, self._counters)

    def explain(self, work: Work, pair: int) -> PairExplanation:
        return explain_encodings(work, pair, self._recipe.weights, self.late_interaction)

    def release(self, work: Work) -> None:
        if self.late_interaction is not None:
            self.late_interaction.on_requests_finished([work.key])

    def clear(self) -> None:
        if self.late_interaction is not None:
            self.late_interaction.clear()

    @property
    def reserved_bytes(self) -> int:
        return self.late_interaction.reserved_bytes if self.late_interaction is not None else 0

    @property
    def reservations(self) -> int:
        return self.late_interaction.reservations if self.late_interaction is not None else 0

    def give_up_unused(self, seconds: float) -> None:
        if self.late_interaction is not None:
            self.late_interaction.give_up_unused(seconds)

    def _prepare_pairs(self, work: Work, request: ScoringRequest) -> None:
        """Tokenise what no cache knows; queries go first, so that they wait for their documents and not the reverse."""
        pairs = len(pair_indices(request)[0])
        texts = distinct_texts(request)
        shape = (len(texts.queries), len(texts.documents)) if texts.pairs is None else pairs
        work.results = results = EmbeddingResults(
            texts.query_of, texts.document_of, np.full(shape, np.nan, dtype=np.float32), texts.pairs
        )
        options, parts = request.options, frozenset(self._recipe.weights)
        if request.packed is not None:
            lists = self._packed(options.max_tokens_per_document)
            work.results = results = lists.results(request.packed, request, texts)
        elif not texts.queries or not texts.documents:
            return
        queries = self._sequences(
            work, Role.QUERY, parts, texts.queries, options.max_tokens_per_query, options.instruction
        )
        if request.packed is not None:
            await_queries(work, results, queries, len(texts.queries))
            return
        # An instruction is the queries': documents stay known whatever they are searched for.
        documents = self._sequences(work, Role.DOCUMENT, parts, texts.documents, options.max_tokens_per_document, "")
        for sequence in (*queries, *documents):
            results.tokens += sequence.tokens
            results.truncated[sequence.role, sequence.index] = sequence.truncated
        results.query_tokens = sum(sequence.tokens for sequence in queries)
        for role, side, found in ((Role.QUERY, texts.queries, queries), (Role.DOCUMENT, texts.documents, documents)):
            for index in set(range(len(side))) - {sequence.index for sequence in found}:
                results.mark_empty(role, index)
        if not queries or not documents:  # all of one side turned out to hold no token
            return
        results.cached_documents = sum(sequence.encoding is not None for sequence in documents)
        if self.late_interaction is not None:
            for sequence in documents:
                sequence.products = sequence.tokens * results.query_tokens if sequence.encoding is not None else 0
        for name, role in (("queries", Role.QUERY), ("documents", Role.DOCUMENT)):
            cut = results.cut(role)
            refuse_too_long(options.truncation, name, {int(i): int(cut[i]) for i in np.flatnonzero(cut)})
        self._counters.add(truncations=sum(s.truncated > 0 for s in (*queries, *documents)))
        if self.late_interaction is not None:
            self.late_interaction.register_request(work.key, (sequence.index for sequence in documents))
        results.explained = {(s.role, s.index): s for s in (*queries, *documents)} if request.explain else {}
        work.pending.extend((*queries, *documents))

    def _prepare_documents(self, work: Work, request: EncodingRequest) -> None:
        """As pairs with these documents would be prepared, so that those find what this leaves in the cache."""
        parts, limit = frozenset(self._recipe.weights), request.options.max_tokens_per_document
        await_new_ones(work, self._sequences(work, Role.DOCUMENT, parts, distinct_documents(request), limit, ""))

    def _keep(self, work: Work) -> None:
        if not self.retired:
            self._packed(work.encoding.options.max_tokens_per_document).keep(work)
        if self.retired:  # and its lists were cleared, perhaps before this one came
            self._caches[Role.DOCUMENT].packed.clear(self.encodings_owner)

    def _packed(self, wanted: int | None) -> PackedLists:
        """Of documents let in up to ``wanted`` tokens."""
        limit = min(wanted or sys.maxsize, self._recipe.layout.room(Role.DOCUMENT, ""))
        key = CacheKey(self._identity, self._device, Role.DOCUMENT, frozenset(self._recipe.weights), limit, b"")
        return PackedLists(self._caches[Role.DOCUMENT].packed, key, self._model.device)

    def _prepare_texts(self, work: Work, request: PoolingRequest) -> None:
        work.results = results = PoolingResults()
        places = [i for i, text in enumerate(request.inputs) if not is_blank(text)]
        texts = [request.inputs[i] for i in places]
        options, parts = request.options, self._recipe.tasks[request.task]
        sequences = self._sequences(work, Role(request.role.value), parts, texts, options.max_tokens, "")
        for sequence in sequences:
            sequence.index = places[sequence.index]
        for sequence in sequences or given_rows(work, parts, self.tokenizer.size, self.info):
            results.sequences[sequence.index] = sequence
            results.tokens += sequence.tokens
        cut = {i: sequence.truncated for i, sequence in results.sequences.items() if sequence.truncated}
        refuse_too_long(options.truncation, "inputs", cut)
        self._counters.add(truncations=len(cut))
        work.pending.extend(sequence for sequence in results.sequences.values() if sequence.encoding is None)

    def _sequences(
        self, work: Work, role: Role, parts: frozenset[Part], texts: list[str], wanted: int | None, instruction: str
    ) -> list[Sequence]:
        """What the caches know, and the token ids of the rest; texts without a token of their own are left out."""
        layout = self._recipe.layout
        limit = layout.room(role, instruction)
        if wanted is not None:
            if wanted < 1:
                raise EngineError(
                    "bad_limit", f"A limit of {wanted} tokens per {role.value} leaves nothing. Give at least 1."
                )
            limit = min(limit, wanted)
        identity, device = self._identity, self._device
        keys = [CacheKey(identity, device, role, parts, limit, content_digest(text, instruction)) for text in texts]
        cache = self._caches[role]
        cached = [None if work.afresh else cache.get(key, self._memory) for key in keys]
        unknown = [text for text, known in zip(texts, cached, strict=True) if known is None]
        fresh = iter(layout.encode(unknown, role, limit, instruction))
        sequences = []
        for index, (key, hit) in enumerate(zip(keys, cached, strict=True)):
            if hit is not None:
                sequences.append(Sequence(work, role, index, [], hit.tokens, hit.truncated, encoding=hit.encoding))
            elif (tokens := next(fresh)).own:
                fresh_one = Sequence(work, role, index, tokens.ids, len(tokens.ids), tokens.truncated, parts=parts)
                fresh_one.attended, fresh_one.read = tokens.attended, tokens
                fresh_one.cache_key = None if work.afresh else key
                sequences.append(fresh_one)
        return sequences

    def _encode(self, sequences: list[Sequence]) -> list[Encoding]:
        """Finite ones go into the cache."""
        encodings, finite = self._pooled(sequences, in_float32=False)
        again = [i for i, fine in enumerate(finite) if not fine]
        if again and self._model.dtype != torch.float32:
            self._counters.add(float32_retries=len(again))
            retried, fine_now = self._pooled([sequences[i] for i in again], in_float32=True)
            for i, widened, fine in zip(again, retried, fine_now, strict=True):
                encodings[i], finite[i] = widened, fine
        filling = not self.retired
        for i, sequence in enumerate(sequences):
            cache = self._caches[sequence.role]
            encodings[i] = cache.compress(encodings[i])
            if filling and finite[i] and sequence.cache_key is not None:
                entry = CachedEncoding(encodings[i], sequence.tokens, sequence.truncated)
                cache.put(sequence.cache_key, entry, self._memory)
        if filling and self.retired:  # and its entries were cleared, perhaps before the last ones came
            for cache in self._caches.values():
                cache.clear(self.encodings_owner)
        return encodings

    def _pooled(self, sequences: list[Sequence], *, in_float32: bool) -> tuple[list[Encoding], list[bool]]:
        """One forward pass for all; each part's pooler sees the sequences that want it."""
        batch = self._model.pack([Piece(s.token_ids, attended=s.attended) for s in sequences])
        hidden = self._model.forward(batch, in_float32=in_float32)  # [T, E]
        encodings, finite = [Encoding() for _ in sequences], [True] * len(sequences)
        for part, pooler in self._recipe.poolers.items():
            chosen = [i for i, sequence in enumerate(sequences) if part in sequence.parts]
            if not chosen:
                continue
            pooled = pooler(hidden, batch, sequences, chosen)
            for place, i in enumerate(chosen):
                encodings[i] = encodings[i].with_part(part, pooled.values[place])
                finite[i] = finite[i] and pooled.finite[place]
                if part in (Part.TOKENS, Part.TOKEN_CLASSES):
                    ids = np.asarray(sequences[i].token_ids, dtype=np.int32)
                    kept = ids if pooled.kept is None else ids[list(pooled.kept[place])]
                    encodings[i] = replace(encodings[i], kept_token_ids=kept)
                    sequences[i].kept = None if pooled.kept is None else pooled.kept[place]
        return encodings, finite

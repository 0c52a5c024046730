"""Embedding tasks: sentence vectors for cosine, token vectors for MaxSim; the late-interaction part is composed in, not
written in.

Shapes: T tokens on the row, N sequences, E hidden, n tokens of one sequence."""

from __future__ import annotations

import time
from dataclasses import replace
from pathlib import Path

import numpy as np
import numpy.typing as npt
import torch
import torch.nn.functional as F
from torch import Tensor

from workers.engine.counters import Counters
from workers.engine.embedding_cache import CachedEmbedding, CacheKey, EmbeddingCache, content_digest
from workers.engine.errors import EngineError
from workers.engine.late_interaction import LateInteractionRunner
from workers.engine.loading import Checkpoint
from workers.engine.model_types import ModelInfo, ModelKind, ModelSpec
from workers.engine.outputs import PairFacts, assemble_output, is_blank, pair_indices, refuse_too_long
from workers.engine.packed_batch import PackedBatch, Piece
from workers.engine.sequence import EmbeddingResults, Role, Sequence, Work
from workers.engine.task_runner import TaskRunner
from workers.engine.types import Pairing, ScoringOutput, ScoringRequest
from workers.engine.weights import read_json

_CHARACTERS_PER_TOKEN = 3  # a cautious guess, only to bound what waits


class PoolingRunner(TaskRunner):
    """Bi-encoder (one normalised vector per text) or late interaction (one per token), over one loaded encoder."""

    def __init__(
        self,
        spec: ModelSpec,
        checkpoint: Checkpoint,
        info: ModelInfo,
        caches: dict[Role, EmbeddingCache],
        counters: Counters,
    ) -> None:
        super().__init__(info)
        self._model = checkpoint.runner
        self._tokenizer = checkpoint.tokenizer
        self._pooling = read_pooling(checkpoint.folder) if spec.kind is ModelKind.BI_ENCODER else "mean"
        self._caches = caches
        self._counters = counters
        self.late_interaction: LateInteractionRunner | None = None
        if info.kind is ModelKind.LATE_INTERACTION:
            self.late_interaction = LateInteractionRunner(self._model.device, counters, gpu_maxsim=info.gpu_maxsim)

    def set_gpu_maxsim(self, wanted: bool) -> None:
        if self.late_interaction is not None:
            self.late_interaction.gpu_maxsim = wanted
            self.info = replace(self.info, gpu_maxsim=wanted, maxsim_backend=maxsim_backend(self._model.device, wanted))

    def estimate(self, request: ScoringRequest) -> int:
        """About how many tokens the request will put into the queue."""
        texts = (*request.queries, *request.documents)
        return sum(min(self.info.max_length, 2 + len(text) // _CHARACTERS_PER_TOKEN) for text in texts)

    def prepare(self, work: Work) -> None:
        """Tokenise what no cache knows; queries go first, so that they wait for their documents and not the reverse."""
        request = work.scoring
        pairs = len(pair_indices(request)[0])
        query_of, queries = _distinct(request.queries)
        document_of, documents = _distinct(request.documents)
        matrix = request.pairing is Pairing.MATRIX
        work.results = results = EmbeddingResults(
            query_of=_places(query_of),
            document_of=_places(document_of),
            scores=np.full((len(queries), len(documents)) if matrix else pairs, np.nan, dtype=np.float32),
            pairs=None if matrix else _pairs_by_document(query_of, document_of),
        )
        if not queries or not documents:
            return
        query_sequences = self._sequences(work, Role.QUERY, queries, request.options.max_tokens_per_query)
        document_sequences = self._sequences(work, Role.DOCUMENT, documents, request.options.max_tokens_per_document)
        if not query_sequences or not document_sequences:  # all of one side turned out to hold no token
            return
        results.cached_documents = sum(sequence.embedding is not None for sequence in document_sequences)
        for side, role in (("queries", Role.QUERY), ("documents", Role.DOCUMENT)):
            cut = results.cut(role)
            refuse_too_long(request, side, {int(i): int(cut[i]) for i in np.flatnonzero(cut)})
        self._counters.add(truncations=sum(s.truncated > 0 for s in (*query_sequences, *document_sequences)))
        if self.late_interaction is not None:
            self.late_interaction.register_request(work.key, (sequence.index for sequence in document_sequences))
        work.pending.extend((*query_sequences, *document_sequences))

    def run(self, sequences: list[Sequence]) -> None:
        """One micro-batch: encode what is new, keep it, hand everything on to where the scores are made."""
        started = time.monotonic()
        fresh = sorted((s for s in sequences if s.embedding is None), key=lambda s: len(s.token_ids))
        for sequence, vectors in zip(fresh, self._encode(fresh) if fresh else (), strict=True):
            sequence.embedding = vectors
        if fresh:
            elapsed = time.monotonic() - started
            for work in {sequence.work for sequence in fresh}:
                work.forward_seconds += elapsed
        outputs = [(s, s.embedding) for s in sequences if s.embedding is not None]
        if self.late_interaction is not None:
            self.late_interaction.postprocess_pooler_output(outputs)
            return
        for sequence, vectors in outputs:
            sequence.work.results.vectors[sequence.role, sequence.index] = vectors[0]

    def finish(self, work: Work) -> ScoringOutput:
        results: EmbeddingResults = work.results
        pair_queries, pair_documents = pair_indices(work.scoring)
        queries, documents = results.query_of[pair_queries], results.document_of[pair_documents]
        empty = (queries < 0) | (documents < 0)
        scores = np.full(len(queries), np.nan, dtype=np.float32)
        if results.scores.size and not empty.all():
            distinct = results.scores if self.late_interaction is not None else self._cosines(work)
            scores[~empty] = distinct[queries[~empty], documents[~empty]] if results.pairs is None else distinct[~empty]
        cut_queries, cut_documents = results.cut(Role.QUERY), results.cut(Role.DOCUMENT)
        return assemble_output(
            work,
            self.info,
            self._counters,
            scores=scores,
            raw_scores=scores,
            facts=PairFacts(empty, cut_documents[pair_documents], cut_queries[pair_queries]),
            errors={},
            query_truncated=cut_queries,
            prompt_tokens=results.tokens,
            cached_documents=results.cached_documents,
            fallback=results.fallback,
        )

    def release(self, work: Work) -> None:
        if self.late_interaction is not None:
            self.late_interaction.on_requests_finished([work.key])

    def clear(self) -> None:
        if self.late_interaction is not None:
            self.late_interaction.clear()

    @property
    def reserved_bytes(self) -> int:
        return self.late_interaction.reserved_bytes if self.late_interaction is not None else 0

    def _sequences(self, work: Work, role: Role, texts: list[str], wanted_limit: int | None) -> list[Sequence]:
        limit = self.info.max_length - self._tokenizer.special_count
        if wanted_limit is not None:
            if wanted_limit < 1:
                raise EngineError(
                    "bad_limit", f"A limit of {wanted_limit} tokens per {role.value} leaves nothing. Give at least 1."
                )
            limit = min(limit, wanted_limit)
        keys = [CacheKey(self.info.name, self.info.generation, limit, content_digest(text)) for text in texts]
        cached = [self._caches[role].get(key) for key in keys]
        fresh = iter(
            self._tokenizer.encode_surrounded([t for t, c in zip(texts, cached, strict=True) if c is None], limit)
        )
        sequences = []
        for index, (key, known) in enumerate(zip(keys, cached, strict=True)):
            if known is not None:
                sequence = Sequence(work, role, index, [], known.truncated, embedding=known.vectors)
                work.results.tokens += known.tokens
            else:
                tokens = next(fresh)
                if len(tokens.ids) == self._tokenizer.special_count:  # nothing of its own: invisible characters only
                    work.results.mark_empty(role, index)
                    continue
                sequence = Sequence(work, role, index, tokens.ids, tokens.truncated, cache_key=key)
                work.results.tokens += len(tokens.ids)
            work.results.truncated[role, index] = sequence.truncated
            sequences.append(sequence)
        return sequences

    def _encode(self, sequences: list[Sequence]) -> list[Tensor]:
        """Embeddings ``[n, E]`` that own their memory (``[1, E]`` for a bi-encoder); finite ones go into the cache."""
        vectors, finite = self._pooled(sequences, in_float32=False)
        again = [i for i, fine in enumerate(finite) if not fine]
        if again and self._model.dtype != torch.float32:
            self._counters.add(float32_retries=len(again))
            retried, fine_now = self._pooled([sequences[i] for i in again], in_float32=True)
            for i, widened, fine in zip(again, retried, fine_now, strict=True):
                vectors[i], finite[i] = widened, fine
        for sequence, embedding, fine in zip(sequences, vectors, finite, strict=True):
            if fine and sequence.cache_key is not None and not self.retired:
                entry = CachedEmbedding(embedding.cpu(), len(sequence.token_ids), sequence.truncated)
                self._caches[sequence.role].put(sequence.cache_key, entry)
        return vectors

    def _pooled(self, sequences: list[Sequence], *, in_float32: bool) -> tuple[list[Tensor], list[bool]]:
        batch = self._model.pack([Piece(sequence.token_ids) for sequence in sequences])
        hidden = self._model.forward(batch, in_float32=in_float32).float()  # [T, E]
        if self.late_interaction is None:
            vectors = F.normalize(_sentence_vectors(hidden, batch, self._pooling), dim=-1)  # [N, E]
            return [row.clone()[None] for row in vectors], torch.isfinite(vectors).all(dim=1).tolist()
        rows = F.normalize(hidden, dim=-1).to(self._model.dtype)  # [T, E]
        finite = np.logical_and.reduceat(torch.isfinite(rows).all(dim=1).cpu().numpy(), batch.starts_cpu)  # [N]
        return [part.clone() for part in rows.split(batch.lengths_cpu)], finite.tolist()

    def _cosines(self, work: Work) -> npt.NDArray[np.float32]:
        """``[distinct queries, distinct documents]``, or one per pair where the request was pairwise."""
        results: EmbeddingResults = work.results
        sides = []
        for role, places in ((Role.QUERY, results.query_of), (Role.DOCUMENT, results.document_of)):
            side = np.full((1 + places.max(), len(next(iter(results.vectors.values())))), np.nan, dtype=np.float32)
            for (owner, index), vector in results.vectors.items():
                if owner is role:
                    side[index] = vector.cpu().numpy()
            sides.append(side)
        queries, documents = sides
        if results.pairs is None:
            return queries @ documents.T
        return np.einsum("pe,pe->p", queries[results.query_of], documents[results.document_of])


def read_pooling(folder: Path) -> str:
    """``cls`` or ``mean`` from ``1_Pooling/config.json``; mean where the folder says nothing."""
    recipe = read_json(folder / "1_Pooling" / "config.json")
    modes = (
        [recipe["pooling_mode"]]
        if "pooling_mode" in recipe
        else [k for k, on in recipe.items() if k.startswith("pooling_mode_") and on]
    )
    names = [mode.removeprefix("pooling_mode_").removesuffix("_token").removesuffix("_tokens") for mode in modes] or [
        "mean"
    ]
    if names not in (["cls"], ["mean"]):
        raise EngineError("unsupported_pooling", f"{folder} pools by {names}; supported are cls and mean.")
    return names[0]


def maxsim_backend(device: torch.device, gpu_maxsim: bool) -> str:
    return "cuda" if gpu_maxsim and device.type == "cuda" else "cpu"


def _distinct(texts: tuple[str, ...]) -> tuple[list[int | None], list[str]]:
    """Each text's place among the distinct ones (None: blank), and those in order of appearance."""
    places: dict[str, int] = {}
    of = [None if is_blank(text) else places.setdefault(text, len(places)) for text in texts]
    return of, list(places)


def _places(of: list[int | None]) -> npt.NDArray[np.intp]:
    return np.array([-1 if place is None else place for place in of], dtype=np.intp)


def _pairs_by_document(query_of: list[int | None], document_of: list[int | None]) -> dict[int, list[tuple[int, int]]]:
    pairs: dict[int, list[tuple[int, int]]] = {}
    for pair, (query, document) in enumerate(zip(query_of, document_of, strict=True)):
        if document is not None:
            pairs.setdefault(document, [])
            if query is not None:
                pairs[document].append((pair, query))
    return pairs


def _sentence_vectors(hidden: Tensor, batch: PackedBatch, pooling: str) -> Tensor:
    """``[T, E]`` to ``[N, E]``: the first token's state, or the mean over all tokens."""
    if pooling == "cls":
        return hidden[batch.cursor.first]
    return torch.segment_reduce(hidden, "mean", lengths=batch.cursor.last - batch.cursor.first + 1, axis=0)

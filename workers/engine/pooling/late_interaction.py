"""Query embeddings wait here for their documents, and every document is scored the moment it is encoded. Queries of a
list packed before wait for nothing.

A request's queries run before its documents. Their token embeddings are *reserved* under the request's private key,
once per document still to come; the last document's score, or the request's end for whatever reason, gives the memory
back. A document that has not run yet, wherever it waits, is awaited and keeps the reservation; one that comes when the
reservation is gone fails alone."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterable
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from workers.engine.caches.compression import token_vectors
from workers.engine.counters import Counters
from workers.engine.pooling.encoding import Encoding
from workers.engine.pooling.maxsim import Pairs, maxsim, maxsim_matches, maxsim_pairs
from workers.engine.pooling.packed_documents import PackedDocuments
from workers.engine.pooling.scattered_maxsim import ScatteredMaxSim
from workers.engine.role import Role
from workers.engine.sequence import EmbeddingResults, Sequence

CPU = torch.device("cpu")
LOST = "reservation_lost"


@dataclass(eq=False, slots=True)
class Reservation:
    awaited: set[int]  # documents that will still ask for these queries
    queries: dict[int, Tensor] = field(default_factory=dict)  # by index, [n, E]
    packed: Tensor | None = None  # [M, E], made when the first document asks
    order: list[int] = field(default_factory=list)  # query indices in the order packed
    used: float = field(default_factory=time.monotonic)


class LateInteractionRunner:
    """MaxSim over reserved queries; composed into the pooling runner. ``gpu_maxsim`` may change at any time."""

    def __init__(self, device: torch.device, counters: Counters, *, gpu_maxsim: bool, mean: bool = False) -> None:
        """``mean``: scores are divided by the number of the query's vectors."""
        self._device = device
        self._mean = mean
        self._counters = counters
        self.gpu_maxsim = gpu_maxsim
        self.reserved_bytes = 0
        self._reservations: dict[int, Reservation] = {}
        self._scattered = ScatteredMaxSim()
        self._lock = threading.Lock()  # requests register and finish on other threads than the runner's

    def register_request(self, key: int, documents: Iterable[int]) -> None:
        with self._lock:
            self._reservations[key] = Reservation(set(documents))

    def postprocess_pooler_output(self, outputs: list[tuple[Sequence, Encoding]]) -> None:
        """Reserve the queries of a micro-batch, then score its documents against them, one call per request."""
        documents: dict[int, list[tuple[Sequence, Encoding]]] = {}
        whole_lists: dict[int, list[tuple[Sequence, Encoding]]] = {}
        for sequence, encoding in outputs:
            if sequence.work.results.packed is not None:
                whole_lists.setdefault(id(sequence.work.results.packed), []).append((sequence, encoding))
            elif sequence.role is Role.QUERY:
                self._reserve(sequence, token_vectors(encoding))
            else:
                documents.setdefault(sequence.work.key, []).append((sequence, encoding))
        for queries in whole_lists.values():
            self._score_packed(queries)
        for key, scored in documents.items():
            with self._lock:
                reservation = self._reservations.get(key)
            work = scored[0][0].work
            if work.future.done():  # it ended while this micro-batch ran
                continue
            if reservation is None:
                work.results.errors |= {sequence.index: LOST for sequence, _ in scored}
                continue
            started = reservation.used = time.monotonic()
            self._score(work.results, reservation, scored)
            work.maxsim_seconds += time.monotonic() - started
            reservation.awaited.difference_update(sequence.index for sequence, _ in scored)
            if not reservation.awaited:
                self.on_requests_finished([key])

    def on_requests_finished(self, keys: Iterable[int]) -> None:
        """Give back what these requests still hold; a key that holds nothing is fine."""
        with self._lock:
            self._forget(keys)

    def give_up_unused(self, seconds: float) -> None:
        """A net under everything else: what nothing was reserved for or scored with in so long is given back."""
        since = time.monotonic() - seconds
        with self._lock:
            expired = [key for key, reservation in self._reservations.items() if reservation.used < since]
            self._forget(expired)
        self._counters.add(expired_reservations=len(expired))

    def clear(self) -> None:
        with self._lock:
            self._forget(list(self._reservations))

    @property
    def reservations(self) -> int:
        with self._lock:
            return len(self._reservations)

    def matches(self, query: Tensor, document: Tensor) -> tuple[npt.NDArray[np.int32], float]:
        """Of ``[m, E]`` and ``[d, E]``: each query token's best document token, found where scores are made, and the
        share of a similarity that counts."""
        device = self._device if self.gpu_maxsim else CPU
        ours, theirs = query.to(device), document.to(device, query.dtype)
        only = np.zeros(1, dtype=np.int64)
        _, best = maxsim_matches(ours, [len(ours)], theirs, [len(theirs)], (only, only))
        return best.cpu().numpy(), 1 / len(ours) if self._mean else 1.0

    def _forget(self, keys: Iterable[int]) -> None:
        for key in keys:
            if (reservation := self._reservations.pop(key, None)) is not None:
                self.reserved_bytes -= sum(map(_bytes, reservation.queries.values()))

    def _reserve(self, sequence: Sequence, vectors: Tensor) -> None:
        with self._lock:
            reservation = self._reservations.get(sequence.work.key)
            if reservation is not None:
                before = reservation.queries.get(sequence.index)
                self.reserved_bytes += _bytes(vectors) - (0 if before is None else _bytes(before))
                reservation.queries[sequence.index] = vectors
                reservation.used = time.monotonic()

    def _score_packed(self, queries: list[tuple[Sequence, Encoding]]) -> None:
        """Queries of any requests against the one list that all of them are for."""
        started = time.monotonic()
        vectors = [token_vectors(encoding) for _, encoding in queries]
        first: EmbeddingResults = queries[0][0].work.results
        assert first.packed is not None
        scores = self._maxsim(first, torch.cat(vectors), [len(query) for query in vectors], first.packed)
        seconds = time.monotonic() - started
        for (sequence, _), row in zip(queries, scores, strict=True):
            results: EmbeddingResults = sequence.work.results
            results.maxsim[sequence.index] = row
            results.fallback = first.fallback
            sequence.work.maxsim_seconds += seconds

    def _score(
        self, results: EmbeddingResults, reservation: Reservation, documents: list[tuple[Sequence, Encoding]]
    ) -> None:
        """Write ``results.maxsim``: all queries against these documents, or pairwise each document's own."""
        if reservation.packed is None:
            reservation.order = sorted(reservation.queries)
            reservation.packed = torch.cat([reservation.queries[index] for index in reservation.order])
        lengths = [len(reservation.queries[index]) for index in reservation.order]
        vectors = [vectors for _, vectors in documents]
        if results.pairs is None:
            block = self._maxsim(results, reservation.packed, lengths, vectors)
            results.maxsim[np.ix_(reservation.order, [sequence.index for sequence, _ in documents])] = block
            return
        place_of = {query: place for place, query in enumerate(reservation.order)}
        found = np.array(
            [
                (pair, place_of[query], document)
                for document, (sequence, _) in enumerate(documents)
                for pair, query in results.pairs[sequence.index]
                if query in place_of  # an empty query has no place, and its pairs stay NaN
            ],
            dtype=np.int64,
        ).reshape(-1, 3)
        chosen = found[:, 1], found[:, 2]
        results.maxsim[found[:, 0]] = self._maxsim(results, reservation.packed, lengths, vectors, chosen)

    def _maxsim(
        self,
        results: EmbeddingResults,
        queries: Tensor,
        lengths: list[int],
        documents: PackedDocuments | list[Encoding],
        pairs: Pairs | None = None,
    ) -> npt.NDArray[np.float32]:
        """All queries against all documents, or the chosen pairs."""
        scores = self._sums(results, queries, lengths, documents, pairs)
        if not self._mean:
            return scores
        tokens = np.array(lengths, dtype=np.float32)
        return scores / (tokens[:, None] if pairs is None else tokens[pairs[0]])

    def _sums(
        self,
        results: EmbeddingResults,
        queries: Tensor,
        lengths: list[int],
        documents: PackedDocuments | list[Encoding],
        pairs: Pairs | None,
    ) -> npt.NDArray[np.float32]:
        """On the model's device if that is wanted and works, else on the CPU with the reason written down."""
        if self.gpu_maxsim and self._device.type == "cuda":
            try:
                return _scores_on(self._device, queries, lengths, documents, pairs)
            except RuntimeError as error:  # out of memory or a failed launch; the same request still gets its scores
                self._note_fallback(results, f"MaxSim failed on {self._device} and ran on the CPU: {error}")
        elif self.gpu_maxsim:
            self._note_fallback(results, f"The model runs on {self._device}, so MaxSim ran on the CPU.")
        if isinstance(documents, PackedDocuments):
            return documents.to(CPU).maxsim(queries.to(CPU), lengths).numpy()
        if pairs is None:
            return self._scattered(queries, lengths, documents).numpy()
        return _scores_on(CPU, queries, lengths, documents, pairs)

    def _note_fallback(self, results: EmbeddingResults, reason: str) -> None:
        if results.fallback is None:
            results.fallback = reason
            self._counters.add(maxsim_fallbacks=1)


def _scores_on(
    device: torch.device,
    queries: Tensor,
    lengths: list[int],
    documents: PackedDocuments | list[Encoding],
    pairs: Pairs | None,
) -> npt.NDArray[np.float32]:
    if isinstance(documents, PackedDocuments):
        return documents.to(device).maxsim(queries.to(device), lengths).cpu().numpy()
    vectors = [token_vectors(document).to(device, queries.dtype) for document in documents]
    given = queries.to(device), lengths, torch.cat(vectors), [len(rows) for rows in vectors]
    scores: npt.NDArray[np.float32] = (maxsim(*given) if pairs is None else maxsim_pairs(*given, pairs)).cpu().numpy()
    return scores


def _bytes(vectors: Tensor) -> int:
    return vectors.numel() * vectors.element_size()


def maxsim_backend(device: torch.device, gpu_maxsim: bool) -> str:
    return "cuda" if gpu_maxsim and device.type == "cuda" else "cpu"

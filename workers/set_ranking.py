"""A query against a document set that is stored here: without its texts, where the model's encodings of it lie packed.

They do after a first time. Until then few documents are scored from their texts, as a request brings them; many are
encoded behind everything else, and whoever asked is told to come again. Lists belong to the weights that made them (the
engine sees to that), and a set's texts never change, so no list can be stale.

Shapes: n documents that are ranked, k of them in the answer.
"""

from __future__ import annotations

import logging
import threading
import time
import uuid
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Final

import numpy as np
from django.db import Error as DatabaseUnreachable
from django.db import close_old_connections

from scoring.models import Document, DocumentSet
from scoring.payloads import SyncRanking
from scoring.ranking import Positions
from workers.bm25_indexes import Bm25Indexes
from workers.chunk_scoring import texts_at
from workers.engine.errors import EngineError, RequestCancelled
from workers.engine.types import EncodingRequest, PackedList, Priority, ScoringOutput, ScoringRequest
from workers.host import Host

logger = logging.getLogger(__name__)

READERS: Final = 2
SEARCHERS: Final = 2  # apart from the readers: whoever builds an index takes its time
MOST_DOCUMENTS: Final = 200_000  # their texts and encodings are in memory together once
REFUSAL_SECONDS: Final = 300.0  # then a list that was too large is tried again


@dataclass(frozen=True, slots=True)
class SetScores:
    """``positions [n]`` are the documents' places in the set, ascending; None: all of them. ``output``: one score each,
    without the pairs' labels."""

    output: ScoringOutput
    positions: Positions | None

    def best(self, top_n: int) -> SetScores:
        """The ``top_n`` best ones, by raw score, ties by position, what has no score last; 0: all, so ordered."""
        scored = np.isfinite(self.output.raw_scores)
        order = np.argsort(np.where(scored, -self.output.raw_scores, np.inf), kind="stable")
        order = order[: len(order) if self.positions is None else len(self.positions)][: top_n or None]  # [k]
        output, place_of = self.output, {int(pair): place for place, pair in enumerate(order)}
        windows = output.best_windows
        kept = replace(
            output,
            scores=output.scores[order],
            raw_scores=output.raw_scores[order],
            status=output.status[order],
            truncated_tokens=output.truncated_tokens[order],
            errors={place_of[pair]: code for pair, code in output.errors.items() if pair in place_of},
            best_windows=None if windows is None else windows[order],
            labels=None,
        )
        return SetScores(kept, order.astype(np.int32) if self.positions is None else self.positions[order])


@dataclass(frozen=True, slots=True)
class Asked:
    """``request`` lacks its documents only."""

    model_id: uuid.UUID
    request: ScoringRequest
    ranking: SyncRanking
    answer: Future[SetScores]


class SetRanker:
    def __init__(self, *, host: Host, indexes: Bm25Indexes) -> None:
        self._host = host
        self._indexes = indexes
        self._readers = ThreadPoolExecutor(READERS, "set-reader")
        self._searchers = ThreadPoolExecutor(SEARCHERS, "set-searcher")
        self._lock = threading.Lock()
        self._encoding: dict[tuple[str, str], float] = {}  # model and set: since time.monotonic()
        self._too_large: dict[tuple[str, str], tuple[float, EngineError]] = {}

    def submit(self, model_id: uuid.UUID, request: ScoringRequest, ranking: SyncRanking) -> Future[SetScores]:
        """Never blocks and never raises, as the engine. Failures are ``EngineError``; of its own: ``set_not_encoded``,
        ``packed_too_large``, ``too_many_candidates``, ``not_found``."""
        asked = Asked(model_id, request, ranking, Future())
        if ranking.bm25:
            self._in(self._searchers, asked, self._search)
        else:
            self._score(asked, np.array(ranking.positions, np.int32) if ranking.positions else None)
        return asked.answer

    def stop(self) -> None:
        for threads in (self._searchers, self._readers):
            threads.shutdown(wait=False, cancel_futures=True)

    def _search(self, asked: Asked) -> None:
        def still_wanted() -> None:
            cancelled = asked.request.cancelled
            if cancelled is not None and cancelled.is_set():
                raise RequestCancelled("cancelled", "The request was cancelled.")

        found = DocumentSet.objects.filter(pk=asked.ranking.document_set).first()
        if found is None:
            raise _gone()
        index = self._indexes.of(found, asked.ranking.parameters, progress=still_wanted)
        positions, _ = index.search(asked.request.queries[0], top_k=asked.ranking.bm25)
        self._score(asked, np.sort(positions))

    def _score(self, asked: Asked, positions: Positions | None) -> None:
        if not asked.ranking.packed or (positions is not None and not len(positions)):
            self._in(self._readers, asked, lambda asked: self._by_texts(asked, positions))
            return
        chosen = None if positions is None else tuple(positions.tolist())
        packed = PackedList(asked.ranking.document_set, _count(asked, positions), chosen)
        scores = self._host.submit(asked.model_id, replace(asked.request, packed=packed), interactive=True)

        def answered(scores: Future[ScoringOutput]) -> None:
            error = scores.exception()
            if isinstance(error, EngineError) and error.code == "not_packed":
                self._in(self._readers, asked, lambda asked: self._by_texts(asked, positions))
            else:
                _pass_on(scores, positions, asked.answer)

        scores.add_done_callback(answered)

    def _by_texts(self, asked: Asked, positions: Positions | None) -> None:
        count, ranking = _count(asked, positions), asked.ranking
        if count > ranking.text_limit:
            raise self._encode(asked) if ranking.packed else _too_many(asked, count)
        wanted = np.arange(count) if positions is None else positions
        texts = texts_at(Document.objects.filter(document_set=uuid.UUID(ranking.document_set)), wanted)
        if len(texts) != count:
            raise _gone()
        # Nothing was found: a blank text, which is no work, still tells how the model scores.
        request = replace(asked.request, documents=tuple(texts or [""]))
        scores = self._host.submit(asked.model_id, request, interactive=True)

        def answered(scores: Future[ScoringOutput]) -> None:
            _pass_on(scores, positions, asked.answer)
            if ranking.packed and positions is None:  # not before: it finds the encodings in the cache now
                with suppress(RuntimeError):  # the worker stops
                    self._readers.submit(self._encode, asked)

        scores.add_done_callback(answered)

    def _encode(self, asked: Asked) -> EngineError:
        """Begin to encode and pack the set, unless somebody did. Returns what to tell whoever cannot be answered."""
        key, count = (asked.request.model, asked.ranking.document_set), asked.ranking.count
        if count > MOST_DOCUMENTS:
            return EngineError(
                "packed_too_large",
                f"The set holds {count:,} documents, and at most {MOST_DOCUMENTS:,} are encoded to be ranked at once. "
                "Give ids or BM25 candidates, or submit a job.",
            )
        now = time.monotonic()
        with self._lock:
            refused_at, refusal = self._too_large.get(key, (0.0, None))
            if refusal is not None and now < refused_at + REFUSAL_SECONDS:
                return refusal
            begins = key not in self._encoding
            since = self._encoding.setdefault(key, now)
        if begins:
            self._readers.submit(self._read_and_encode, asked, key)
        return EngineError(
            "set_not_encoded",
            f"The model '{asked.request.model}' has no encodings of the set's {count:,} documents ready "
            f"here; they are being made, since {now - since:.0f} s, and are kept then. Ask again shortly; give ids or "
            f'{{"bm25": …}} as candidates, at most {asked.ranking.text_limit:,}, to be answered meanwhile.',
        )

    def _read_and_encode(self, asked: Asked, key: tuple[str, str]) -> None:
        try:
            close_old_connections()
            rows = Document.objects.filter(document_set=uuid.UUID(asked.ranking.document_set)).order_by("position")
            texts = tuple(rows.values_list("text", flat=True).iterator())
        except DatabaseUnreachable as error:
            self._encoded(key, error)
            return
        limits = asked.request.options
        request = EncodingRequest(
            asked.request.model, texts, options=limits, pack_as=asked.ranking.document_set, priority=Priority.BATCH
        )
        encoded = self._host.pre_encode(asked.model_id, request)
        encoded.add_done_callback(lambda encoded: self._encoded(key, encoded.exception()))

    def _encoded(self, key: tuple[str, str], error: BaseException | None) -> None:
        with self._lock:
            del self._encoding[key]
            if isinstance(error, EngineError) and error.code == "packed_too_large":
                self._too_large[key] = time.monotonic(), error
        if error is not None:
            logger.warning("set %s was not encoded for %s: %s", key[1], key[0], error)

    def _in(self, threads: ThreadPoolExecutor, asked: Asked, step: Callable[[Asked], None]) -> None:
        """``step`` in one of these threads; what it raises is the answer."""

        def run() -> None:
            close_old_connections()
            try:
                step(asked)
            except Exception as error:  # whoever asks logs what is no refusal
                asked.answer.set_exception(error)

        try:
            threads.submit(run)
        except RuntimeError:
            asked.answer.set_exception(EngineError("shutting_down", "The worker stops; send the request again."))


def _pass_on(scores: Future[ScoringOutput], positions: Positions | None, answer: Future[SetScores]) -> None:
    error = scores.exception()
    if error is not None:
        answer.set_exception(error)
    else:
        answer.set_result(SetScores(scores.result(), positions))


def _count(asked: Asked, positions: Positions | None) -> int:
    return asked.ranking.count if positions is None else len(positions)


def _gone() -> EngineError:
    return EngineError("not_found", "The document set was deleted before it was ranked.")


def _too_many(asked: Asked, count: int) -> EngineError:
    return EngineError(
        "too_many_candidates",
        f"The model '{asked.request.model}' reads every document together with the query, so nothing of a set can be "
        f"encoded ahead; {count:,} documents were to be ranked, the limit is {asked.ranking.text_limit:,}. Give "
        f'candidates such as {{"bm25": {min(100, asked.ranking.text_limit)}}} or ids, or submit a job.',
    )

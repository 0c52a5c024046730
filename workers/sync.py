"""Synchronous requests: from the message to the reply, without a thread that waits for a model.

A Celery thread hands over; the model's readiness and the engine's answer come as futures. So sixteen requests for a
model that is still loading do not take the threads that answer for the others. A caller is told who has its request
only when that is not answered at once, or was not taken at once: most requests are over before it would matter.
"""

from __future__ import annotations

import logging
import threading
import time
import uuid
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import asdict, dataclass, field, replace
from typing import Any, Final

import numpy as np
import redis
from django.db import Error as DatabaseUnreachable
from django.db import close_old_connections
from structlog.contextvars import bound_contextvars

from assay.kept import Kept
from scoring import dispatch
from scoring.models import ScoringModel
from scoring.payloads import PayloadError, SyncLabels, SyncRanking, SyncReply, SyncRequest
from scoring.states import ModelState
from workers.counters import Counters
from workers.engine.errors import EngineError, RequestCancelled
from workers.engine.types import (
    ItemStatus,
    LabelScores,
    LongDocuments,
    Pairing,
    PoolingOutput,
    PoolingRequest,
    Priority,
    ScoringOptions,
    ScoringOutput,
    ScoringRequest,
    Truncation,
)
from workers.host import Host
from workers.loop import Loop
from workers.set_ranking import SetRanker, SetScores
from workers.sync_explanations import told_explanations
from workers.sync_texts import TOKEN_TASKS, pooled_reply, pooling_request, token_reply

logger = logging.getLogger(__name__)

Answer = ScoringOutput | PoolingOutput | SetScores | SyncReply

WATCH_SECONDS: Final = 0.15
YOUNG_SECONDS: Final = 0.4  # with WATCH_SECONDS well below ACK_SECONDS, after which the caller asks elsewhere
REPLY_THREADS: Final = 4


class Refused(Exception):
    """An answer in words: ``code`` is for the web's status, the message for the client."""

    def __init__(self, code: str, message: str) -> None:
        super().__init__(message)
        self.code = code


@dataclass(eq=False, slots=True)
class InHand:
    call: SyncRequest
    deadline: float  # time.monotonic()
    told: bool  # its caller knows who has it
    cancelled: threading.Event = field(default_factory=threading.Event)


class SyncDesk:
    def __init__(self, *, host: Host, ranker: SetRanker, worker_name: str) -> None:
        self.outcomes = Counters()
        self._host = host
        self._ranker = ranker
        self._worker_name = worker_name
        self._closed = False
        self._in_hand: set[InHand] = set()
        self._lock = threading.Lock()
        self._replies = ThreadPoolExecutor(REPLY_THREADS, thread_name_prefix="reply")
        self._watch = Loop("sync-watch", self._look_after, seconds=WATCH_SECONDS)
        self.start = self._watch.start

    def answer(self, payload: dict[str, Any]) -> None:
        """Take one message. Never raises: what is wrong is the reply, and a caller that left gets none."""
        with bound_contextvars(request_id=payload.get("request_id", "")):
            try:
                self._take(payload)
            except redis.RedisError as error:
                self.outcomes.add("unreachable")
                logger.warning("a request was dropped, its caller cannot be reached: %s", error)

    def drain(self, seconds: float) -> None:
        """Take nothing more and wait for what is in hand; then refuse what is left."""
        self._closed = True
        end = time.monotonic() + seconds
        while self._in_hand and time.monotonic() < end:
            time.sleep(0.05)
        for hand in self._all():
            hand.cancelled.set()
            self._refuse(hand, Refused("shutting_down", "The worker stops; send the request again."))
        self._watch.stop()
        self._ranker.stop()
        self._replies.shutdown()

    def _take(self, payload: dict[str, Any]) -> None:
        try:
            call = SyncRequest.from_json(payload)
        except (PayloadError, TypeError, KeyError) as error:
            self.outcomes.add("unknown_payload")
            if isinstance(reply_key := payload.get("reply_key"), str):
                refusal = SyncReply(error_code="unknown_payload", error_message=str(error))
                dispatch.reply_send(_stranger(reply_key), refusal)
            return
        now = dispatch.clock()
        young = now - call.sent < YOUNG_SECONDS
        if not young and not self._acknowledge(call):
            self.outcomes.add("dropped")
            return
        hand = InHand(call, time.monotonic() + call.deadline - now, told=not young)
        with self._lock:
            self._in_hand.add(hand)
        try:
            if self._closed:
                raise Refused("shutting_down", "The worker stops; send the request again.")
            model = self._served(call)
            ask = self._question(hand)
        except Refused as refusal:
            self._refuse(hand, refusal)
            return
        self._host.ensure(model).add_done_callback(lambda ready: self._submit(hand, ask, ready))

    def _acknowledge(self, call: SyncRequest) -> bool:
        worker = self._host.worker
        return dispatch.reply_acknowledge(call, worker_id=worker.pk, boot_id=worker.boot_id)

    def _served(self, call: SyncRequest) -> ScoringModel:
        try:
            model = _rows.get(call.model_id)
            if model is None or model.state != ModelState.AVAILABLE:  # it may be served since a moment ago
                model = _rows.get(call.model_id, afresh=True)
        except DatabaseUnreachable as error:
            raise Refused("model_load_failed", "The worker cannot reach its database; try again shortly.") from error
        if model is None:
            raise Refused("model_not_served", f"Model '{call.model_name}' is not registered any more.")
        if model.state != ModelState.AVAILABLE:
            raise Refused("model_not_served", f"Model '{model.name}' is not served now ({model.get_state_display()}).")
        if model.pk not in self._host.serving():  # the sender's knowledge was old; it asks again elsewhere
            raise Refused(
                "model_not_loaded",
                f"Model '{model.name}' is not loaded on {self._worker_name} now; send the request again.",
            )
        return model

    def _question(self, hand: InHand) -> ScoringRequest | PoolingRequest | None:
        """What to ask the engine, once the model's name in it is known; None: only its tokenizer."""
        try:
            if hand.call.options.task in TOKEN_TASKS:
                return None
            if hand.call.options.task:
                return pooling_request(hand.call, "", deadline=hand.deadline, cancelled=hand.cancelled)
            return _scoring_request(hand)
        except (
            ValueError,
            KeyError,
            EngineError,
        ) as error:  # a choice that there is not, which the web would not offer
            raise Refused("unknown_payload", f"The request cannot be read: {error}.") from error

    def _submit(self, hand: InHand, ask: ScoringRequest | PoolingRequest | None, ready: Future[str]) -> None:
        if error := ready.exception():
            self._refuse(hand, Refused("model_load_failed", str(error)))
            return
        name, model_id = ready.result(), uuid.UUID(hand.call.model_id)
        answer: Future[Any]
        if ask is None:
            answer = self._replies.submit(lambda: token_reply(hand.call, self._host.reader(name), self._worker_name))
        elif isinstance(ask, PoolingRequest):
            answer = self._host.pool(model_id, replace(ask, model=name))
        elif ranking := hand.call.options.ranking:
            answer = self._ranker.submit(model_id, replace(ask, model=name), ranking)
        else:
            answer = self._host.submit(model_id, replace(ask, model=name), interactive=True)
        answer.add_done_callback(lambda answered: self._answered(hand, name, answered))

    def _answered(self, hand: InHand, name: str, answered: Future[Any]) -> None:
        error = answered.exception()
        if error is None:
            self._later(self._reply, hand, name, answered.result())
        elif isinstance(error, RequestCancelled) and hand.cancelled.is_set():
            # Read by nobody, unless Redis forgot that somebody waits.
            left = SyncReply(error_code="caller_left", error_message="Nobody seemed to wait for the answer any more.")
            self._later(self._send, hand, left, "dropped")
        elif isinstance(error, EngineError):
            self._refuse(hand, Refused(error.code, str(error)))
        else:
            with bound_contextvars(request_id=hand.call.request_id, model=hand.call.model_name):
                logger.error("a request failed", exc_info=error)
            self._refuse(hand, Refused("internal_error", f"The worker failed: {type(error).__name__}."))

    def _reply(self, hand: InHand, name: str, output: Answer) -> None:
        try:
            reply = self._reply_of(hand, name, output)
        except EngineError as error:
            self._refuse(hand, Refused(error.code, str(error)))
        else:
            self._send(hand, reply, "fallback" if reply.fallback else "answered")

    def _reply_of(self, hand: InHand, name: str, output: Answer) -> SyncReply:
        if isinstance(output, SyncReply):
            return output
        if isinstance(output, SetScores):
            return ranking_reply(output, hand.call.options.ranking, self._worker_name)
        if isinstance(output, ScoringOutput):
            return reply_of(output, self._worker_name)
        names = self._host.reader(name).names if hand.call.options.return_tokens else None
        return pooled_reply(output, self._worker_name, names)

    def _refuse(self, hand: InHand, refusal: Refused) -> None:
        reply = SyncReply(error_code=refusal.code, error_message=str(refusal), worker=self._worker_name)
        self._later(self._send, hand, reply, refusal.code)

    def _later(self, step: Callable[..., None], *arguments: Any) -> None:
        """In a thread for replies; in this one, once these have ended: whoever comes late is told so too."""
        try:
            self._replies.submit(step, *arguments)
        except RuntimeError:
            step(*arguments)

    def _send(self, hand: InHand, reply: SyncReply, outcome: str) -> None:
        if not self._finished(hand, outcome):
            return
        try:
            dispatch.reply_send(hand.call, reply)
        except redis.RedisError as error:
            logger.warning("a reply could not be sent: %s", error)

    def _finished(self, hand: InHand, outcome: str) -> bool:
        """False: it was finished before."""
        with self._lock:
            if hand not in self._in_hand:
                return False
            self._in_hand.remove(hand)
        self.outcomes.add(outcome)
        # The last line of a request, in whatever thread it ends: the id that the web logged leads to it.
        with bound_contextvars(request_id=hand.call.request_id, model=hand.call.model_name):
            logger.info("synchronous request: %s", outcome)
        return True

    def _look_after(self) -> None:
        hands = [hand for hand in self._all() if not hand.cancelled.is_set()]
        if not hands:
            return
        try:
            left = dispatch.caller_left([hand.call for hand in hands])
            for hand in hands:
                if not hand.told:
                    hand.told = self._acknowledge(hand.call)
        except redis.RedisError:
            left = [False] * len(hands)  # nobody can tell; the deadline ends it
        now = time.monotonic()
        for hand, gone in zip(hands, left, strict=True):
            if gone or now > hand.deadline:
                hand.cancelled.set()

    def _all(self) -> list[InHand]:
        with self._lock:
            return list(self._in_hand)


def _read(model_id: str) -> ScoringModel | None:
    close_old_connections()
    return ScoringModel.objects.filter(pk=model_id).first()


_rows: Final = Kept(_read)


def _stranger(reply_key: str) -> SyncRequest:
    """Somebody to reply to, of whom nothing else could be read."""
    return SyncRequest(
        reply_key=reply_key, model_id="", model_name="", queries=[], documents=[], pairing="", deadline=0.0
    )


def _scoring_request(hand: InHand) -> ScoringRequest:
    call, given = hand.call, hand.call.options
    options = ScoringOptions(
        max_tokens_per_query=given.max_tokens_per_query,
        max_tokens_per_document=given.max_tokens_per_document,
        max_tokens=given.max_tokens,
        truncation=Truncation(given.truncation),
        instruction=given.instruction,
        use_activation=given.use_activation,
        dimensions=given.dimensions,
        labels=tuple(given.labels),
        label_token_ids=tuple(each if isinstance(each, int) else tuple(each) for each in given.label_token_ids),
        apply_softmax=given.apply_softmax,
        item_first=given.item_first,
        template=given.template,
        add_special_tokens=given.add_special_tokens,
        long_documents=LongDocuments(given.long_documents),
        chunk_overlap=given.chunk_overlap,
    )
    return ScoringRequest(
        model="",
        queries=tuple(call.queries),
        documents=tuple(call.documents),
        query_ids=tuple(map(tuple, call.query_ids)),
        document_ids=tuple(map(tuple, call.document_ids)),
        cache_salt=call.cache_salt,
        pairing=Pairing(call.pairing),
        priority=Priority[given.priority.upper()],
        deadline=hand.deadline,
        cancelled=hand.cancelled,
        options=options,
        explain=given.explain,
    )


def reply_of(output: ScoringOutput, worker_name: str) -> SyncReply:
    """Raises EngineError for explanations that are too large."""
    return SyncReply(
        scores=numbers(output.scores),
        raw_scores=numbers(output.raw_scores),
        statuses=[ItemStatus(status).name.lower() for status in output.status.tolist()],
        errors={str(pair): code for pair, code in output.errors.items()},
        truncated_tokens=output.truncated_tokens.tolist(),
        query_truncated_tokens=output.query_truncated_tokens.tolist(),
        labels=_labels(output.labels) if output.labels else None,
        best_windows=None if output.best_windows is None else output.best_windows.tolist(),
        explanations=told_explanations(output.explanations or ()),
        scale=output.scale,
        prompt_tokens=output.prompt_tokens,
        query_tokens=output.query_tokens,
        cached_documents=output.cached_documents,
        timings=asdict(output.timings),
        backend=output.backend,
        fallback=output.fallback,
        dtype=output.dtype,
        revision=output.revision,
        worker=worker_name,
    )


def ranking_reply(scores: SetScores, ranking: SyncRanking | None, worker_name: str) -> SyncReply:
    best = scores.best(ranking.top_n if ranking else 0)
    assert best.positions is not None
    scored = int(np.isfinite(scores.output.raw_scores).sum())
    return replace(reply_of(best.output, worker_name), positions=best.positions.tolist(), scored=scored)


def _labels(labels: LabelScores) -> SyncLabels:
    return SyncLabels(
        labels=list(labels.labels),
        token_ids=[list(ids) for ids in labels.token_ids],
        probabilities=[numbers(row) for row in labels.probabilities],
        logprobs=[numbers(row) for row in labels.logprobs],
    )


def numbers(values: Sequence[float] | np.ndarray[Any, Any]) -> list[float | None]:
    """JSON has no NaN and no infinity: such an element becomes None."""
    return [float(value) if np.isfinite(value) else None for value in values]

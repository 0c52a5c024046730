"""The calls of one request: all at once, each as large as the server takes, and a text that it refuses found out."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import Executor
from dataclasses import dataclass
from typing import Any, Final, Generic, TypeVar

from workers.engine.errors import RequestCancelled
from workers.engine.types import PoolingRequest, ScoringRequest
from workers.remote.connection import Connection, TextsRefused, Trouble, refused
from workers.remote.shape import Call, reported_model, reported_tokens
from workers.remote.spec import RemoteSpec

HARMLESS: Final = "The river is wide."  # what no server has a reason to refuse
MOST_REFUSALS: Final = 64  # calls that a request may spend on texts that are refused
NOT_AN_ANSWER: Final = (KeyError, TypeError, IndexError, ValueError, AttributeError)

Result = TypeVar("Result")
ResultOfOne = TypeVar("ResultOfOne", covariant=True)


@dataclass(frozen=True, slots=True)
class Question(Generic[ResultOfOne]):
    """What is asked about texts. ``call`` for some of them; ``read`` gives one result for each, or raises one of
    NOT_AN_ANSWER; ``checks``: calls without the texts, from the likest to the most harmless one."""

    call: Callable[[list[str]], Call]
    read: Callable[[Any, int], Sequence[ResultOfOne]]
    checks: tuple[Call, ...]


Part = tuple[Question[Result], list[str]]


class Asking:
    """Thread-safe. ``models`` and ``tokens`` are what the server said beside the results."""

    def __init__(
        self,
        spec: RemoteSpec,
        connection: Connection,
        request: ScoringRequest | PoolingRequest,
        *,
        calls: Executor,
        progressed: Callable[[], object],
    ) -> None:
        self.models: set[str] = set()
        self.tokens = 0
        self._spec = spec
        self._connection = connection
        self._request = request
        self._calls = calls
        self._progressed = progressed
        self._refusals = 0
        self._lock = threading.Lock()

    @property
    def backend(self) -> str:
        return f"{self._spec.engine}:{', '.join(sorted(self.models)) or self._spec.remote_model}"

    def all(self, parts: Sequence[Part[Result]]) -> list[list[Result | None]]:
        """Of every part its texts' results; None for a text that the server refuses while it answers others.

        Raises EngineError: RemoteUnavailable, RequestCancelled, ``remote_refused`` for what is no answer.
        """
        return list(self._calls.map(self._part, parts))

    def _part(self, part: Part[Result]) -> list[Result | None]:
        question, texts = part
        try:
            return self._results(question, texts)
        except TextsRefused as refusal:
            if not self._is_refused(question.checks[0]):
                return self._halves(question, texts, refusal)
            if all(self._is_refused(check) for check in question.checks[1:]):  # so it would refuse anything
                cause = f"{self._spec.who} is not to be had: it answered {refusal.status} to a harmless text too."
                raise self._connection.failed(Trouble(cause)) from refusal
            return [None] * len(texts)  # what goes with every text is at fault

    def _halves(self, question: Question[Result], texts: list[str], refusal: TextsRefused) -> list[Result | None]:
        """``texts`` were refused, and others are answered."""
        with self._lock:
            self._refusals += 1
            if self._refusals > MOST_REFUSALS:
                raise refusal
        if len(texts) == 1:
            return [None]
        found: list[Result | None] = []
        for half in in_parts(texts, (len(texts) + 1) // 2):
            try:
                found += self._results(question, half)
            except TextsRefused as again:
                found += self._halves(question, half, again)
        return found

    def _results(self, question: Question[Result], texts: list[str]) -> list[Result | None]:
        answer = self._ask(question.call(texts))
        try:
            return list(question.read(answer, len(texts)))
        except NOT_AN_ANSWER as error:
            raise refused(self._spec, f"something of another shape ({type(error).__name__})") from error

    def _is_refused(self, check: Call) -> bool:
        try:
            self._ask(check, admitted=True)
        except TextsRefused:
            return True
        return False

    def _ask(self, call: Call, *, admitted: bool = False) -> Any:
        request = self._request
        if request.cancelled is not None and request.cancelled.is_set():
            raise RequestCancelled("cancelled", "Nobody waits for the scores any more.")
        if request.deadline is not None and time.monotonic() > request.deadline:
            raise RequestCancelled("deadline_exceeded", "The deadline passed before all texts were sent.")
        answer = self._connection.post(*call, deadline=request.deadline, tried=self._tried, admitted=admitted)
        with self._lock:
            self.models |= {name for name in (reported_model(answer),) if name}
            self.tokens += reported_tokens(answer)
        return answer

    def _tried(self) -> None:
        self._progressed()
        if isinstance(self._request, ScoringRequest) and self._request.progressed is not None:
            self._request.progressed()


def in_parts(texts: Iterable[str], most: int) -> list[list[str]]:
    whole = list(texts)
    return [whole[start : start + most] for start in range(0, len(whole), most)]

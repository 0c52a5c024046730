"""One remote model: a ``ScoringRequest`` becomes calls, their answers a ``ScoringOutput``.

Shapes: Q queries, D documents, P pairs as in the engine's ``types``; n distinct texts, E dimensions.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import Executor
from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from scoring.models.scoring_model import ModelEngine
from workers.engine.errors import EngineError, RequestCancelled
from workers.engine.outputs import is_blank, pair_indices
from workers.engine.types import (
    ItemStatus,
    LongDocuments,
    PoolingTask,
    ScoringOptions,
    ScoringOutput,
    ScoringRequest,
    TextRole,
    Timings,
    Truncation,
)
from workers.remote.breaker import Breaker
from workers.remote.cohere import CohereShape
from workers.remote.connection import Connection, refused
from workers.remote.jina import JinaShape
from workers.remote.shape import Shape, reported_model, reported_tokens
from workers.remote.spec import RemoteSpec
from workers.remote.tei import TeiShape

SHAPES: Final[dict[ModelEngine, type[Shape]]] = {
    ModelEngine.VLLM: JinaShape,
    ModelEngine.JINA: JinaShape,
    ModelEngine.OPENAI: JinaShape,
    ModelEngine.COHERE: CohereShape,
    ModelEngine.TEI: TeiShape,
}
Scores = npt.NDArray[np.float32]
NOT_AN_ANSWER: Final = (KeyError, TypeError, IndexError, ValueError, AttributeError)


@dataclass(eq=False, slots=True)
class Told:
    """What the server said beside the scores, gathered over a request's calls."""

    models: set[str] = field(default_factory=set)
    tokens: int = 0


class RemoteModel:
    """Thread-safe. ``calls`` runs the calls of a request at once; ``progressed`` is called after every try of one."""

    scores_pairs = True
    tasks: tuple[PoolingTask, ...] = ()
    sample_tail = ""

    def __init__(self, spec: RemoteSpec, *, calls: Executor, progressed: Callable[[], object]) -> None:
        self.spec = spec
        self.info = spec.info()
        self.breaker = Breaker()
        self._shape: Shape = SHAPES[spec.engine]()
        self._connection = Connection(spec, self.breaker)
        self._calls = calls
        self._progressed = progressed

    def score(self, request: ScoringRequest) -> ScoringOutput:
        """Raises EngineError: what this engine cannot do, ``remote_refused``, or RemoteUnavailable."""
        started = time.monotonic()
        self._demand_possible(request)
        queries, documents = pair_indices(request)
        pairs = [
            (request.queries[query], request.documents[document])
            for query, document in zip(queries, documents, strict=True)
        ]
        empty = np.array([is_blank(query) or is_blank(document) for query, document in pairs], dtype=np.bool_)
        asked = [pair for pair, is_empty in zip(pairs, empty, strict=True) if not is_empty]
        told = Told()
        scores = np.full(len(pairs), np.nan, dtype=np.float32)
        scores[~empty] = (self._cosines if self.spec.embeds else self._relevances)(request, asked, told)
        failed = ~np.isfinite(scores) & ~empty
        scores[failed] = np.nan
        milliseconds = 1000 * (time.monotonic() - started)
        return ScoringOutput(
            scores=scores,
            raw_scores=scores.copy(),
            status=np.select([empty, failed], [ItemStatus.EMPTY, ItemStatus.FAILED], ItemStatus.OK).astype(np.uint8),
            truncated_tokens=np.zeros(len(pairs), dtype=np.int32),
            query_truncated_tokens=np.zeros(request.query_count, dtype=np.int32),
            errors={int(pair): "non_finite_score" for pair in np.flatnonzero(failed)},
            labels=None,
            scale=self.info.scale,
            prompt_tokens=told.tokens,
            cached_documents=0,
            timings=Timings(queue=0.0, tokenise=0.0, forward=milliseconds, maxsim=0.0, total=milliseconds),
            backend=f"{self.spec.engine}:{', '.join(sorted(told.models)) or self.spec.remote_model}",
            fallback=None,
            dtype=self.info.dtype,
            revision=self.info.revision,
        )

    def _relevances(self, request: ScoringRequest, pairs: Sequence[tuple[str, str]], told: Told) -> list[float]:
        """Each query once with its distinct documents, as many in a call as the server takes."""
        wanted: dict[str, dict[str, None]] = {}
        for query, document in pairs:
            wanted.setdefault(query, {})[document] = None
        parts = [(query, part) for query, texts in wanted.items() for part in _parts(texts, self._shape.most_documents)]

        def ask(part: tuple[str, list[str]]) -> list[float]:
            answer = self._ask(request, self._shape.rerank(self.spec.remote_model, *part), told)
            return self._read(lambda: _in_order(self._shape.scores(answer), len(part[1])))

        found: dict[tuple[str, str], float] = {}
        for (query, texts), scores in zip(parts, self._calls.map(ask, parts), strict=True):
            found |= {(query, text): score for text, score in zip(texts, scores, strict=True)}
        return [found[pair] for pair in pairs]

    def _cosines(self, request: ScoringRequest, pairs: Sequence[tuple[str, str]], told: Told) -> Scores:
        """Each distinct text once, queries as queries and documents as documents."""
        if not pairs:
            return np.zeros(0, dtype=np.float32)
        rows = []
        for role, texts in zip((TextRole.QUERY, TextRole.DOCUMENT), zip(*pairs, strict=True), strict=True):
            distinct = dict.fromkeys(texts)
            place = {text: number for number, text in enumerate(distinct)}
            vectors = self._vectors(request, list(distinct), role, told)  # [n, E]
            rows.append(vectors[[place[text] for text in texts]])  # [P, E]
        if rows[0].shape != rows[1].shape:
            raise refused(self.spec, "vectors of unequal lengths")
        return np.einsum("pe,pe->p", *rows)

    def _vectors(self, request: ScoringRequest, texts: list[str], role: TextRole, told: Told) -> Scores:
        """Of length 1, ``[n, E]``."""

        def ask(part: list[str]) -> Scores:
            answer = self._ask(request, self._shape.embed(self.spec.remote_model, part, role), told)
            return self._read(lambda: _matrix(self._shape.vectors(answer), len(part)))

        found = list(self._calls.map(ask, _parts(texts, self._shape.most_texts)))
        if len({vectors.shape[1] for vectors in found}) != 1:
            raise refused(self.spec, "vectors of unequal lengths")
        vectors = np.concatenate(found)
        return vectors / np.linalg.norm(vectors, axis=1, keepdims=True)

    def _ask(self, request: ScoringRequest, call: tuple[str, dict[str, Any]], told: Told) -> Any:
        if request.cancelled is not None and request.cancelled.is_set():
            raise RequestCancelled("cancelled", "Nobody waits for the scores any more.")
        if request.deadline is not None and time.monotonic() > request.deadline:
            raise RequestCancelled("deadline_exceeded", "The deadline passed before all texts were sent.")

        def tried() -> None:
            self._progressed()
            if request.progressed is not None:
                request.progressed()

        answer = self._connection.post(*call, deadline=request.deadline, tried=tried)
        told.models |= {name for name in (reported_model(answer),) if name}
        told.tokens += reported_tokens(answer)
        return answer

    def _read(self, reader: Callable[[], Any]) -> Any:
        try:
            return reader()
        except NOT_AN_ANSWER as error:
            raise refused(self.spec, f"something of another shape ({type(error).__name__})") from error

    def _demand_possible(self, request: ScoringRequest) -> None:
        options, who = request.options, f"The model '{self.spec.name}' is computed by {self.spec.engine}, which"
        if request.query_ids or request.document_ids:
            raise EngineError("token_ids_refused", f"{who} takes texts, not token ids. Give the texts.")
        if options.instruction:
            raise EngineError("no_instruction", f"{who} has no place for an instruction. Write it into the query.")
        if options.dimensions is not None:
            raise EngineError("bad_dimensions", f"{who} is not asked for shorter vectors. Leave dimensions out.")
        if any((options.max_tokens_per_query, options.max_tokens_per_document, options.max_tokens)):
            raise EngineError("bad_limit", f"{who} cuts texts by its own limits. Leave the limits out.")
        plain = ScoringOptions()
        if (options.long_documents, options.truncation) != (LongDocuments.TRUNCATE, Truncation.DOCUMENT) or (
            options.use_activation != plain.use_activation
        ):
            raise EngineError(
                "unsupported_option",
                f"{who} cuts long documents itself and gives its scores in one form only. Leave long_documents, "
                "truncation and use_activation out.",
            )


def _parts(texts: Iterable[str], most: int) -> list[list[str]]:
    whole = list(texts)
    return [whole[start : start + most] for start in range(0, len(whole), most)]


def _in_order(scores: Sequence[tuple[int, float]], count: int) -> list[float]:
    """Raises ValueError unless every document has exactly one score."""
    found = {int(place): float(score) for place, score in scores}
    if len(scores) != count or sorted(found) != list(range(count)):
        raise ValueError("not one score for each document")
    return [found[place] for place in range(count)]


def _matrix(vectors: Sequence[Sequence[float]], count: int) -> Scores:
    """[n, E]. Raises ValueError unless there is one vector for each text."""
    matrix = np.array(vectors, dtype=np.float32)
    if matrix.ndim != 2 or len(matrix) != count or not matrix.shape[1]:
        raise ValueError("not one vector for each text")
    return matrix

"""One remote model: scores of pairs, made of the calls that its engine's language has for them.

Shapes: P pairs; n texts; E dimensions.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from concurrent.futures import Executor
from typing import Final

import numpy as np
import numpy.typing as npt

from scoring.models.scoring_model import ModelEngine
from workers.engine.errors import EngineError
from workers.engine.model_types import ModelKind
from workers.engine.outputs import is_blank, pair_indices
from workers.engine.types import (
    ItemStatus,
    LongDocuments,
    PoolingOutput,
    PoolingRequest,
    PoolingTask,
    ScoringOptions,
    ScoringOutput,
    ScoringRequest,
    TextRole,
    Timings,
    Truncation,
)
from workers.remote.asking import HARMLESS, Asking, Question, in_parts
from workers.remote.breaker import Breaker
from workers.remote.cohere import CohereShape
from workers.remote.connection import Connection, refused
from workers.remote.jina import JinaShape
from workers.remote.openai import OpenAIShape
from workers.remote.pooling import TASKS, demand_poolable, pooling_question, text_of
from workers.remote.shape import Shape
from workers.remote.spec import RemoteSpec
from workers.remote.tei import TeiShape
from workers.remote.vllm import VllmShape

SHAPES: Final[dict[ModelEngine, type[Shape]]] = {
    ModelEngine.VLLM: VllmShape,
    ModelEngine.JINA: JinaShape,
    ModelEngine.OPENAI: OpenAIShape,
    ModelEngine.COHERE: CohereShape,
    ModelEngine.TEI: TeiShape,
}
REFUSED: Final = "remote_refused"
NOT_FINITE: Final = "non_finite_score"

Scores = npt.NDArray[np.float32]
Pair = tuple[str, str]


class RemoteModel:
    """Thread-safe. ``calls`` runs the calls of a request at once; ``progressed`` is called after every try of one."""

    sample_tail = ""

    def __init__(self, spec: RemoteSpec, *, calls: Executor, progressed: Callable[[], object]) -> None:
        self.spec = spec
        self.info = spec.info()
        self.breaker = Breaker()
        self.connection = Connection(spec, self.breaker)
        self.scores_pairs = spec.kind is not ModelKind.CLASSIFIER
        self.tasks: tuple[PoolingTask, ...] = (TASKS[spec.kind],) if spec.kind in TASKS else ()
        self._shape: Shape = SHAPES[spec.engine]()
        self._calls = calls
        self._progressed = progressed

    def score(self, request: ScoringRequest) -> ScoringOutput:
        """Raises EngineError: what this engine cannot do, ``remote_refused``, RemoteUnavailable, RequestCancelled."""
        started = time.monotonic()
        self._demand_possible(request)
        queries, documents = pair_indices(request)
        pairs = [
            (request.queries[query], request.documents[document])
            for query, document in zip(queries, documents, strict=True)
        ]
        empty = np.array([is_blank(query) or is_blank(document) for query, document in pairs], dtype=np.bool_)
        wanted = [pair for pair, is_empty in zip(pairs, empty, strict=True) if not is_empty]
        asking = self._asking(request)
        found = (self._cosines if self.spec.embeds else self._relevances)(asking, wanted)
        places = np.flatnonzero(~empty)
        scores = np.full(len(pairs), np.nan, dtype=np.float32)
        scores[places] = [np.nan if score is None else score for score in found]
        errors = {int(place): REFUSED for place, score in zip(places, found, strict=True) if score is None}
        failed = ~np.isfinite(scores) & ~empty
        scores[failed] = np.nan
        return ScoringOutput(
            scores=scores,
            raw_scores=scores.copy(),
            status=np.select([empty, failed], [ItemStatus.EMPTY, ItemStatus.FAILED], ItemStatus.OK).astype(np.uint8),
            truncated_tokens=np.zeros(len(pairs), dtype=np.int32),
            query_truncated_tokens=np.zeros(request.query_count, dtype=np.int32),
            errors={int(pair): errors.get(int(pair), NOT_FINITE) for pair in np.flatnonzero(failed)},
            labels=None,
            scale=self.info.scale,
            prompt_tokens=asking.tokens,
            cached_documents=0,
            timings=_timings(started),
            backend=asking.backend,
            fallback=None,
            dtype=self.info.dtype,
            revision=self.info.revision,
        )

    def pool(self, request: PoolingRequest) -> PoolingOutput:
        """Raises as ``score`` does."""
        started = time.monotonic()
        demand_poolable(self.spec, self.tasks, request)
        asking = self._asking(request)
        wanted = list(dict.fromkeys(text for text in request.inputs if not is_blank(text)))
        raw = not request.options.use_activation
        question = pooling_question(self.spec, self._shape, request.task, request.role, raw=raw)
        found = self._found(asking, question, wanted)
        normalize = bool(request.options.normalize) and request.task is PoolingTask.EMBED
        data = tuple(text_of(text, found, request.task, normalize=normalize) for text in request.inputs)
        failed = [place for place, text in enumerate(data) if text.status is ItemStatus.FAILED]
        return PoolingOutput(
            data=data,
            errors={place: REFUSED if found[request.inputs[place]] is None else NOT_FINITE for place in failed},
            labels=self.spec.labels if request.task is PoolingTask.CLASSIFY else (),
            prompt_tokens=asking.tokens,
            timings=_timings(started),
            backend=asking.backend,
            dtype=self.info.dtype,
            revision=self.info.revision,
        )

    def _asking(self, request: ScoringRequest | PoolingRequest) -> Asking:
        return Asking(self.spec, self.connection, request, calls=self._calls, progressed=self._progressed)

    def _relevances(self, asking: Asking, pairs: Sequence[Pair]) -> list[float | None]:
        """Each query once with its distinct documents, as many in a call as the server takes."""
        wanted: dict[str, dict[str, None]] = {}
        for query, document in pairs:
            wanted.setdefault(query, {})[document] = None
        parts = [
            (query, (self._rerank_question(query), part))
            for query, texts in wanted.items()
            for part in in_parts(texts, self._shape.most_documents)
        ]
        found: dict[Pair, float | None] = {}
        for (query, (_, texts)), scores in zip(parts, asking.all([part for _, part in parts]), strict=True):
            found |= {(query, text): score for text, score in zip(texts, scores, strict=True)}
        return [found[pair] for pair in pairs]

    def _rerank_question(self, query: str) -> Question[float]:
        shape, name = self._shape, self.spec.remote_model
        return Question(
            call=lambda documents: shape.rerank(name, query, documents),
            read=lambda answer, count: _in_order(shape.scores(answer), count),
            checks=(shape.rerank(name, query, [HARMLESS]), shape.rerank(name, HARMLESS, [HARMLESS])),
        )

    def _cosines(self, asking: Asking, pairs: Sequence[Pair]) -> list[float | None]:
        """Each distinct text once, queries as queries and documents as documents."""
        found: list[dict[str, Scores | None]] = []
        for place, role in enumerate((TextRole.QUERY, TextRole.DOCUMENT)):
            question = pooling_question(self.spec, self._shape, PoolingTask.EMBED, role)
            vectors = self._found(asking, question, list(dict.fromkeys(pair[place] for pair in pairs)))
            found.append(
                {text: vector if vector is None else _of_length_one(vector) for text, vector in vectors.items()}
            )
        if len({vector.shape for vectors in found for vector in vectors.values() if vector is not None}) > 1:
            raise refused(self.spec, "vectors of unequal lengths")
        return [_cosine(found[0][query], found[1][document]) for query, document in pairs]

    def _found(self, asking: Asking, question: Question[Scores], texts: list[str]) -> dict[str, Scores | None]:
        parts = [(question, part) for part in in_parts(texts, self._shape.most_texts)]
        return dict(zip(texts, (result for results in asking.all(parts) for result in results), strict=True))

    def _demand_possible(self, request: ScoringRequest) -> None:
        options, who = request.options, f"The model '{self.spec.name}' is computed by {self.spec.engine}, which"
        if not self.scores_pairs:
            raise EngineError("unsupported_task", f"{who} gives texts their classes. Ask for those.")
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


def _in_order(scores: Sequence[tuple[int, float]], count: int) -> list[float]:
    """Raises ValueError unless every document has exactly one score."""
    found = {int(place): float(score) for place, score in scores}
    if len(scores) != count or sorted(found) != list(range(count)):
        raise ValueError("not one score for each document")
    return [found[place] for place in range(count)]


def _of_length_one(vector: Scores | None) -> Scores | None:
    """NaN where that cannot be."""
    if vector is None:
        return None
    length = np.linalg.norm(vector)
    return vector / length if length else np.full_like(vector, np.nan)


def _cosine(one: Scores | None, other: Scores | None) -> float | None:
    return None if one is None or other is None else float(one @ other)


def _timings(started: float) -> Timings:
    milliseconds = 1000 * (time.monotonic() - started)
    return Timings(queue=0.0, tokenise=0.0, forward=milliseconds, maxsim=0.0, total=milliseconds)

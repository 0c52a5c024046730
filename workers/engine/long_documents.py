"""Documents that a model has no room for, scored window by window; the best window's score is the document's.

Outside the runners: a request that asks for it becomes one whose documents are windows, its answer is folded back. So
every kind of model can, as long as it says how much of a document it would cut (``TaskRunner.document_excess``).

Shapes: P pairs as submitted, W pairs of queries and windows."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from workers.engine.errors import EngineError
from workers.engine.outputs import pair_indices
from workers.engine.task_runner import TaskRunner
from workers.engine.texts.prompts import Side, sides
from workers.engine.types import LongDocuments, Pairing, ScoringOptions, ScoringOutput, ScoringRequest

Window = tuple[int, int]  # first and last-plus-one character; of token ids: first and last-plus-one id
_MOST_WINDOWS = 1024  # of one document: half a million tokens for a model that reads 512


@dataclass(frozen=True, slots=True)
class WindowedRequest:
    """``request`` is over windows; ``pair_of`` says whose they are, neighbours in the order of their document."""

    request: ScoringRequest
    pair_of: npt.NDArray[np.intp]  # [W]
    places: npt.NDArray[np.int32]  # [W, 2]
    query_of: npt.NDArray[np.intp]  # for each query of ``request`` the submitted one
    submitted: ScoringRequest

    def fold(self, output: ScoringOutput) -> ScoringOutput:
        """The answer to the request as submitted: each pair has its best window's numbers, status and labels."""
        best = self._best(output.raw_scores)  # [P]
        query_truncated = np.zeros(self.submitted.query_count, dtype=np.int32)
        np.maximum.at(query_truncated, self.query_of, output.query_truncated_tokens)
        labels, why = output.labels, output.explanations
        if labels is not None:
            labels = replace(labels, probabilities=labels.probabilities[best], logprobs=labels.logprobs[best])
        return replace(
            output,
            scores=output.scores[best],
            raw_scores=output.raw_scores[best],
            status=output.status[best],
            truncated_tokens=output.truncated_tokens[best],
            query_truncated_tokens=query_truncated,
            errors={pair: output.errors[int(w)] for pair, w in enumerate(best) if int(w) in output.errors},
            labels=labels,
            best_windows=self.places[best],
            explanations=None if why is None else tuple(why[window] for window in best),
        )

    def _best(self, raw_scores: npt.NDArray[np.float32]) -> npt.NDArray[np.intp]:
        """Each pair's window of the highest raw score, the first of equals; one without a score only if none has."""
        ranked = np.where(np.isfinite(raw_scores), raw_scores, -np.inf)
        order = np.lexsort((-ranked, self.pair_of))  # stable: by pair, then best first
        return order[np.searchsorted(self.pair_of[order], np.arange(self.pair_of.max() + 1))]


def split_documents(
    request: ScoringRequest, task: TaskRunner, *, check_wanted: Callable[[], None]
) -> WindowedRequest | None:
    """None where the request does not ask for windows, or has no pairs. Tokenising thousands of long documents takes
    long: ``check_wanted``, asked before each, raises once nobody waits for them any more."""
    options = request.options
    if options.long_documents is not LongDocuments.CHUNK_MAX:
        return None
    if options.chunk_overlap < 0:
        raise EngineError(
            "bad_limit", f"Windows cannot overlap by {options.chunk_overlap} tokens. Give chunk_overlap as 0 or more."
        )
    pair_queries, pair_documents = pair_indices(request)
    if not len(pair_queries):
        return None
    if request.pairing is Pairing.MATRIX and (request.query_count == 1 or not task.room_depends_on_query):
        return _matrix(request, task, check_wanted)
    queries, documents = sides(request)
    windows: dict[tuple[Side | None, Side], list[Window]] = {}
    pairs, places = [], []
    for pair, (query, document) in enumerate(zip(pair_queries, pair_documents, strict=True)):
        texts = queries[query] if task.room_depends_on_query else None, documents[document]
        if texts not in windows:
            check_wanted()
            windows[texts] = list(_windows(queries[query], documents[document], task, options))
        places += windows[texts]
        pairs += [pair] * len(windows[texts])
    pair_of = np.array(pairs, dtype=np.intp)
    expanded = replace(
        _over(request, [documents[pair_documents[pair]] for pair in pairs], places),
        pairing=Pairing.PAIRWISE,
        queries=tuple(request.queries[pair_queries[pair]] for pair in pairs) if request.queries else (),
        query_ids=tuple(request.query_ids[pair_queries[pair]] for pair in pairs) if request.query_ids else (),
    )
    return WindowedRequest(expanded, pair_of, np.array(places, dtype=np.int32), pair_queries[pair_of], request)


def _matrix(request: ScoringRequest, task: TaskRunner, check_wanted: Callable[[], None]) -> WindowedRequest:
    """Where one document's windows are the same for all queries, it stays a matrix."""
    queries, documents = sides(request)
    windows: dict[Side, list[Window]] = {}
    for each in dict.fromkeys(documents):
        check_wanted()
        windows[each] = list(_windows(queries[0], each, task, request.options))
    document_of = [i for i, document in enumerate(documents) for _ in windows[document]]
    places = [place for document in documents for place in windows[document]]
    pair_of = np.add.outer(np.arange(len(queries)) * len(documents), document_of).ravel()  # [W], query-major
    return WindowedRequest(
        _over(request, [documents[i] for i in document_of], places),
        pair_of,
        np.tile(np.array(places, dtype=np.int32), (len(queries), 1)),
        np.arange(len(queries)),
        request,
    )


def _over(request: ScoringRequest, documents: list[Side], places: list[Window]) -> ScoringRequest:
    """The request with those parts of the documents."""
    parts = [document[start:end] for document, (start, end) in zip(documents, places, strict=True)]
    return replace(
        request,
        documents=tuple(part for part in parts if isinstance(part, str)),
        document_ids=tuple(part for part in parts if not isinstance(part, str)),
        options=replace(request.options, long_documents=LongDocuments.TRUNCATE),
    )


def _windows(query: Side, document: Side, task: TaskRunner, options: ScoringOptions) -> Iterator[Window]:
    """Parts that the model has room for, each beginning ``chunk_overlap`` tokens before the end of the last."""
    excess = task.document_excess(query, document, options)
    tokens = task.token_places(document) if excess else []
    most = len(tokens) - excess
    if not excess or most < 1:
        yield 0, len(document)
        return
    start, end, count = 0, 0, 0
    while end < len(tokens):
        count += 1
        if count > _MOST_WINDOWS:
            raise EngineError(
                "too_many_windows",
                f"A document of {len(tokens)} tokens makes more than {_MOST_WINDOWS} windows of {most}. Give a larger "
                "max_tokens_per_document, a smaller chunk_overlap, or a shorter document.",
            )
        end = min(start + most, len(tokens))
        # By itself a part may hold more tokens than it had in the whole.
        while end > start + 1 and (over := task.document_excess(query, _part(document, tokens, start, end), options)):
            end = max(start + 1, end - over)
        yield tokens[start][0], tokens[end - 1][1]
        start = max(start + 1, end - min(options.chunk_overlap, (end - start) // 2))


def _part(document: Side, tokens: list[Window], start: int, end: int) -> Side:
    return document[tokens[start][0] : tokens[end - 1][1]]

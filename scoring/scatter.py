"""One large request as several smaller ones, and their replies as the reply to it.

Shapes: Q queries, N documents of the request, n of one part. Pairs are query-major in either: pair (q, j) of a part is
at q * n + j there, at q * N + places[j] in the whole.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt

from scoring.payloads import SyncLabels, SyncReply, SyncRequest

# Parts that differ in one of these were scored by different models, in effect.
ALIKE = ("revision", "dtype", "scale")


def share_of(call: SyncRequest, places: Sequence[int]) -> SyncRequest:
    """``call`` with only the documents at ``places``."""
    return replace(
        call,
        documents=[call.documents[place] for place in places] if call.documents else [],
        document_ids=[call.document_ids[place] for place in places] if call.document_ids else [],
    )


def alike(replies: Sequence[SyncReply]) -> bool:
    return len({tuple(getattr(reply, name) for name in ALIKE) for reply in replies}) == 1


def merged(replies: Sequence[SyncReply], places: Sequence[Sequence[int]], *, queries: int) -> SyncReply:
    """The reply to the whole of Q × N pairs; ``places`` are each part's documents in the order submitted."""
    first, documents = replies[0], sum(map(len, places))
    pairs = [_pairs(part, documents, queries) for part in places]  # each [Q * n]
    queries_once = max(reply.query_tokens for reply in replies)

    def ordered(name: str) -> list[Any]:
        return _scattered([getattr(reply, name) for reply in replies], pairs)

    return replace(
        first,
        scores=ordered("scores"),
        raw_scores=ordered("raw_scores"),
        statuses=ordered("statuses"),
        truncated_tokens=ordered("truncated_tokens"),
        best_windows=None if first.best_windows is None else ordered("best_windows"),
        labels=_labels([reply.labels for reply in replies if reply.labels], pairs),
        errors={
            str(at[int(pair)]): code
            for reply, at in zip(replies, pairs, strict=True)
            for pair, code in reply.errors.items()
        },
        # Every part read all queries; where those are read by themselves, the whole would have done so once.
        prompt_tokens=sum(reply.prompt_tokens - reply.query_tokens for reply in replies) + queries_once,
        query_tokens=queries_once,
        cached_documents=sum(reply.cached_documents for reply in replies),
        timings={phase: max(reply.timings.get(phase, 0.0) for reply in replies) for phase in first.timings},
        backend=", ".join(sorted({reply.backend for reply in replies})),
        fallback=next((reply.fallback for reply in replies if reply.fallback), None),
        worker=", ".join(sorted({reply.worker for reply in replies})),
    )


def _pairs(places: Sequence[int], documents: int, queries: int) -> npt.NDArray[np.int64]:
    return (np.arange(queries)[:, None] * documents + np.asarray(places)[None, :]).ravel()  # [Q * n]


def _scattered(columns: Sequence[list[Any]], pairs: Sequence[npt.NDArray[np.int64]]) -> list[Any]:
    whole: list[Any] = [None] * sum(map(len, pairs))
    for column, at in zip(columns, pairs, strict=True):
        for pair, value in zip(at, column, strict=True):
            whole[pair] = value
    return whole


def _labels(parts: list[SyncLabels], pairs: Sequence[npt.NDArray[np.int64]]) -> SyncLabels | None:
    if not parts:
        return None
    return replace(
        parts[0],
        probabilities=_scattered([part.probabilities for part in parts], pairs),
        logprobs=_scattered([part.logprobs for part in parts], pairs),
    )

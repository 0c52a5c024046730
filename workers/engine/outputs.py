"""The last step of every kind of scoring: per-pair status, truncation flags, timings, in the order submitted.

Shapes: Q queries, D documents, P pairs as in ``types``.
"""

from __future__ import annotations

import time
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from workers.engine.counters import Counters
from workers.engine.errors import EngineError
from workers.engine.explanation_types import PairExplanation
from workers.engine.explanations import cut_text
from workers.engine.model_types import ModelInfo
from workers.engine.sequence import Work
from workers.engine.types import ItemStatus, LabelScores, Pairing, ScoringOutput, ScoringRequest, Timings, Truncation


@dataclass(frozen=True, slots=True)
class PairFacts:
    """Per pair what its two texts brought along; arrays of P."""

    empty: npt.NDArray[np.bool_]
    truncated: npt.NDArray[np.int32]  # of the document
    query_truncated: npt.NDArray[np.int32]


def is_blank(text: str) -> bool:
    return not text.strip()


def pair_indices(request: ScoringRequest) -> tuple[npt.NDArray[np.intp], npt.NDArray[np.intp]]:
    """For each pair its query and its document, both ``[P]``."""
    queries, documents = request.query_count, request.document_count
    if request.pairing is Pairing.MATRIX:
        return np.repeat(np.arange(queries), documents), np.tile(np.arange(documents), queries)
    if queries != documents:
        raise EngineError(
            "unequal_lengths",
            f"Pairwise scoring was given {queries} queries and {documents} documents. Give as many of one as of "
            "the other, or ask for the matrix.",
        )
    return np.arange(queries), np.arange(queries)


def refuse_too_long(truncation: Truncation, side: str, cut: dict[int, int]) -> None:
    """Raise if the request forbids truncation and some texts (index: tokens over the limit) need it."""
    if truncation is Truncation.ERROR and cut:
        named = ", ".join(f"{side}[{index}] by {tokens}" for index, tokens in sorted(cut.items())[:8])
        raise EngineError(
            "too_long",
            f"Texts exceed the token limit and truncation is 'error': {named}{' …' if len(cut) > 8 else ''}. "
            "Shorten them, or let the model cut the document.",
        )


def assemble_output(
    work: Work,
    info: ModelInfo,
    counters: Counters,
    *,
    scores: npt.NDArray[np.float32],
    raw_scores: npt.NDArray[np.float32],
    facts: PairFacts,
    errors: dict[int, str],
    query_truncated: npt.NDArray[np.int32],
    prompt_tokens: int,
    query_tokens: int = 0,
    labels: LabelScores | None = None,
    cached_documents: int = 0,
    fallback: str | None = None,
) -> ScoringOutput:
    """Pairs whose score is not finite fail by themselves; ``errors`` names those that failed for another reason."""
    unscored = ~(np.isfinite(scores) & np.isfinite(raw_scores))
    errors = {int(pair): "non_finite_score" for pair in np.flatnonzero(unscored & ~facts.empty)} | errors
    counters.add(non_finite=sum(code == "non_finite_score" for code in errors.values()))
    status = np.where((facts.truncated > 0) | (facts.query_truncated > 0), ItemStatus.TRUNCATED, ItemStatus.OK).astype(
        np.uint8
    )
    status[facts.empty] = ItemStatus.EMPTY
    status[list(errors)] = ItemStatus.FAILED
    hidden = unscored | facts.empty | (status == ItemStatus.FAILED)
    device = info.device.split(":")[0]
    return ScoringOutput(
        scores=np.where(hidden, np.float32(np.nan), scores),
        raw_scores=np.where(hidden, np.float32(np.nan), raw_scores),
        status=status,
        truncated_tokens=facts.truncated,
        query_truncated_tokens=query_truncated,
        errors=errors,
        labels=labels,
        scale=info.scale,
        prompt_tokens=prompt_tokens,
        query_tokens=query_tokens,
        cached_documents=cached_documents,
        timings=timings_of(work),
        backend="cuda+cpu-maxsim" if device == "cuda" and _maxsim_on_cpu(info, fallback) else device,
        fallback=fallback,
        dtype=info.dtype,
        revision=info.revision,
        explanations=_explanations(work, facts) if work.scoring.explain else None,
    )


def _explanations(work: Work, facts: PairFacts) -> tuple[PairExplanation, ...]:
    request, tokenizer = work.scoring, work.task.tokenizer
    return tuple(
        replace(
            work.task.explain(work, pair),
            cut_query=cut_text(tokenizer, request.queries, query, int(facts.query_truncated[pair])),
            cut_document=cut_text(tokenizer, request.documents, document, int(facts.truncated[pair])),
        )
        for pair, (query, document) in enumerate(zip(*pair_indices(request), strict=True))
    )


def _maxsim_on_cpu(info: ModelInfo, fallback: str | None) -> bool:
    return info.maxsim_backend is not None and (fallback is not None or info.maxsim_backend == "cpu")


def timings_of(work: Work) -> Timings:
    now = time.monotonic()
    return Timings(
        queue=1000 * max(0.0, (work.started or work.prepared) - work.prepared),
        tokenise=1000 * work.tokenise_seconds,
        forward=1000 * work.forward_seconds,
        maxsim=1000 * work.maxsim_seconds,
        total=1000 * (now - work.submitted),
    )

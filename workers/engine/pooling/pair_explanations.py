"""Why a pair has its score, for models that read one text at a time: parts, matching terms, token by token.

Shapes as in ``explanation_types``; E dimensions."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from torch import Tensor

from workers.engine.caches.compression import token_vectors
from workers.engine.explanation_types import PairExplanation, ScorePart, SharedTerm, TokenMatches, TokenRow
from workers.engine.explanations import token_row, uses_of
from workers.engine.forward.steady_rows import products
from workers.engine.outputs import pair_indices
from workers.engine.pooling.encoding import Encoding, Part
from workers.engine.pooling.late_interaction import LateInteractionRunner
from workers.engine.pooling.pair_scores import part_scores
from workers.engine.role import Role
from workers.engine.sequence import EmbeddingResults, Sequence, Work
from workers.engine.texts.tokenizer import TextTokenizer


def explain_encodings(
    work: Work, pair: int, weights: Mapping[Part, float], late_interaction: LateInteractionRunner | None
) -> PairExplanation:
    """Of one pair of a request whose sequences were kept for it."""
    results: EmbeddingResults = work.results
    info, tokenizer = work.task.info, work.task.tokenizer
    queries, documents = pair_indices(work.scoring)
    query, document = int(results.query_of[queries[pair]]), int(results.document_of[documents[pair]])
    read = [results.explained.get(place) for place in ((Role.QUERY, query), (Role.DOCUMENT, document))]
    rows = tuple(_row(tokenizer, sequence) for sequence in read if sequence is not None)
    first, second = read
    if first is None or second is None or first.encoding is None or second.encoding is None:
        return PairExplanation(rows)
    scores = part_scores(results, weights, work.scoring.options, info.scale)
    place = (query, document) if results.pairs is None else pair
    parts = tuple(ScorePart(part.value, weight, float(scores[part][place])) for part, weight in weights.items())
    return PairExplanation(
        rows,
        parts,
        matches=_matches(first, second, late_interaction) if late_interaction is not None else None,
        terms=_terms(first.encoding, second.encoding, tokenizer) if Part.SPARSE in weights else None,
    )


def _row(tokenizer: TextTokenizer, sequence: Sequence) -> TokenRow:
    assert sequence.read is not None
    uses = uses_of(sequence.read, len(tokenizer.suffix_ids), sequence.kept)
    return token_row(tokenizer, sequence.role, sequence.token_ids, uses)


def _matches(query: Sequence, document: Sequence, late_interaction: LateInteractionRunner) -> TokenMatches:
    assert query.encoding is not None and document.encoding is not None
    ours, theirs = token_vectors(query.encoding), token_vectors(document.encoding)
    best, share = late_interaction.matches(ours, theirs)
    similarities = _similarities(ours, theirs)
    counted = similarities[np.arange(len(best)), best] * np.float32(share)
    return TokenMatches(
        similarities,
        tuple(query.kept if query.kept is not None else range(len(query.token_ids))),
        tuple(document.kept if document.kept is not None else range(len(document.token_ids))),
        tuple(int(place) for place in best),
        tuple(float(value) for value in counted),
    )


def _similarities(queries: Tensor, documents: Tensor) -> np.ndarray[tuple[int, int], np.dtype[np.float32]]:
    """``[m, E]`` and ``[d, E]`` to float32 ``[m, d]``."""
    return products(queries.float(), documents.float()).cpu().numpy()


def _terms(query: Encoding, document: Encoding, tokenizer: TextTokenizer) -> tuple[SharedTerm, ...]:
    assert query.sparse is not None and document.sparse is not None
    query_ids, document_ids = (vector.token_ids.cpu().numpy() for vector in (query.sparse, document.sparse))
    ours, theirs = (vector.weights.double().cpu().numpy() for vector in (query.sparse, document.sparse))
    shared, first, second = np.intersect1d(query_ids, document_ids, assume_unique=True, return_indices=True)
    terms = [
        SharedTerm(token_id, tokenizer.text_of(token_id).strip() or tokenizer.name_of(token_id), q, d, q * d)
        for token_id, q, d in zip(shared.tolist(), ours[first].tolist(), theirs[second].tolist(), strict=True)
    ]
    return tuple(sorted(terms, key=lambda term: -term.product))

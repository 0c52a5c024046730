"""From the encodings of queries and documents to scores: one comparison per part, summed by the recipe's weights.

Shapes: q distinct queries, d distinct documents, P pairs, E dimensions. Scores are ``[q, d]``, or ``[P]`` where the
request was pairwise."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np
import numpy.typing as npt

from workers.engine.encoding import Encoding, Part
from workers.engine.errors import EngineError
from workers.engine.role import Role
from workers.engine.sequence import EmbeddingResults
from workers.engine.types import ScoringOptions

Scores = npt.NDArray[np.float32]


def fused_scores(results: EmbeddingResults, weights: Mapping[Part, float], options: ScoringOptions) -> Scores:
    """One part alone is not multiplied: its scores are its own, to the bit."""
    if len(weights) == 1:
        return _COMPARISONS[next(iter(weights))](results, options)
    parts = [np.float32(weight) * _COMPARISONS[part](results, options) for part, weight in weights.items() if weight]
    total: Scores = np.sum(parts, axis=0, dtype=np.float32)
    return total


def cosines(results: EmbeddingResults, options: ScoringOptions) -> Scores:
    queries, documents = (_unit_rows(results, role, options.dimensions) for role in (Role.QUERY, Role.DOCUMENT))
    if results.pairs is None:
        return queries @ documents.T
    return np.einsum("pe,pe->p", queries[results.query_of], documents[results.document_of])


def _maxsim(results: EmbeddingResults, options: ScoringOptions) -> Scores:
    return results.maxsim


_COMPARISONS: dict[Part, Callable[[EmbeddingResults, ScoringOptions], Scores]] = {
    Part.DENSE: cosines,
    Part.TOKENS: _maxsim,
}


def _unit_rows(results: EmbeddingResults, role: Role, dimensions: int | None) -> Scores:
    """The dense vectors of one side, shortened, then normalised; NaN where a text has none."""
    own: dict[int, Encoding] = {index: e for (owner, index), e in results.encodings.items() if owner is role}
    places = results.query_of if role is Role.QUERY else results.document_of
    width = len(next(e.dense for e in results.encodings.values() if e.dense is not None))
    if dimensions is not None and not 1 <= dimensions <= width:
        raise EngineError(
            "bad_dimensions", f"The vectors have {width} dimensions, {dimensions} were asked for. Give 1 to {width}."
        )
    rows = np.full((1 + places.max(), dimensions or width), np.nan, dtype=np.float32)
    for index, encoding in own.items():
        if encoding.dense is not None:
            rows[index] = encoding.dense[:dimensions].float().cpu().numpy()
    norms = np.maximum(np.linalg.norm(rows, axis=1, keepdims=True), np.float32(1e-12))
    unit: Scores = rows / norms
    return unit

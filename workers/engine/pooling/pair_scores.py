"""From the encodings of queries and documents to scores: one comparison per part, summed by the recipe's weights.

Shapes: q distinct queries, d distinct documents, P pairs, E dimensions. Scores are ``[q, d]``, or ``[P]`` where the
request was pairwise."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np
import numpy.typing as npt
import torch

from workers.engine.counters import Counters
from workers.engine.errors import EngineError
from workers.engine.forward.steady_rows import products
from workers.engine.model_types import ModelInfo, Scale
from workers.engine.outputs import PairFacts, assemble_output, pair_indices
from workers.engine.pooling.encoding import Encoding, Part
from workers.engine.pooling.packed_documents import PackedDocuments
from workers.engine.role import Role
from workers.engine.sequence import EmbeddingResults, Work
from workers.engine.types import ScoringOptions, ScoringOutput

Scores = npt.NDArray[np.float32]


def assemble_scores(work: Work, weights: Mapping[Part, float], info: ModelInfo, counters: Counters) -> ScoringOutput:
    request, results = work.scoring, work.results
    assert isinstance(results, EmbeddingResults)
    pair_queries, pair_documents = pair_indices(request)
    queries, documents = results.query_of[pair_queries], results.document_of[pair_documents]
    empty = (queries < 0) | (documents < 0)
    scores = np.full(len(queries), np.nan, dtype=np.float32)
    if not empty.all():
        distinct = fused_scores(results, weights, request.options, info.scale)
        scores[~empty] = distinct[queries[~empty], documents[~empty]] if results.pairs is None else distinct[~empty]
    cut_queries, cut_documents = results.cut(Role.QUERY), results.cut(Role.DOCUMENT)
    return assemble_output(
        work,
        info,
        counters,
        scores=scores,
        raw_scores=scores,
        facts=PairFacts(empty, cut_documents[pair_documents], cut_queries[pair_queries]),
        errors=results.pair_errors(documents, empty),
        query_truncated=cut_queries,
        prompt_tokens=results.tokens,
        query_tokens=results.query_tokens,
        cached_documents=results.cached_documents,
        fallback=results.fallback,
    )


def fused_scores(
    results: EmbeddingResults, weights: Mapping[Part, float], options: ScoringOptions, scale: Scale | None = None
) -> Scores:
    """One part alone is not multiplied: its scores are its own, to the bit."""
    scores = part_scores(results, weights, options, scale)
    if len(scores) == 1:
        return next(iter(scores.values()))
    weighted = [np.float32(weights[part]) * own for part, own in scores.items()]
    total: Scores = np.sum(weighted, axis=0, dtype=np.float32)
    return total


def part_scores(
    results: EmbeddingResults, weights: Mapping[Part, float], options: ScoringOptions, scale: Scale | None = None
) -> dict[Part, Scores]:
    """Of the parts that count."""
    comparisons = {**_COMPARISONS, Part.DENSE: dot_products} if scale is Scale.DOT else _COMPARISONS
    return {part: comparisons[part](results, options) for part, weight in weights.items() if weight}


def cosines(results: EmbeddingResults, options: ScoringOptions) -> Scores:
    return _products(
        results, *(_unit(_rows(results, role, options.dimensions)) for role in (Role.QUERY, Role.DOCUMENT))
    )


def dot_products(results: EmbeddingResults, options: ScoringOptions) -> Scores:
    return _products(results, *(_rows(results, role, options.dimensions) for role in (Role.QUERY, Role.DOCUMENT)))


def _products(results: EmbeddingResults, queries: Scores, documents: Scores) -> Scores:
    """A pair's product is the same to the bit in a matrix, in a list of pairs and alone."""
    if results.pairs is None:
        return products(torch.from_numpy(queries), torch.from_numpy(documents)).numpy()
    scores = np.full(len(results.query_of), np.nan, dtype=np.float32)
    order = np.argsort(results.query_of, kind="stable")
    borders = np.flatnonzero(np.diff(results.query_of[order])) + 1
    for own in np.split(order, borders):  # a query's pairs
        query = queries[results.query_of[own[0]]]
        partners = documents[results.document_of[own]]
        scores[own] = products(torch.from_numpy(partners), torch.from_numpy(query[None]))[:, 0].numpy()
    return scores


def sparse_products(results: EmbeddingResults, options: ScoringOptions) -> Scores:
    """Dot products of sparse vectors, summed in float64: a pair's score does not depend on its company."""
    queries, documents = (_sparse_vectors(results, role) for role in (Role.QUERY, Role.DOCUMENT))
    if results.pairs is not None:
        pairs = zip(results.query_of, results.document_of, strict=True)
        each = [_product(queries.get(int(q)), documents.get(int(d))) for q, d in pairs]
        return np.array(each, dtype=np.float32)
    scores = np.full((1 + results.query_of.max(), 1 + results.document_of.max()), np.nan, dtype=np.float32)
    places = sorted(documents)
    owner = np.repeat(np.arange(len(places)), [len(documents[place][0]) for place in places])
    token_ids = np.concatenate([documents[place][0] for place in places])
    weights = np.concatenate([documents[place][1] for place in places])
    highest = max(int(ids.max(initial=0)) for ids in (token_ids, *(ids for ids, _ in queries.values())))
    for query, (ids, own) in queries.items():
        by_token = np.zeros(1 + highest)  # [V]
        by_token[ids] = own
        products = np.bincount(owner, weights=by_token[token_ids] * weights, minlength=len(places))
        scores[query, places] = products if np.isfinite(own).all() else np.nan
    return scores


def _maxsim(results: EmbeddingResults, options: ScoringOptions) -> Scores:
    return results.maxsim


_COMPARISONS: dict[Part, Callable[[EmbeddingResults, ScoringOptions], Scores]] = {
    Part.DENSE: cosines,
    Part.TOKENS: _maxsim,
    Part.SPARSE: sparse_products,
}


_SparseArrays = tuple[npt.NDArray[np.int64], npt.NDArray[np.float64]]


def _sparse_vectors(results: EmbeddingResults, role: Role) -> dict[int, _SparseArrays]:
    return {
        index: (encoding.sparse.token_ids.cpu().numpy(), encoding.sparse.weights.double().cpu().numpy())
        for index, encoding in _encodings(results, role).items()
        if encoding.sparse is not None
    }


def _encodings(results: EmbeddingResults, role: Role) -> dict[int, Encoding]:
    """Of one side, by place among the distinct texts."""
    packed = results.packed if role is Role.DOCUMENT else None
    if packed is None:
        return {index: encoding for (owner, index), encoding in results.encodings.items() if owner is role}
    alone = packed.alone(np.arange(len(packed.tokens))) if isinstance(packed, PackedDocuments) else packed
    return dict(enumerate(alone))


def _product(query: _SparseArrays | None, document: _SparseArrays | None) -> float:
    if query is None or document is None or not (np.isfinite(query[1]).all() and np.isfinite(document[1]).all()):
        return float("nan")
    _, ours, theirs = np.intersect1d(query[0], document[0], assume_unique=True, return_indices=True)
    shared = query[1][ours] * document[1][theirs]
    return float(np.cumsum(shared)[-1]) if len(shared) else 0.0  # one by one, as in a matrix


def _rows(results: EmbeddingResults, role: Role, dimensions: int | None) -> Scores:
    """The dense vectors of one side, shortened; NaN where a text has none."""
    width = len(next(e.dense for e in results.encodings.values() if e.dense is not None))
    if dimensions is not None and not 1 <= dimensions <= width:
        raise EngineError(
            "bad_dimensions", f"The vectors have {width} dimensions, {dimensions} were asked for. Give 1 to {width}."
        )
    if role is Role.DOCUMENT and isinstance(results.packed, PackedDocuments):
        assert results.packed.encoding.dense is not None
        return results.packed.encoding.dense[:, :dimensions].float().cpu().numpy()
    places = results.query_of if role is Role.QUERY else results.document_of
    rows = np.full((1 + places.max(), dimensions or width), np.nan, dtype=np.float32)
    for index, encoding in _encodings(results, role).items():
        if encoding.dense is not None:
            rows[index] = encoding.dense[:dimensions].float().cpu().numpy()
    return rows


def _unit(rows: Scores) -> Scores:
    unit: Scores = rows / np.maximum(np.linalg.norm(rows, axis=1, keepdims=True), np.float32(1e-12))
    return unit

"""Duplicates are computed once: a request's texts by distinct content.

Shapes: Q queries, D documents, P pairs as in ``types``."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from workers.engine.outputs import is_blank
from workers.engine.types import Pairing, ScoringRequest


@dataclass(frozen=True, slots=True)
class DistinctTexts:
    queries: list[str]  # in order of appearance, blank ones left out
    documents: list[str]
    query_of: npt.NDArray[np.intp]  # [Q] each submitted text's place among them; -1: blank
    document_of: npt.NDArray[np.intp]  # [D]
    pairs: dict[int, list[tuple[int, int]]] | None  # pairwise: a document's (pair, query); None for a matrix


def distinct_texts(request: ScoringRequest) -> DistinctTexts:
    query_of, queries = _distinct(request.queries)
    document_of, documents = _distinct(request.documents)
    pairs = None if request.pairing is Pairing.MATRIX else _pairs_by_document(query_of, document_of)
    return DistinctTexts(queries, documents, _places(query_of), _places(document_of), pairs)


def _distinct(texts: tuple[str, ...]) -> tuple[list[int | None], list[str]]:
    places: dict[str, int] = {}
    of = [None if is_blank(text) else places.setdefault(text, len(places)) for text in texts]
    return of, list(places)


def _places(of: list[int | None]) -> npt.NDArray[np.intp]:
    return np.array([-1 if place is None else place for place in of], dtype=np.intp)


def _pairs_by_document(query_of: list[int | None], document_of: list[int | None]) -> dict[int, list[tuple[int, int]]]:
    pairs: dict[int, list[tuple[int, int]]] = {}
    for pair, (query, document) in enumerate(zip(query_of, document_of, strict=True)):
        if document is not None:
            pairs.setdefault(document, [])
            if query is not None:
                pairs[document].append((pair, query))
    return pairs

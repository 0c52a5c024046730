"""Why pairs have their scores, from the engine's words to the reply's."""

from __future__ import annotations

import math
from collections.abc import Iterable

from scoring.payloads import SyncExplanation, SyncMatches, SyncPart, SyncTerm, SyncTokenRow
from workers.engine.errors import EngineError
from workers.engine.explanation_types import PairExplanation, TokenMatches
from workers.sync_texts import MOST_BYTES, packed


def told_explanations(explanations: Iterable[PairExplanation]) -> list[SyncExplanation]:
    """Raises EngineError for more than MOST_BYTES of similarities."""
    told = list(explanations)
    size = sum(each.matches.similarities.nbytes for each in told if each.matches)
    if size > MOST_BYTES:
        raise EngineError(
            "answer_too_large",
            f"The similarities of all tokens would be {size / 2**20:,.0f} MiB; the limit is {MOST_BYTES >> 20} MiB. "
            "Explain fewer or shorter texts at once.",
        )
    return [_told(each) for each in told]


def _told(why: PairExplanation) -> SyncExplanation:
    return SyncExplanation(
        rows=[
            SyncTokenRow(
                role=row.role,
                token_ids=list(row.token_ids),
                texts=list(row.texts),
                uses=[use.value for use in row.uses],
            )
            for row in why.rows
        ],
        parts=[SyncPart(name=part.name, weight=part.weight, score=_finite(part.score)) for part in why.parts],
        matches=_matches(why.matches) if why.matches else None,
        terms=[
            SyncTerm(
                token_id=term.token_id,
                text=term.text,
                query_weight=term.query_weight,
                document_weight=term.document_weight,
                product=term.product,
            )
            for term in why.terms or ()
        ],
        cut_query=why.cut_query,
        cut_document=why.cut_document,
    )


def _matches(matches: TokenMatches) -> SyncMatches:
    return SyncMatches(
        similarities=packed(matches.similarities),
        query_places=list(matches.query_places),
        document_places=list(matches.document_places),
        best=list(matches.best),
        contributions=[_finite(value) for value in matches.contributions],
    )


def _finite(value: float) -> float | None:
    return value if math.isfinite(value) else None

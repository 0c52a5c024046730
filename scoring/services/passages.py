"""Which part of a document answers a query best, by a model: its passages scored as documents of their own."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final

from assay.api.principal import Principal
from assay.callers import Caller
from assay.errors import AssayError
from scoring.models import ScoringModel
from scoring.services.scoring import scoring_run

MOST_PASSAGES: Final = 50
SHORTEST: Final = 160  # characters; a passage is as many whole sentences as that needs
SENTENCE: Final = re.compile(r"[^.!?\n]*(?:[.!?]+|\n+|$)\s*")


@dataclass(frozen=True, slots=True)
class Passage:
    """``text`` is before + best + after; ``of`` passages were scored."""

    before: str
    best: str
    after: str
    score: float
    of: int


def passages_of(text: str) -> list[tuple[int, int]]:
    """[start, stop) in characters: without gaps, at most MOST_PASSAGES, each ending with a sentence where it can."""
    shortest = max(SHORTEST, -(-len(text) // MOST_PASSAGES))
    places: list[tuple[int, int]] = []
    start = 0
    for sentence in SENTENCE.finditer(text):
        if sentence.end() - start >= shortest:
            places.append((start, sentence.end()))
            start = sentence.end()
    if start < len(text):
        places.append((start, len(text)))
    return places


def passage_find(
    *, principal: Principal, model: ScoringModel, query: str, text: str, endpoint: str, caller: Caller
) -> Passage:
    """Raises AssayError 422 ``no_passage`` when no part of ``text`` gets a score, and as ``scoring_run``."""
    places = passages_of(text)
    scored = (
        scoring_run(
            principal=principal,
            endpoint=endpoint,
            model=model,
            queries=[query],
            documents=[text[start:stop] for start, stop in places],
            caller=caller,
        ).ranked()
        if places
        else []
    )
    if not scored or scored[0].score is None:
        raise AssayError(
            "no_passage", "No part of this document got a score; its text is empty, or failed.", status=422
        )
    start, stop = places[scored[0].index]
    return Passage(text[:start], text[start:stop], text[stop:], scored[0].score, len(places))

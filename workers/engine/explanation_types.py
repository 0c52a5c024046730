"""Why a pair has its score, at the border: the tokens that the model read and what they gave.

Shapes: n tokens of a row; of a late-interaction pair m query tokens and d document tokens that are compared."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

import numpy as np
import numpy.typing as npt


class TokenUse(StrEnum):
    """What a token of a row is."""

    TEXT = "text"
    PREFIX = "prefix"  # of a prompt that the model puts before a text
    SPECIAL = "special"  # a control token or a marker
    EXPANSION = "expansion"  # what a query is filled up with
    SKIPPED = "skipped"  # read, but not compared


@dataclass(frozen=True, slots=True)
class TokenRow:
    """What the model read in one go. ``texts`` concatenated are the text as it read it: a sub-word has no blank before
    it, and a token that ends no character has no text."""

    role: str  # query | document | prompt, where both are in it
    token_ids: tuple[int, ...]  # n
    texts: tuple[str, ...]  # n
    uses: tuple[TokenUse, ...]  # n


@dataclass(frozen=True, slots=True)
class TokenMatches:
    """MaxSim token by token. The contributions sum to the score of the part."""

    similarities: npt.NDArray[np.float32]  # [m, d]
    query_places: tuple[int, ...]  # m, in the query's row
    document_places: tuple[int, ...]  # d, in the document's row
    best: tuple[int, ...]  # m, each one's counted document token, among the d; the first of equals
    contributions: tuple[float, ...]  # m


@dataclass(frozen=True, slots=True)
class SharedTerm:
    """An entry of the vocabulary to which query and document both give a weight."""

    token_id: int
    text: str
    query_weight: float
    document_weight: float
    product: float


@dataclass(frozen=True, slots=True)
class ScorePart:
    """The raw score is the sum of weight times score; of one part alone it is that part's score."""

    name: str  # dense | tokens | sparse
    weight: float
    score: float


@dataclass(frozen=True, slots=True)
class PairExplanation:
    """What does not apply to the kind of model is empty."""

    rows: tuple[TokenRow, ...]
    parts: tuple[ScorePart, ...] = ()
    matches: TokenMatches | None = None
    terms: tuple[SharedTerm, ...] | None = None  # the largest product first
    cut_query: str = ""  # the ends of the texts that there was no room for
    cut_document: str = ""

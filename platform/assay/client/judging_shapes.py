"""The shapes of what comes back of judging and of cut-offs; the others are in ``shapes``."""

from __future__ import annotations

from typing import Any, NotRequired, TypedDict


class Pool(TypedDict):
    """``progress`` and ``publication`` only where one pool was asked for."""

    id: str
    name: str
    state: str
    query_set: str
    document_set: str
    base: str | None
    scale: list[str]
    relevant_from: int
    guidelines: str
    quorum: int
    rule: str
    pair_count: int
    created_at: str
    progress: NotRequired[dict[str, Any]]
    publication: NotRequired[dict[str, int]]


class ClaimedPair(TypedDict):
    pair: int
    query_id: str
    document_id: str
    query: str
    narrative: str
    title: str
    text: str


class TwoJudges(TypedDict):
    """``second`` is None where it is all people; ``kappa`` is None where ``sentence`` says why."""

    first: str
    second: str | None
    n: int
    raw: float | None
    kappa: float | None
    table: list[list[int]]
    sentence: str


class Agreement(TypedDict):
    """``people`` holds ``alpha``, ``raw``, ``doubly_judged``, ``distribution`` and ``sentence``."""

    people: dict[str, Any]
    two: list[TwoJudges]
    models: list[TwoJudges]
    conflicts: int
    serious: int


class ModelJudging(TypedDict):
    """``stored_at`` is None until its job has ended."""

    judge: str
    model: str
    revision: str
    prompt: str
    cut_offs: list[float]
    job: str | None
    verdicts: int
    stored_at: str | None


class Estimate(TypedDict):
    """``low`` and ``high`` of the 95 % interval."""

    value: float
    low: float
    high: float


class CutOff(TypedDict):
    score: float
    above: int
    found: int
    precision: Estimate | None
    recall: Estimate
    f1: Estimate


class Thresholds(TypedDict):
    """``remarks`` say what to know before believing it."""

    model: str
    scale: str
    relevant_from: int
    per_query_token: bool
    queries: int
    pairs: int
    relevant: int
    base_rate: float
    scored_pairs: int
    cut_offs: list[CutOff]
    best: CutOff
    remarks: list[str]


class Advice(TypedDict):
    """``outdated`` names what of the model is not as it was when the evidence was measured."""

    id: str
    model: str
    score: float
    per_query_token: bool
    note: str
    outdated: list[str]
    job: str | None
    judgement_set: str | None
    evidence: dict[str, Any]
    created_by: str | None
    created_at: str

"""The shapes of what comes back. The dictionaries are the server's own: fields that are not named here stay in them."""

from __future__ import annotations

from typing import Any, NotRequired, TypedDict

Document = str | dict[str, Any]
Stage = dict[str, Any]

FINAL_STATES = ("completed", "completed_with_errors", "cancelled", "expired", "failed")


class Usage(TypedDict):
    prompt_tokens: int
    total_tokens: int


class Answer(TypedDict):
    """``assay`` tells scale, backend, dtype and revision of the model that scored."""

    id: str
    model: str
    created: int
    usage: Usage
    assay: dict[str, Any]


class Ranked(TypedDict):
    index: int
    relevance_score: float | None
    raw_score: float | None
    status: str
    document: NotRequired[dict[str, Any]]
    id: NotRequired[str | int]
    truncated_tokens: NotRequired[int]


class RerankAnswer(Answer):
    results: list[Ranked]


class SetRanked(TypedDict):
    index: int
    id: str
    score: float | None
    raw_score: float | None
    status: str
    document: NotRequired[dict[str, Any]]
    truncated_tokens: NotRequired[int]


class RankAnswer(Answer):
    """``document_set`` holds its id and version."""

    document_set: dict[str, str]
    results: list[SetRanked]


class Scored(TypedDict):
    index: int
    score: float | None
    raw_score: float | None
    status: str
    id: NotRequired[str | int]
    query_index: NotRequired[int]
    document_index: NotRequired[int]
    labels: NotRequired[list[dict[str, Any]]]


class ScoreAnswer(Answer):
    data: list[Scored]


class Embedding(TypedDict):
    index: int
    embedding: list[float]


class EmbedAnswer(TypedDict):
    model: str
    data: list[Embedding]
    usage: Usage


class ModelCard(TypedDict):
    """A model that answers requests; ``id`` is the name to give as ``model``."""

    id: str
    kind: str
    scale: str | None
    max_model_len: int | None
    dtype: str
    device: str
    revision: str
    is_default: bool
    state: str
    limits: dict[str, int]
    threshold_advice: dict[str, Any] | None


class Model(TypedDict):
    id: str
    name: str
    kind: str
    source: str
    device: str
    dtype: str
    state: str
    is_default: bool
    pinned: bool
    revision: str
    self_test_report: dict[str, Any] | None
    facts: dict[str, Any]
    placements: list[dict[str, Any]]
    threshold_advice: dict[str, Any] | None


class Counts(TypedDict):
    read: int
    kept: int
    bad: int
    duplicate: int
    empty: int


class UploadedSet(TypedDict):
    id: str
    name: str
    state: str
    file_name: str
    file_format: str
    checksum: str
    counts: Counts
    created_at: str
    mapping: NotRequired[dict[str, Any]]
    problems: NotRequired[list[dict[str, Any]]]


class Progress(TypedDict):
    """``rate`` in pairs per second; ``waiting`` and ``reason`` are empty while the job gets on."""

    pairs_done: int
    pairs_total: int
    percent: float
    rate: float | None
    eta_seconds: float | None
    workers: list[str]
    waiting: str
    reason: str


class Named(TypedDict):
    id: str
    name: str


class Job(TypedDict):
    id: str
    name: str
    state: str
    failure: str
    end_reason: str
    attempt: int
    model: str | None
    stages: list[dict[str, Any]]
    document_set: Named
    query_set: Named
    priority: int
    query_count: int
    document_count: int
    pair_count: int
    statistics: dict[str, Any]
    created_at: str
    started_at: str | None
    finished_at: str | None
    progress: NotRequired[Progress]


class RankedDocument(TypedDict):
    rank: int
    previous_rank: int | None
    index: int
    document_id: str
    score: float | None
    raw_score: float | None
    status: str
    title: NotRequired[str]
    text: NotRequired[str]


class QueryResult(TypedDict):
    query_id: str
    query: str
    kept: int
    scored: int
    documents: list[RankedDocument]


class Event(TypedDict):
    id: int
    at: str
    entity: str
    what: str
    from_state: str
    to_state: str
    actor: str
    worker: str | None
    reason: str
    error: str


class Evaluation(TypedDict):
    """None where a measure is not defined, as Judged of an empty list is not."""

    measures: list[str]
    means: dict[str, float | None]
    per_query: dict[str, dict[str, float | None]]
    evaluated: int
    queries: int
    complete: bool


class Comparison(TypedDict):
    """``measures`` by stage, then by measure, are empty without judgements; the baseline is the first stage."""

    id: str
    name: str
    pinned: bool
    notes: str
    judgement_set: str | None
    primary_measure: str
    test: str
    correction: str
    stages: list[dict[str, Any]]
    created_at: str
    newer_judgement_set: str | None
    judgements_deleted: bool
    n: int | None
    queries: int
    remarks: list[dict[str, str]]
    similarities: list[dict[str, Any]]
    measures: list[list[dict[str, Any]]]
    versions: dict[str, str]


class SavedEvaluation(TypedDict):
    """``measures`` hold ``measure``, ``mean``, ``judged``, ``worst``, ``best``, ``tie_sensitive``; ``n`` queries are in
    the means. The last three only where one evaluation was asked for."""

    id: str
    job: str
    job_name: str
    stage: int
    name: str
    query_set: str
    judgement_set: str | None
    measures: list[dict[str, Any]]
    only_relevant: bool
    n: int
    queries: int
    unjudged: int
    without_results: int
    without_relevant: int
    incomplete: bool
    judged_by_itself: bool
    created_at: str
    stale: NotRequired[dict[str, Any] | None]
    pinned: NotRequired[dict[str, Any]]
    lists: NotRequired[dict[str, list[str]]]


class QueryValues(TypedDict):
    query_id: str
    values: dict[str, float | None]
    judged: dict[str, float | None]
    relevant: int | None
    kept: int | None


class Leaderboard(TypedDict):
    measure: str
    n: int
    baseline: str | None
    test: str
    correction: str
    rows: list[dict[str, Any]]


class Worker(TypedDict):
    id: str
    name: str
    host: str
    device: str
    state: str
    hold: str
    hold_reason: str
    heartbeat_at: str
    memory_bytes: int
    in_hand: list[str]
    placements: list[dict[str, Any]]


class StoredRequest(TypedDict):
    id: str
    endpoint: str
    model: str
    status_code: int
    error_code: str
    query_count: int
    document_count: int
    timings: dict[str, float]
    created_at: str


class Export(TypedDict):
    id: str
    table: str
    format: str
    parameters: dict[str, Any]
    state: str
    rows_total: int
    rows_done: int
    file_name: str
    size: int
    error: str
    created_at: str
    finished_at: str | None
    expires_at: str


class Encoding(TypedDict):
    id: str
    document_set: str
    model: str
    worker: str | None
    state: str
    documents_total: int
    documents_done: int
    tokens: int
    size: int
    on_disk: bool
    lost: bool
    outdated: bool
    error: str
    created_at: str
    finished_at: str | None

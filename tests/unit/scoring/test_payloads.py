"""Web and workers of neighbouring releases understand each other; beyond that they say so."""

from __future__ import annotations

import json
from dataclasses import fields, replace
from typing import Any

import pytest

from assay.errors import AssayError
from scoring.dispatch import reply_read
from scoring.payloads import (
    PAYLOAD_VERSION,
    PayloadError,
    SyncExplanation,
    SyncLabels,
    SyncMatches,
    SyncOptions,
    SyncPart,
    SyncPooledText,
    SyncRanking,
    SyncReply,
    SyncRequest,
    SyncRow,
    SyncTerm,
    SyncTokenRow,
)

CALL = SyncRequest(
    reply_key="assay:reply:1",
    model_id="7",
    model_name="late",
    queries=["q"],
    documents=["a", "b"],
    pairing="matrix",
    deadline=12.5,
    request_id="r-1",
    options=SyncOptions(labels=["yes", "no"], apply_softmax=False),
)
RANKING = replace(
    CALL, documents=[], options=SyncOptions(ranking=SyncRanking(document_set="s", count=2, positions=[3, 8]))
)
REPLY = SyncReply(
    scores=[0.5, None],
    raw_scores=[0.0, None],
    statuses=["ok", "failed"],
    errors={"1": "non_finite_score"},
    truncated_tokens=[0, 0],
    query_truncated_tokens=[0, 0],
    labels=SyncLabels(labels=["yes"], token_ids=[[1]], probabilities=[[1.0], [None]], logprobs=[[0.0], [None]]),
    timings={"total": 3.0},
)

POOLED = SyncReply(
    statuses=["ok", "empty"],
    truncated_tokens=[0, 0],
    pooled=[
        SyncPooledText(vector="AACAPw==", spans=[["calm", 0.5, 0, 4]], rows=[SyncRow(role="query", token_ids=[1, 2])]),
        SyncPooledText(),
    ],
    pooled_labels=["calm"],
)

EXPLAINED = SyncReply(
    explanations=[
        SyncExplanation(
            rows=[SyncTokenRow(role="query", token_ids=[101], texts=["[CLS]"], uses=["special"])],
            parts=[SyncPart(name="tokens", weight=1.0, score=None)],
            matches=SyncMatches(
                similarities="AACAPw==", query_places=[0], document_places=[1], best=[0], contributions=[1.0]
            ),
            terms=[SyncTerm(token_id=7, text="bees", query_weight=2.0, document_weight=0.5, product=1.0)],
            cut_document="the end",
        )
    ],
)


def crossed(payload: SyncRequest | SyncReply, **changes: Any) -> dict[str, Any]:
    data: dict[str, Any] = json.loads(json.dumps({**payload.to_json(), **changes}, allow_nan=False))
    return data


def test_what_is_sent_arrives() -> None:
    assert SyncRequest.from_json(crossed(CALL)) == CALL
    assert SyncRequest.from_json(crossed(RANKING)) == RANKING
    assert SyncReply.from_json(crossed(REPLY)) == REPLY
    assert SyncReply.from_json(crossed(SyncReply())) == SyncReply()
    assert SyncReply.from_json(crossed(POOLED)) == POOLED
    assert SyncReply.from_json(crossed(EXPLAINED)) == EXPLAINED


def test_defaults_are_not_sent_so_a_new_field_troubles_an_older_release_only_where_it_is_used() -> None:
    assert crossed(CALL).keys() == {
        *("reply_key", "model_id", "model_name", "queries", "documents", "pairing", "deadline", "request_id"),
        *("options", "version"),
    }
    assert crossed(CALL)["options"] == {"labels": ["yes", "no"], "apply_softmax": False}


@pytest.mark.parametrize("version", [PAYLOAD_VERSION - 1, PAYLOAD_VERSION + 1])
def test_a_neighbour_s_payload_is_read_with_defaults_and_without_what_is_unknown(version: int) -> None:
    older = crossed(CALL, version=version)
    del older["request_id"], older["options"]
    read = SyncRequest.from_json(older)
    assert (read.documents, read.request_id, read.options) == (["a", "b"], "", SyncOptions())
    assert SyncRequest.from_json(crossed(CALL, version=version, trace="t-1")).queries == ["q"]
    reply = crossed(REPLY, version=version, energy_joules=3)
    reply["labels"]["entropy"] = [0.1, 0.2]
    del reply["timings"]
    assert SyncReply.from_json(reply).labels == REPLY.labels
    assert SyncReply.from_json(reply).timings == {}


@pytest.mark.parametrize("version", [PAYLOAD_VERSION - 2, PAYLOAD_VERSION + 2, None, "3", 3.0])
def test_further_away_is_refused_in_words(version: Any) -> None:
    with pytest.raises(PayloadError, match=r"SyncRequest has version .*same release"):
        SyncRequest.from_json(crossed(CALL, version=version))
    with pytest.raises(PayloadError, match="SyncReply has version"):
        SyncReply.from_json(crossed(REPLY, version=version))


def test_an_option_that_would_change_the_scores_is_never_passed_over() -> None:
    with pytest.raises(PayloadError, match=r"asks for temperature, which this worker's release does not know"):
        SyncRequest.from_json(crossed(CALL, version=PAYLOAD_VERSION + 1, options={"temperature": 0.5}))


def test_a_refusal_is_read_whatever_its_version() -> None:
    refusal = crossed(SyncReply(error_code="unknown_payload", error_message="too old"), version=99)
    assert SyncReply.from_json(refusal).error_message == "too old"


def test_a_missing_field_without_a_default_is_named() -> None:
    half = crossed(CALL)
    del half["documents"], half["pairing"]
    with pytest.raises(PayloadError, match="lacks documents, pairing"):
        SyncRequest.from_json(half)


def test_a_reply_that_cannot_be_read_is_the_operator_s_fault_not_the_client_s() -> None:
    with pytest.raises(AssayError) as refusal:
        reply_read(crossed(REPLY, version=99))
    assert (refusal.value.status, refusal.value.code) == (503, "unknown_payload")


def test_every_option_and_every_part_of_a_reply_has_a_default() -> None:
    """Or the neighbouring release, which does not send it, could not be read."""
    assert SyncOptions() == SyncOptions.from_json({})
    assert SyncReply.from_json({"version": PAYLOAD_VERSION}) == SyncReply()
    assert {each.name for each in fields(SyncRequest)} - crossed(CALL).keys() == {
        "query_ids",
        "document_ids",
        "cache_salt",
        "sent",
        "queue",
    }

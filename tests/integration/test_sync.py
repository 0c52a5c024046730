"""A worker's desk for synchronous requests, in this process: what crosses the border reaches the engine and back."""

from __future__ import annotations

import base64
import json
import uuid
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

from scoring import dispatch
from scoring.models import ScoringModel
from scoring.payloads import PAYLOAD_VERSION, SyncOptions, SyncRanking, SyncReply, SyncRequest
from scoring.services.stage_plan import BM25
from tests.engine.tiny import build
from tests.integration.checkpoints import build_listwise
from tests.integration.conftest import MakeJob
from tests.integration.rig import Rig
from workers.bm25_indexes import Bm25Indexes
from workers.engine.types import PoolingRequest, PoolingTask, TextRole
from workers.set_ranking import SetRanker
from workers.sync import SyncDesk

Ask = Callable[..., SyncReply]
LONG = "honey bees dry honey in the hive. " * 12 + "The river rose after rain."


def desk_of(rig: Rig) -> SyncDesk:
    ranker = SetRanker(host=rig.host, indexes=Bm25Indexes(rig.root / "bm25", limit=1 << 30))
    return SyncDesk(host=rig.host, ranker=ranker, worker_name="worker-1")


@pytest.fixture
def ask(rig: Rig) -> Iterator[Ask]:
    """``ask(model, queries=[…], documents=[…], long_documents="chunk_max")``: the reply as the web reads it."""
    desk = desk_of(rig)
    desk.start()

    def run(
        model: ScoringModel, *, query_ids: Any = (), document_ids: Any = (), salt: str = "", **given: Any
    ) -> SyncReply:
        queries, documents = given.pop("queries", []), given.pop("documents", [])
        call = SyncRequest(
            reply_key=f"assay:reply:{uuid.uuid4().hex}",
            model_id=str(model.pk),
            model_name=model.name,
            queries=queries,
            documents=documents,
            pairing="matrix",
            deadline=dispatch.clock() + 30,
            query_ids=list(query_ids),
            document_ids=list(document_ids),
            cache_salt=salt,
            options=SyncOptions(**given),
        )
        dispatch.callers_stay([call])
        desk.answer(json.loads(json.dumps(call.to_json())))
        assert dispatch.connection().blpop([call.reply_key], timeout=4) is not None  # the acknowledgement
        for _ in range(10):
            if reply := dispatch.connection().blpop([call.reply_key], timeout=2):
                return SyncReply.from_json(json.loads(reply[1]))
        raise AssertionError("no reply came")

    yield run
    desk.drain(5)


@pytest.fixture
def judge(rig: Rig) -> ScoringModel:
    template = "{{ query }}\n{{ item }}\nAnswer:"
    source = str(build("llama", rig.root / "judge"))
    return rig.register("judge", kind="generative", source=source, labels=["yes", "no"], template=template)


def test_windows_come_back_with_the_places_they_are_from(rig: Rig, ask: Ask) -> None:
    model = rig.register("late", max_length=32)
    documents = [LONG, "rain", ""]
    plain = ask(model, queries=["river"], documents=documents)
    assert plain.best_windows is None and plain.statuses == ["truncated", "ok", "empty"]
    reply = ask(model, queries=["river"], documents=documents, long_documents="chunk_max", chunk_overlap=4)
    assert reply.best_windows is not None and reply.statuses == ["ok", "ok", "empty"]
    (start, end), short, empty = reply.best_windows
    assert 0 <= start < end <= len(LONG) and (short, empty) == ([0, 4], [0, 0])
    alone = ask(model, queries=["river"], documents=[LONG[start:end]])
    assert reply.raw_scores[0] == pytest.approx(alone.raw_scores[0], abs=1e-5)
    assert reply.raw_scores[0] is not None and plain.raw_scores[0] is not None
    assert reply.raw_scores[0] >= plain.raw_scores[0] - 1e-5


@pytest.mark.parametrize(
    ("options", "code"),
    [({"long_documents": "chunk_max"}, "unsupported_option"), ({"truncation": "error"}, "too_long")],
)
def test_what_a_listwise_model_cannot_do_is_said(rig: Rig, ask: Ask, options: dict[str, str], code: str) -> None:
    model = rig.register("list", kind="listwise", source=str(build_listwise(rig.root / "list")))
    reply = ask(model, queries=["river"], documents=["word " * 9000], **options)
    assert reply.error_code == code and reply.error_message


def test_token_ids_and_long_labels_reach_the_model(rig: Rig, ask: Ask, judge: ScoringModel) -> None:
    texts = ask(judge, queries=["river"], documents=["rain"], labels=["yes", "no, never"])
    assert texts.labels is not None
    yes, never = texts.labels.token_ids
    assert len(never) > 1
    same = ask(judge, queries=["river"], documents=["rain"], label_token_ids=[yes, never])
    assert same.scores == pytest.approx(texts.scores, abs=1e-6)
    ids = ask(judge, query_ids=[[5, 6, 7]], document_ids=[[8, 9], [10], []], label_token_ids=[yes, never])
    assert ids.statuses == ["ok", "ok", "empty"] and ids.prompt_tokens == 3 + 2 + 3 + 1
    mixed = ask(judge, queries=["river"], document_ids=[[8, 9]], add_special_tokens=False)
    assert mixed.statuses == ["ok"]
    assert ask(judge, query_ids=[[5]], document_ids=[[10**6]]).error_code == "unknown_prompt_token_id"
    late = rig.register("late")
    assert ask(late, queries=["river"], document_ids=[[8, 9]]).error_code == "token_ids_refused"


def test_prompts_are_shared_within_a_team_only(rig: Rig, ask: Ask, judge: ScoringModel) -> None:
    def hits(salt: str) -> int:
        before = rig.engine.statistics().prefix_cache.hits
        assert ask(judge, queries=["river and bridge " * 4], documents=["rain", "honey"], salt=salt).statuses
        return rig.engine.statistics().prefix_cache.hits - before

    hits("team 1")
    again, other = hits("team 1"), hits("team 2")
    assert again > other


def test_single_texts_become_vectors_and_token_ids(rig: Rig, ask: Ask) -> None:
    model = rig.register("late", max_length=32)
    reply = ask(model, documents=["river", " ", LONG], task="token_embed", role="query", return_tokens=True)
    assert reply.statuses == ["ok", "empty", "truncated"] and reply.truncated_tokens[2] > 0
    first, empty, _ = reply.pooled
    request = PoolingRequest("late", ("river",), PoolingTask.TOKEN_EMBED, TextRole.QUERY)
    expected = rig.engine.submit_pooling(request).result().data[0]
    packed = np.frombuffer(base64.b64decode(first.token_vectors), "<f4")
    np.testing.assert_allclose(packed, np.ravel(expected.token_vectors), atol=1e-5)  # type: ignore[arg-type]
    assert first.token_ids == list(expected.token_ids) and len(first.tokens) == len(first.token_ids)
    assert (empty.token_vectors, empty.token_ids) == ("", [])
    pair = ask(model, queries=["river"], documents=["rain [SEP]"], task="tokenize").pooled[0]
    assert [row.role for row in pair.rows] == ["query", "document"]
    assert rig.engine.statistics().reservations == 0
    assert ask(model, documents=["river"], task="embed").error_code == "unsupported_task"
    assert ask(model, document_ids=[[5, 6]], task="token_embed").error_code == "token_ids_refused"
    assert ask(model, documents=["river"], task="divine").error_code == "unknown_payload"


def test_a_model_that_reads_a_document_with_its_query_ranks_few_of_a_set(rig: Rig, ask: Ask, make_job: MakeJob) -> None:
    listwise = rig.register(
        "listwise", kind="listwise", source=str(build_listwise(rig.root / "listwise")), self_test_mode="numbers"
    )
    document_set = str(make_job(listwise, chunks=1).document_set_id)
    few = SyncRanking(document_set=document_set, count=3, positions=[4, 9, 60], top_n=2, text_limit=3)
    reply = ask(listwise, queries=["text 9"], ranking=few)
    assert (reply.error_code, len(reply.positions), reply.scored) == ("", 2, 3)
    assert set(reply.positions) < {4, 9, 60}
    assert np.diff(np.array(reply.raw_scores, np.float32)) <= 0
    all_of_it = SyncRanking(document_set=document_set, count=64, text_limit=3)
    refused = ask(listwise, queries=["text 9"], ranking=all_of_it)
    assert refused.error_code == "too_many_candidates" and "64 documents were to be ranked" in refused.error_message
    nothing = SyncRanking(document_set=document_set, count=64, bm25=64, parameters=BM25, text_limit=3)
    empty = ask(listwise, queries=["zyzzyva"], ranking=nothing)
    assert (empty.error_code, empty.positions, empty.scores, empty.scored) == ("", [], [], 0) and empty.revision
    gone = SyncRanking(document_set=str(uuid.uuid4()), count=3, text_limit=3)
    assert ask(listwise, queries=["text 9"], ranking=gone).error_code == "not_found"


def test_a_request_of_another_release_is_refused_in_words(rig: Rig, ask: Ask) -> None:
    desk = desk_of(rig)
    call = SyncRequest(
        reply_key="assay:reply:old", model_id="", model_name="", queries=[], documents=[], pairing="", deadline=0.0
    )
    dispatch.callers_stay([call])
    desk.answer({**call.to_json(), "version": PAYLOAD_VERSION - 2})
    reply = dispatch.connection().blpop(["assay:reply:old"], timeout=4)
    desk.drain(1)
    assert reply is not None and f"has version {PAYLOAD_VERSION - 2}" in json.loads(reply[1])["error_message"]

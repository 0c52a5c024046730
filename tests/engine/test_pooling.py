"""Single texts: vectors and token vectors through the same micro-batches as scores."""

from __future__ import annotations

import numpy as np
import pytest

from tests.engine.inside import clear_caches
from workers.engine import (
    Engine,
    EngineError,
    ItemStatus,
    PoolingOptions,
    PoolingRequest,
    PoolingTask,
    ScoringRequest,
    TextRole,
    Truncation,
)

TEXTS = ("the river rose", "bees make honey", " ", "rain fell all night and the river rose", "bees make honey")


def test_embeddings_are_what_the_scores_are_made_of(tiny_engine: Engine) -> None:
    output = tiny_engine.submit_pooling(PoolingRequest("bi", TEXTS, PoolingTask.EMBED)).result(60)
    assert [text.status for text in output.data] == [0, 0, ItemStatus.EMPTY, 0, 0]
    query = tiny_engine.submit_pooling(PoolingRequest("bi", ("honey",), PoolingTask.EMBED, role=TextRole.QUERY)).result(
        60
    )
    scores = tiny_engine.submit(ScoringRequest("bi", ("honey",), TEXTS)).result(60).scores
    assert query.data[0].vector is not None
    for text, score in zip(output.data, scores, strict=True):
        if text.vector is None:
            assert np.isnan(score)
            continue
        cosine = text.vector @ query.data[0].vector
        cosine /= np.linalg.norm(text.vector) * np.linalg.norm(query.data[0].vector)
        assert cosine == pytest.approx(score, abs=1e-6)


def test_token_vectors_give_the_maxsim_and_name_their_tokens(tiny_engine: Engine) -> None:
    output = tiny_engine.submit_pooling(PoolingRequest("late", TEXTS, PoolingTask.TOKEN_EMBED)).result(60)
    query = tiny_engine.submit_pooling(PoolingRequest("late", ("honey",), PoolingTask.TOKEN_EMBED)).result(60).data[0]
    scores = tiny_engine.submit(ScoringRequest("late", ("honey",), TEXTS)).result(60).scores
    assert query.token_vectors is not None
    for text, score in zip(output.data, scores, strict=True):
        if text.token_vectors is None:
            assert np.isnan(score)
            continue
        assert len(text.token_ids) == len(text.token_vectors)
        products = query.token_vectors @ text.token_vectors.T
        assert products.max(axis=1).sum() == pytest.approx(score, abs=1e-5)


def test_a_text_alone_is_the_text_in_a_batch(tiny_engine: Engine) -> None:
    together = tiny_engine.submit_pooling(PoolingRequest("bi", TEXTS, PoolingTask.EMBED)).result(60)
    clear_caches(tiny_engine, "bi")
    alone = tiny_engine.submit_pooling(PoolingRequest("bi", (TEXTS[3],), PoolingTask.EMBED)).result(60)
    assert together.data[3].vector is not None and alone.data[0].vector is not None
    np.testing.assert_allclose(together.data[3].vector, alone.data[0].vector, atol=1e-6)


def test_dimensions_are_the_first_of_the_vector_normalised_if_asked_for(tiny_engine: Engine) -> None:
    whole = tiny_engine.submit_pooling(PoolingRequest("bi", TEXTS, PoolingTask.EMBED)).result(60).data[0].vector
    short = (
        tiny_engine.submit_pooling(PoolingRequest("bi", TEXTS, PoolingTask.EMBED, options=PoolingOptions(dimensions=5)))
        .result(60)
        .data[0]
        .vector
    )
    options = PoolingOptions(dimensions=5, normalize=True)
    unit = tiny_engine.submit_pooling(PoolingRequest("bi", TEXTS, PoolingTask.EMBED, options=options)).result(60).data
    assert whole is not None and short is not None and unit[0].vector is not None
    np.testing.assert_allclose(short, whole[:5], atol=1e-6)
    np.testing.assert_allclose(unit[0].vector, whole[:5] / np.linalg.norm(whole[:5]), atol=1e-6)
    refused = tiny_engine.submit_pooling(
        PoolingRequest("bi", TEXTS, PoolingTask.EMBED, options=PoolingOptions(dimensions=4096))
    )
    with pytest.raises(EngineError, match="4096 were asked for"):
        refused.result(60)


@pytest.mark.parametrize(("model", "task"), [("bi", PoolingTask.TOKEN_EMBED), ("judge", PoolingTask.EMBED)])
def test_a_task_that_the_model_cannot_do_is_refused_with_those_it_can(
    tiny_engine: Engine, model: str, task: PoolingTask
) -> None:
    with pytest.raises(EngineError, match=f"cannot {task}") as refusal:
        tiny_engine.submit_pooling(PoolingRequest(model, TEXTS, task)).result(60)
    assert refusal.value.code == "unsupported_task"


def test_truncation_is_flagged_or_refused(tiny_engine: Engine) -> None:
    long = " ".join(["river"] * 50)
    flagged = tiny_engine.submit_pooling(
        PoolingRequest("bi", (long, "bees"), PoolingTask.EMBED, options=PoolingOptions(max_tokens=10))
    ).result(60)
    assert flagged.data[0].status is ItemStatus.TRUNCATED and flagged.data[0].truncated_tokens > 0
    assert flagged.data[1].status is ItemStatus.OK
    with pytest.raises(EngineError, match=r"inputs\[0\]"):
        tiny_engine.submit_pooling(
            PoolingRequest(
                "bi", (long,), PoolingTask.EMBED, options=PoolingOptions(max_tokens=10, truncation=Truncation.ERROR)
            )
        ).result(60)

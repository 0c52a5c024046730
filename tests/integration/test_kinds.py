"""Every kind that the domain knows, from its registration to scores in a job."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from scoring.models import Chunk
from scoring.ranking import ScoreBlock
from scoring.services.registry import model_change
from scoring.states import ChunkState, ModelState
from tests.integration.checkpoints import build_hybrid, build_listwise, build_sparse
from tests.integration.conftest import MakeJob
from tests.integration.rig import Rig, wait_for
from workers.engine.types import Pairing, ScoringRequest

TEXTS = ("the water rose", "", "honey from the hive")


@pytest.mark.parametrize(
    ("kind", "build", "scale"),
    [("sparse", build_sparse, "dot"), ("hybrid", build_hybrid, "fused"), ("listwise", build_listwise, "cosine")],
)
def test_a_model_is_registered_and_scores_jobs(
    rig: Rig, make_job: MakeJob, kind: str, build: Callable[[Path], Path], scale: str
) -> None:
    model = rig.register("fresh", kind=kind, source=str(build(rig.root / kind)))
    assert (model.state, model.facts.get("scale")) == (ModelState.AVAILABLE, scale), model.self_test_report
    job = make_job(model, chunks=1, texts=lambda n: TEXTS[n % 3])
    stage = job.last_stage
    assert (stage.query_block, stage.document_block) == ((1, 125) if kind == "listwise" else (1024, 64))
    rig.batch.start()
    wait_for(lambda: not Chunk.objects.exclude(state=ChunkState.DONE).exists())
    blocks = [ScoreBlock.unpack(c, (c.query_count, c.document_count)) for c in Chunk.objects.order_by("index")]
    raw = np.concatenate([block.raw for block in blocks])
    documents = tuple(TEXTS[n % 3] for n in range(64))
    request = ScoringRequest("fresh", ("first", "second"), documents, Pairing.MATRIX)
    expected = rig.engine.submit(request).result().raw_scores.reshape(2, 64)
    np.testing.assert_allclose(raw, expected, atol=1e-5)
    assert np.isnan(raw[:, 1]).all() and np.isfinite(raw[:, 0]).all()


def test_weights_decide_what_a_hybrid_model_scores(rig: Rig) -> None:
    model = rig.register("mixed", source=str(build_hybrid(rig.root / "hybrid")), kind="hybrid")

    def scores(weights: list[int]) -> Any:
        model_change(principal=rig.principal, model=model, weights=weights)
        rig.wait_for_state(model, ModelState.AVAILABLE)
        name = rig.host.ensure(model).result(timeout=30)
        return rig.engine.submit(ScoringRequest(name, ("river",), ("the water rose", "honey"))).result().raw_scores

    dense, sparse, late, recommended = (scores(weights) for weights in ([1, 0, 0], [0, 1, 0], [0, 0, 1], []))
    np.testing.assert_allclose(recommended, 0.4 * dense + 0.2 * sparse + 0.4 * late, atol=1e-5)
    assert not np.allclose(dense, late)


def test_int8_is_served_on_the_cpu(rig: Rig) -> None:
    model = rig.register("small", kind="bi-encoder", dtype="int8")
    assert (model.state, model.facts.get("dtype")) == (ModelState.AVAILABLE, "int8"), model.self_test_report

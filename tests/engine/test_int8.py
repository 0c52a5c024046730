"""int8 linear layers: close to float64, independent of company, and a ranking that the self-test compares."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn

from tests.engine.inside import body_of
from workers.engine import Engine, EngineConfig, EngineError, ModelKind, ModelSpec, ScoringRequest
from workers.engine.loading.checkpoint import resolve_dtype
from workers.engine.loading.int8_linear import Int8Linear
from workers.engine.self_test import compare_rankings, run_self_test
from workers.engine.types import ScoringOutput

QUERY = "How do bees make honey?"
DOCUMENTS = (
    "Honey bees gather nectar from flowers and turn it into honey inside the hive.",
    "The central bank raised its interest rate on Thursday.",
    "Bees live in hives.",
)


@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize(("inputs", "outputs"), [(384, 384), (96, 200), (7, 3)])
def test_the_error_is_that_of_the_codes(inputs: int, outputs: int, bias: bool) -> None:
    """At most half a step of the token's codes times the weights, and half a step of the weights times the token."""
    torch.manual_seed(inputs)
    linear = nn.Linear(inputs, outputs, bias=bias)
    x = torch.randn(5, 11, inputs) * torch.tensor([0.01, 1.0, 100.0, 3.0, 1.0])[:, None, None] + 0.3
    narrow = Int8Linear(linear)(x)
    exact = linear.double()(x.double())
    weight = linear.weight
    span = x.amax(-1, keepdim=True) - x.amin(-1, keepdim=True)
    step_x, step_w = span / 127, weight.abs().amax(dim=1) / 127
    bound = step_x / 2 * (weight.abs().sum(dim=1) + inputs * step_w / 2) + step_w / 2 * x.abs().sum(-1, keepdim=True)
    assert narrow.shape == exact.shape and narrow.dtype == torch.float32
    error = (narrow - exact).abs()
    assert (error <= bound * 1.001 + 1e-5).all() and error.max() > 1e-6


def test_a_token_does_not_depend_on_its_company() -> None:
    """The largest values of a neighbour, its NaN or infinity change nothing; in the token itself they stay seen."""
    torch.manual_seed(0)
    layer = Int8Linear(nn.Linear(32, 16))
    x = torch.randn(6, 32)
    alone = torch.cat([layer(row[None]) for row in x])
    x[1] *= 1000
    x[2, 3], x[3, 4], x[4] = torch.nan, torch.inf, 0.25
    together = layer(x)
    torch.testing.assert_close(together[[0, 5]], alone[[0, 5]], rtol=0, atol=1e-6)
    assert not torch.isfinite(together[2:4]).any()
    expected = layer(torch.full((1, 32), 0.25))
    assert torch.isfinite(expected).all()
    torch.testing.assert_close(together[4:5], expected, rtol=0, atol=1e-6)


def test_the_real_encoder_keeps_its_ranking(minilm_folder: Path) -> None:
    engine = Engine(EngineConfig(threads=1))
    try:
        info = engine.load(ModelSpec("narrow", minilm_folder, ModelKind.BI_ENCODER, dtype="int8"))
        wide = engine.load(ModelSpec("wide", minilm_folder, ModelKind.BI_ENCODER, dtype="float32"))
        assert (info.dtype, info.execution) == ("int8", "packed")
        body = body_of(engine, "narrow")
        assert not any(type(module) is nn.Linear for module in body.modules())
        assert 0.5 < (info.weight_bytes - 4 * 384 * 30_522) / (wide.weight_bytes - 4 * 384 * 30_522) * 2 < 1
        narrow, exact = (
            engine.submit(ScoringRequest(name, (QUERY,), DOCUMENTS)).result(60).scores for name in ("narrow", "wide")
        )
        assert 0 < np.abs(narrow - exact).max() < 0.03 and narrow.argsort().tolist() == exact.argsort().tolist()
        report = engine.self_test("narrow")
        assert report.passed
        check = report.checks[-1]
        assert check.name == "int8_ranking" and "same for 3 of 3 queries" in check.detail
        assert engine.models().keys() == {"narrow", "wide"}
    finally:
        engine.close()


def test_a_generative_model_runs_in_int8(tiny_folders: dict[str, Path]) -> None:
    engine = Engine(EngineConfig(threads=1))
    try:
        for name, dtype in (("narrow", "int8"), ("wide", "float32")):
            engine.load(ModelSpec(name, tiny_folders["llama"], ModelKind.GENERATIVE, dtype=dtype, check_order=False))
        narrow, exact = (
            engine.submit(ScoringRequest(name, (QUERY,), DOCUMENTS)).result(60).scores for name in ("narrow", "wide")
        )
        assert 0 < np.abs(narrow - exact).max() < 0.05
        assert engine.self_test("narrow").checks[-1].passed
    finally:
        engine.close()


@pytest.mark.parametrize(("shift", "passed"), [(0.0, True), (2.0, False)])
def test_a_ranking_that_differs_fails_the_self_test(tiny_engine: Engine, shift: float, passed: bool) -> None:
    """Scores moved so that other passages come first."""

    def score(request: ScoringRequest) -> ScoringOutput:
        return tiny_engine.submit(request).result(60)

    def moved(request: ScoringRequest) -> ScoringOutput:
        output = score(request)
        output.raw_scores[:] += shift * np.linspace(-1, 1, len(output.raw_scores)).reshape(output.raw_scores.shape)
        return output

    spec = ModelSpec("bi", Path(), ModelKind.BI_ENCODER)
    report = compare_rankings(run_self_test(score, spec, "int8"), score, moved, spec)
    check = report.checks[-1]
    assert (check.name, check.passed) == ("int8_ranking", passed) and report.passed <= passed


def test_int8_is_refused_where_it_does_not_run() -> None:
    assert resolve_dtype("int8", torch.device("cpu")) == torch.float32
    with pytest.raises(EngineError, match="int8 runs on the CPU only"):
        resolve_dtype("int8", torch.device("cuda"))

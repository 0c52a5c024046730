"""The Triton kernels without a GPU: their results from Triton's interpreter, their code from its compiler.

The rule for numbers: our error against float64 may not exceed twice torch's own in the same dtype (or the rounding of
the result itself, where torch happened to hit it)."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch

pytest.importorskip("triton", reason="Triton is not installed; torch for the CPU comes without it")

from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource, compile

from workers.engine import kernels
from workers.engine.kernels import label_logprobs, maxsim

ROOT = Path(__file__).resolve().parents[2]
NAMES = {torch.float32: "*fp32", torch.bfloat16: "*bf16"}
HOPPER_SHARED = 228 * 1024  # bytes of a multiprocessor


@pytest.fixture(scope="module")
def measured() -> dict[str, Any]:
    """One run of ``tests/engine/interpreted.py``."""
    environment = {**os.environ, "TRITON_INTERPRET": "1", "OMP_NUM_THREADS": "1", "PYTHONWARNINGS": "ignore"}
    command = [sys.executable, "-m", "tests.engine.interpreted"]
    result = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)
    assert result.returncode == 0, result.stderr
    cases: dict[str, Any] = json.loads(result.stdout)
    return cases


def named(measured: dict[str, Any], name: str) -> dict[str, Any]:
    cases = {case: values for case, values in measured.items() if case.startswith(name) and isinstance(values, dict)}
    assert cases
    return cases


@pytest.mark.parametrize("name", ["maxsim float32", "maxsim float16", "maxsim", "labels float32", "labels float16"])
def test_errors_against_float64_are_no_larger_than_torchs(measured: dict[str, Any], name: str) -> None:
    for case, values in named(measured, name).items():
        rounding = torch.finfo(torch.float32).eps * max(1.0, values["size"])
        assert values["ours"] <= 2 * values["torchs"] + 2 * rounding, case


def test_pairs_without_tokens_score_nan_and_no_others(measured: dict[str, Any]) -> None:
    for case, values in named(measured, "maxsim").items():
        assert values["nan"] == values["nan_expected"], case
    assert sum(measured["maxsim many"]["nan"]) == 9 and all(measured["maxsim all empty"]["nan"])


def test_matches_are_those_of_torch(measured: dict[str, Any]) -> None:
    asked = {case: v for case, v in named(measured, "maxsim").items() if v["matches"] is not None}
    assert {"maxsim long query", "maxsim matches", "maxsim pairs"} <= asked.keys()
    for case, values in asked.items():
        assert values["matches"] == values["matches_expected"], case


def test_a_nan_stays_in_its_own_texts(measured: dict[str, Any]) -> None:
    assert measured["poisoned"] == measured["poisoned parts"] == [False, True, False, True, True, True]
    assert measured["labels nan"] == [False, True, False]


def test_neither_padding_nor_a_neighbour_wins(measured: dict[str, Any]) -> None:
    assert measured["negative"] == [-1.0, pytest.approx(-0.8)]


def shared_bytes(kernel: Any, types: dict[str, str], constants: dict[str, Any], config: Any) -> int:
    """Compile for Hopper, as a launch there would, and return what a program needs of the shared memory."""
    signature = {name: types.get(name, "constexpr") for name in kernel.arg_names}
    aligned = {(i,): [["tt.divisibility", 16]] for i, n in enumerate(kernel.arg_names) if signature[n].startswith("*")}
    options = {"num_warps": config.warps, "num_stages": config.stages}
    compiled = compile(ASTSource(kernel, signature, constants, aligned), GPUTarget("cuda", 90, 32), options)
    assert compiled.asm["cubin"]
    return int(compiled.metadata.shared)


@pytest.mark.parametrize("dtype", NAMES, ids=str)
@pytest.mark.parametrize(("longest_query", "dimensions"), [(32, 128), (300, 128), (128, 384), (32, 1024)])
def test_maxsim_compiles_for_hopper_with_two_programs_to_a_multiprocessor(
    longest_query: int, dimensions: int, dtype: torch.dtype
) -> None:
    config = maxsim.config_for(longest_query, dimensions, dtype, HOPPER_SHARED)
    types = dict.fromkeys(("queries_ptr", "documents_ptr"), NAMES[dtype])
    types |= {"tiles_ptr": "*i64", "scores_ptr": "*fp32", "best_ptr": "*fp32", "match_ptr": "*i32"}
    sizes = {"BLOCK_Q": config.block_q, "BLOCK_D": config.block_d, "BLOCK_E": config.block_e, "UNROLL": config.unroll}
    constants = {"E": dimensions, "WHOLE": dimensions == 128, "MATCH": dimensions != 128, **sizes}
    assert 2 * shared_bytes(maxsim._best_tokens, types, constants, config) <= HOPPER_SHARED


def test_the_joining_kernel_compiles_for_hopper() -> None:
    config = maxsim.Config(block_q=32, block_d=64, block_e=128, unroll=True, warps=1, stages=1)
    types = {
        "best_ptr": "*fp32",
        "match_ptr": "*i32",
        "pairs_ptr": "*i64",
        "scores_ptr": "*fp32",
        "matches_ptr": "*i32",
    }
    shared_bytes(maxsim._join_tiles, types, {"BLOCK_Q": 32, "MATCH": True}, config)


@pytest.mark.parametrize("dtype", NAMES, ids=str)
@pytest.mark.parametrize("rows", [1, 64])
def test_the_label_kernel_compiles_for_hopper_with_two_programs_to_a_multiprocessor(
    rows: int, dtype: torch.dtype
) -> None:
    config = label_logprobs.config_for(rows, dtype)
    types = dict.fromkeys(("hidden_ptr", "weight_ptr", "bias_ptr"), NAMES[dtype])
    types |= {"partials_ptr": "*fp32", "rows": "i32", "softcap": "fp32"}
    sizes = {"BLOCK_N": config.block_n, "BLOCK_V": config.block_v, "BLOCK_E": config.block_e}
    constants = {"V": 151_936, "E": 1024, "HAS_BIAS": True, "HAS_CAP": True, **sizes}
    assert 2 * shared_bytes(label_logprobs._partial_logsumexp, types, constants, config) <= HOPPER_SHARED


@pytest.mark.skipif(torch.cuda.is_available(), reason="a launch succeeds where there is a GPU")
def test_a_launch_that_fails_says_which_kernel_and_why() -> None:
    tokens = torch.ones(2, 16)
    assert not kernels.available(tokens)
    with pytest.raises(kernels.KernelError, match=r"The MaxSim kernel could not be launched: .*driver"):
        maxsim.maxsim(tokens, [2], tokens, [2])
    with pytest.raises(kernels.KernelError, match=r"The label log-probability kernel could not be launched: .*driver"):
        label_logprobs.vocabulary_logsumexp(tokens, tokens)


def test_the_engine_works_without_triton() -> None:
    """As on a machine whose torch came without it."""
    code = (
        "import sys; sys.modules['triton'] = None\n"
        "import torch, workers.engine.forward.vocabulary\n"
        "from workers.engine.pooling.maxsim import maxsim\n"
        "assert maxsim(torch.ones(2, 4), [2], torch.ones(3, 4), [3]).tolist() == [[8.0]]\n"
    )
    result = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=False)
    assert result.returncode == 0, result.stderr

"""Checks and figures of the engine on a CUDA device; see gpu_session.sh. Last line JSON; exit 1 if a step failed.

``--cpu`` runs every step with tiny shapes and without kernels, to see that the script itself works.
"""

from __future__ import annotations

import importlib.util
import json
import subprocess
import sys
import time
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
import transformers
from torch import Tensor
from torch.nn.functional import linear, normalize
from transformers import BertConfig, BertModel

from workers.engine import kernels
from workers.engine.forward.model_runner import ModelRunner
from workers.engine.forward.packed_batch import Piece
from workers.engine.forward.vocabulary import vocabulary_logsumexp
from workers.engine.pooling.maxsim import maxsim, maxsim_pairs

CPU = "--cpu" in sys.argv[1:]
DEVICE = torch.device("cpu" if CPU else "cuda")
DTYPES = (torch.float32, torch.float16, torch.bfloat16)
HALF = torch.float32 if CPU else torch.bfloat16
EPS = torch.finfo(torch.float32).eps


def milliseconds(run: Callable[[], Any], rounds: int = 20) -> float:
    """The best of some rounds after three to warm up; on CUDA by the device's own clock."""
    for _ in range(3):
        run()
    times = []
    for _ in range(rounds):
        if CPU:
            started = time.perf_counter()
            run()
            times.append(1000 * (time.perf_counter() - started))
        else:
            begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
            begin.record()
            run()
            end.record()
            end.synchronize()
            times.append(begin.elapsed_time(end))
    return min(times)


@contextmanager
def nothing_waits() -> Iterator[None]:
    """Whatever makes the CPU wait for the device is an error."""
    if CPU:
        yield
        return
    torch.cuda.set_sync_debug_mode("error")
    try:
        yield
    finally:
        torch.cuda.set_sync_debug_mode("default")


def vectors(tokens: int, dimensions: int, dtype: torch.dtype) -> Tensor:
    return normalize(torch.randn(tokens, dimensions, device=DEVICE), dim=-1).to(dtype)


def best_sums(query: Tensor, documents: Tensor, lengths: list[int]) -> Tensor:
    return torch.stack([(query @ d.T).amax(dim=1).double().sum() for d in documents.split(lengths)])


def maxsim_correct() -> dict[str, Any]:
    """Our error against float64 may not exceed twice torch's own in that dtype."""
    longest, worst = (64 if CPU else 4096), {}
    for dtype in DTYPES:
        for dimensions in (96, 128, 384):
            lengths = [1, 16, 33, longest // 8, longest, 5]
            query, documents = vectors(32, dimensions, dtype), vectors(sum(lengths), dimensions, dtype)
            truth = best_sums(query.double(), documents.double(), lengths)
            torchs = (best_sums(query, documents, lengths) - truth).abs().max().item()
            ours = (maxsim(query, [32], documents, lengths)[0] - truth).abs().max().item()
            assert ours <= 2 * torchs + 64 * EPS, f"{dtype} {dimensions}: {ours} against torch's {torchs}"
            worst[f"{str(dtype).removeprefix('torch.')} {dimensions}"] = {"ours": ours, "torch": torchs}
    query, documents = vectors(40, 128, HALF), vectors(90, 128, HALF)
    pairs = torch.tensor([1, 0, 1]).numpy(), torch.tensor([2, 2, 0]).numpy()
    chosen = maxsim_pairs(query, [8, 32], documents, [30, 30, 30], pairs)
    torch.testing.assert_close(chosen, maxsim(query, [8, 32], documents, [30, 30, 30])[pairs], rtol=0, atol=1e-5)
    return worst


def maxsim_speed() -> dict[str, Any]:
    """Against the time that reading the documents once takes at the bandwidth of a large copy, and against einsum."""
    large = torch.empty((2**20 if CPU else 2**30), dtype=torch.uint8, device=DEVICE)
    gigabytes_per_ms = 2 * large.numel() / 1e9 / milliseconds(lambda: large.clone())
    figures: dict[str, Any] = {"copy GB/s": round(1000 * gigabytes_per_ms)}
    for count, length, rows in ((10, 30, 8),) if CPU else ((1000, 300, 32), (10_000, 300, 32), (1000, 1024, 1024)):
        query, documents = vectors(rows, 128, HALF), vectors(count * length, 128, HALF)
        dense, lengths = documents.view(count, length, 128), [length] * count
        ours = milliseconds(lambda q=query, d=documents, n=lengths: maxsim(q, [len(q)], d, n))
        einsum = milliseconds(lambda q=query, d=dense: torch.einsum("me,dle->dml", q, d).amax(dim=2).float().sum(dim=1))
        floor = documents.numel() * documents.element_size() / 1e9 / gigabytes_per_ms
        rivals = {name: milliseconds(lambda f=f, q=query, d=dense: f(q, d)) for name, f in peers().items()}
        figures[f"{rows} x {count} x {length}"] = {"ours": ours, "floor": floor, "einsum": einsum, **rivals}
    return figures


def peers() -> dict[str, Callable[[Tensor, Tensor], Tensor]]:
    """``[m, E]`` against documents of one length, ``[D, L, E]``; those that are installed."""
    found: dict[str, Callable[[Tensor, Tensor], Tensor]] = {}
    if not CPU and importlib.util.find_spec("flash_maxsim"):
        from flash_maxsim import flash_maxsim  # type: ignore[import-not-found]  # not a dependency

        found["flash-maxsim"] = flash_maxsim
    if not CPU and importlib.util.find_spec("late_interaction_kernels"):
        from late_interaction_kernels import maxsim_inference  # type: ignore[import-not-found]  # not a dependency

        found["late-interaction-kernels"] = lambda query, documents: maxsim_inference(query[None], documents)
    return found


def encoder() -> ModelRunner:
    """all-MiniLM-L6's shape with random weights, packed."""
    torch.manual_seed(0)
    layers, hidden = (2, 64) if CPU else (6, 384)
    config = BertConfig(
        hidden_size=hidden, num_hidden_layers=layers, num_attention_heads=hidden // 32, intermediate_size=4 * hidden
    )
    runner = ModelRunner(BertModel(config, add_pooling_layer=False).eval().to(DEVICE, HALF), DEVICE)
    runner.choose_execution([[101, 2000, 102], [101, 2001, 2002, 102], [101, 102]], causal=False)
    assert runner.execution == "packed", "The probe refused to pack BERT."
    return runner


def encoder_speed() -> dict[str, Any]:
    runner, figures = encoder(), {}
    for budget in (256, 512) if CPU else (2048, 8192, 32_768, 65_536, 131_072):
        pieces = [
            Piece([101, *range(1000, 998 + n), 102]) for n in (64, 128, 192, 256, 320, 241) * (budget // 1200 + 1)
        ]
        batch = runner.pack(pieces[: max(1, budget // 200)])
        elapsed = milliseconds(lambda b=batch: runner.forward(b), rounds=5)
        figures[str(budget)] = round(1000 * len(batch.token_ids_cpu) / elapsed)
    return figures


def encoder_waits_for_nothing() -> dict[str, Any]:
    """From the token ids to pooled vectors and MaxSim: the only wait is for the final copy."""
    runner = encoder()
    pieces = [Piece([101, *range(2000, 2000 + n), 102]) for n in (5, 17, 40, 17)]
    runner.forward(runner.pack(pieces))  # compiles and allocates
    with nothing_waits():
        batch = runner.pack(pieces)
        hidden = normalize(runner.forward(batch).float(), dim=-1)  # [T, E]
        first = hidden[batch.cursor.first]  # [N, E]
        rows = hidden.to(HALF)
        start = batch.lengths_cpu[0]
        scores = maxsim(rows[:start], [start], rows[start:], batch.lengths_cpu[1:])
    assert torch.isfinite(scores).all() and torch.isfinite(first).all()
    return {"waits": 0}


def labels() -> dict[str, Any]:
    """The sum over the vocabulary against torch's full log_softmax."""
    vocabulary, hidden_size, figures = *((500, 64) if CPU else (151_936, 1024)), {}
    weight = (torch.randn(vocabulary, hidden_size, device=DEVICE) / hidden_size**0.5).to(HALF)
    for rows in (1, 16, 128, 1024):
        hidden = torch.randn(rows, hidden_size, device=DEVICE).to(HALF)
        total, reason = vocabulary_logsumexp(hidden, weight, None, None)
        assert reason is None, reason
        truth = torch.cat([linear(h.double(), weight.double()).logsumexp(dim=-1) for h in hidden[:16].split(4)])
        torchs = (linear(hidden[:16], weight).float().logsumexp(dim=-1) - truth).abs().max().item()
        error = (total[:16] - truth).abs().max().item()
        assert error <= 2 * torchs + 64 * EPS, f"{rows} rows: {error} against torch's {torchs}"
        figures[str(rows)] = {
            "ours": milliseconds(lambda h=hidden: vocabulary_logsumexp(h, weight, None, None)),
            "log_softmax": milliseconds(lambda h=hidden: linear(h, weight).float().log_softmax(dim=-1)),
            "error": error,
        }
    return figures


def gpu_tests() -> dict[str, Any]:
    """Without the project's own configuration, which asks for Django."""
    options = ["-q", "--noconftest", "-c", "/dev/null", "--rootdir", ".", "-p", "no:django", "-p", "no:cacheprovider"]
    result = subprocess.run([sys.executable, "-m", "pytest", *options, "tests/gpu"], text=True, capture_output=True)
    print(result.stdout[-2000:])
    assert result.returncode == 0, result.stderr[-2000:]
    return {"summary": result.stdout.strip().splitlines()[-1]}


def main() -> int:
    print(f"torch {torch.__version__}, transformers {transformers.__version__}")
    if not CPU and not torch.cuda.is_available():
        print("no CUDA device: nothing was run (--cpu runs the steps in small)")
        return 0
    name = "CPU, tiny shapes" if CPU else torch.cuda.get_device_name()
    print(f"{name}; kernels {'run' if kernels.available(torch.ones(1, device=DEVICE)) else 'do not run'}")
    figures: dict[str, Any] = {"device": name}
    failed = []
    steps = (
        maxsim_correct, maxsim_speed, encoder_speed, encoder_waits_for_nothing, labels, gpu_tests,
    )  # fmt: skip
    for step in steps:
        started = time.monotonic()
        try:
            figures[step.__name__] = step()
        except Exception:  # the other steps must still run: a session on a GPU is short
            failed.append(step.__name__)
            traceback.print_exc(limit=4, file=sys.stdout)
        outcome = "FAILED" if step.__name__ in failed else json.dumps(figures[step.__name__])
        print(f"{step.__name__} ({time.monotonic() - started:.1f} s): {outcome}", flush=True)
    print(json.dumps({**figures, "failed": failed}))
    return 1 if failed else 0


if __name__ == "__main__":
    with torch.inference_mode():
        sys.exit(main())

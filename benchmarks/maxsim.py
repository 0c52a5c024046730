"""MaxSim on the CPU against maxsim-cpu and the padded einsum, in one run: python benchmarks/maxsim.py

One query of 32 vectors, 1,000 documents of about 200 vectors, 128 dimensions, float32; one round runs each in turn, the
best of all rounds counts. maxsim-cpu is taken from PYTHONPATH: pip install --no-deps --target FOLDER maxsim-cpu
"""

from __future__ import annotations

import json
import platform
import statistics
import time
from collections.abc import Callable
from importlib.util import find_spec

import torch
from torch import Tensor
from torch.nn.functional import normalize

from workers.engine.pooling.maxsim import maxsim

ROUNDS, QUERY, DOCUMENTS, DIMENSIONS = 20, 32, 1000, 128


def padded_einsum(query: Tensor, documents: Tensor, lengths: list[int]) -> Tensor:
    """Pads, multiplies everything, masks, maximum, sum."""
    padded = torch.nn.utils.rnn.pad_sequence(list(documents.split(lengths)), batch_first=True)  # [D, L, E]
    outside = torch.arange(padded.shape[1])[None] >= torch.tensor(lengths)[:, None]  # [D, L]
    products = torch.einsum("me,dle->dml", query, padded).masked_fill_(outside[:, None], -torch.inf)
    return products.amax(dim=2).sum(dim=1)


def main() -> None:
    torch.manual_seed(0)
    lengths = (torch.randn(DOCUMENTS) * 85 + 200).clamp(20, 510).int().tolist()  # as Cranfield's abstracts spread
    query = normalize(torch.randn(QUERY, DIMENSIONS), dim=-1)
    documents = normalize(torch.randn(sum(lengths), DIMENSIONS), dim=-1)
    rivals: dict[str, Callable[[], Tensor]] = {
        "ours": lambda: maxsim(query, [QUERY], documents, lengths)[0],
        "ours, kept in float16": lambda: maxsim(narrow[0], [QUERY], narrow[1], lengths)[0],
        "padded einsum": lambda: padded_einsum(query, documents, lengths),
        "the products alone": lambda: torch.mm(documents, query.T, out=products),
    }
    narrow, products = (query.half(), documents.half()), torch.empty(len(documents), QUERY)
    if find_spec("maxsim_cpu"):
        import maxsim_cpu  # type: ignore[import-not-found]  # not a dependency

        parts = [part.numpy() for part in documents.split(lengths)]
        rivals["maxsim-cpu"] = lambda: torch.from_numpy(maxsim_cpu.maxsim_scores_variable(query.numpy(), parts))
    else:
        print("maxsim-cpu: skipped, it is not on PYTHONPATH")
    print(f"{platform.machine()}, torch {torch.__version__}, {torch.get_num_threads()} threads")
    print(f"{QUERY} x {DOCUMENTS} documents, {len(documents)} vectors, {DIMENSIONS} dimensions")
    seconds: dict[str, list[float]] = {name: [] for name in rivals}
    for _ in range(ROUNDS):
        for name, run in rivals.items():
            started = time.perf_counter()
            run()
            seconds[name].append(time.perf_counter() - started)
    ours, exact = min(seconds["ours"]), rivals["ours"]()
    for name, times in seconds.items():
        print(f"  {name:<22} min {1000 * min(times):6.1f}  median {1000 * statistics.median(times):6.1f} ms")
        if name not in ("ours", "the products alone"):
            print(f"  {'':<22} {min(times) / ours:.2f} x ours, differs by {(rivals[name]() - exact).abs().max():.1e}")
    peer = "maxsim-cpu" if "maxsim-cpu" in seconds else "padded einsum"
    milliseconds = {name: round(1000 * min(times), 2) for name, times in seconds.items()}
    print(json.dumps({"milliseconds": milliseconds, "against": peer, "ratio": round(min(seconds[peer]) / ours, 2)}))


if __name__ == "__main__":
    main()

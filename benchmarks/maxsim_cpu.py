"""MaxSim on the CPU: packed GEMM + segment maximum against the padded einsum most libraries use, in one run."""

from __future__ import annotations

import platform
import statistics
import time
from collections.abc import Callable, Sequence
from functools import partial

import torch
from torch import Tensor

from workers.engine.maxsim import maxsim

RUNS = 12


def padded_einsum(queries: Sequence[Tensor], documents: Sequence[Tensor]) -> Tensor:
    """Pads both sides, multiplies everything by everything, masks, maximum, sum; queries one by one to bound memory."""
    padded = torch.nn.utils.rnn.pad_sequence(list(documents), batch_first=True)  # [D, L, E]
    lengths = torch.tensor([len(document) for document in documents])
    outside = torch.arange(padded.shape[1])[None] >= lengths[:, None]  # [D, L]
    rows = []
    for query in queries:
        products = torch.einsum("me,dle->dml", query, padded).masked_fill_(outside[:, None], -torch.inf)
        rows.append(products.amax(dim=2).sum(dim=1))
    return torch.stack(rows)


def milliseconds(run: Callable[[], Tensor]) -> str:
    times = []
    for _ in range(RUNS):
        started = time.perf_counter()
        run()
        times.append(1000 * (time.perf_counter() - started))
    return f"min {min(times):.1f} median {statistics.median(times):.1f} ms"


def main() -> None:
    print(f"{platform.machine()}, torch {torch.__version__}, {torch.get_num_threads()} threads, float32")
    for query_count, document_count, dimensions in ((1, 1000, 128), (1, 1000, 384), (32, 64, 384)):
        query_lengths = torch.randint(16, 33, (query_count,)).tolist()
        document_lengths = torch.randint(40, 360, (document_count,)).tolist()
        queries = torch.nn.functional.normalize(torch.randn(sum(query_lengths), dimensions), dim=-1)
        documents = torch.nn.functional.normalize(torch.randn(sum(document_lengths), dimensions), dim=-1)
        packed = partial(maxsim, queries, query_lengths, documents, document_lengths)
        padded = partial(padded_einsum, queries.split(query_lengths), documents.split(document_lengths))
        print(f"{query_count} x {document_count} texts, {dimensions} dimensions, {len(documents)} document vectors")
        print(f"  ours   {milliseconds(packed)}\n  padded {milliseconds(padded)}")
        print(f"  largest difference {(packed() - padded()).abs().max():.1e}")


if __name__ == "__main__":
    main()

"""A list of documents that were encoded before, laid end to end: a query is compared with all of them at once, and
nobody needs their texts.

Shapes: N documents of the list, d different ones among them that hold a token, T token vectors of all d, k weights of
all their sparse vectors, E dimensions; Q queries of M tokens in all."""

from __future__ import annotations

from collections.abc import Sequence as Listed
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from workers.engine.caches.compression import token_vectors
from workers.engine.pooling.encoding import Encoding, SparseVector
from workers.engine.pooling.maxsim import IMAGE_ROWS, maxsim, maxsim_of_blocks
from workers.engine.sequence import Sequence

_BLOCK_BYTES = 2**23  # of token vectors widened at a time


@dataclass(frozen=True, slots=True)
class PackedDocuments:
    row_of: npt.NDArray[np.intp]  # [N], each document's among the different ones; -1: it holds no token
    tokens: npt.NDArray[np.int64]  # [d], read when it was encoded
    truncated: npt.NDArray[np.int32]  # [d]
    encoding: Encoding  # of all d: dense [d, E], tokens [T, E], token_scales [T], sparse [k]
    vectors: list[int]  # [d] token vectors of each; empty where the model makes none
    weights: list[int]  # [d] sparse weights of each; empty where the model makes none

    @property
    def bytes(self) -> int:
        return self.encoding.bytes + self.row_of.nbytes + self.tokens.nbytes + self.truncated.nbytes

    def to(self, device: torch.device) -> PackedDocuments:
        return replace(self, encoding=self.encoding.to(device))

    def alone(self, rows: npt.NDArray[np.intp]) -> list[Encoding]:
        """Each of these documents by itself; views, nothing is copied."""
        all_of = self.encoding
        found = [Encoding() if all_of.dense is None else Encoding(dense=all_of.dense[row]) for row in rows]
        if all_of.tokens is not None:
            for place, piece in enumerate(_pieces(self.vectors, rows)):
                scales = None if all_of.token_scales is None else all_of.token_scales[piece]
                found[place] = replace(found[place], tokens=all_of.tokens[piece], token_scales=scales)
        if all_of.sparse is not None:
            for place, piece in enumerate(_pieces(self.weights, rows)):
                found[place] = replace(found[place], sparse=SparseVector(*(part[piece] for part in all_of.sparse)))
        return found

    def maxsim(self, queries: Tensor, query_lengths: Listed[int]) -> Tensor:
        """``queries [M, E]`` against all documents, where these lie; float32 ``[Q, d]``."""
        tokens, scales = self.encoding.tokens, self.encoding.token_scales
        assert tokens is not None
        queries = queries.to(tokens.device, torch.float32 if tokens.device.type == "cpu" else queries.dtype)
        if scales is None:
            documents = tokens if tokens.device.type == "cpu" else tokens.to(queries.dtype)
            return maxsim(queries, query_lengths, documents, self.vectors)
        rows = max(1, _BLOCK_BYTES // (4 * IMAGE_ROWS * tokens.shape[1])) * IMAGE_ROWS
        blocks = (
            token_vectors(Encoding(tokens=steps, token_scales=own)).to(queries.dtype)
            for steps, own in zip(tokens.split(rows), scales.split(rows), strict=True)
        )
        return maxsim_of_blocks(queries, query_lengths, blocks, self.vectors)


def packed(texts: Listed[str], distinct: Listed[str], sequences: Listed[Sequence]) -> PackedDocuments:
    """``texts [N]`` of which ``sequences [d]``, by their index in ``distinct``, were encoded."""
    encodings = [sequence.encoding for sequence in sequences if sequence.encoding is not None]
    row_of = {distinct[sequence.index]: row for row, sequence in enumerate(sequences)}
    sparse = [encoding.sparse for encoding in encodings if encoding.sparse is not None]
    tokens = [encoding.tokens for encoding in encodings if encoding.tokens is not None]
    dense = [encoding.dense for encoding in encodings if encoding.dense is not None]
    scales = [encoding.token_scales for encoding in encodings if encoding.token_scales is not None]
    return PackedDocuments(
        row_of=np.array([row_of.get(text, -1) for text in texts], dtype=np.intp),
        tokens=np.array([sequence.tokens for sequence in sequences], dtype=np.int64),
        truncated=np.array([sequence.truncated for sequence in sequences], dtype=np.int32),
        encoding=Encoding(
            dense=torch.stack(dense) if dense else None,
            tokens=torch.cat(tokens) if tokens else None,
            token_scales=torch.cat(scales) if scales else None,
            sparse=SparseVector(*map(torch.cat, zip(*sparse, strict=True))) if sparse else None,
        ),
        vectors=[len(part) for part in tokens],
        weights=[len(part.token_ids) for part in sparse],
    )


def _pieces(lengths: Listed[int], rows: npt.NDArray[np.intp]) -> list[slice]:
    ends = np.cumsum(lengths)
    return [slice(int(ends[row]) - lengths[row], int(ends[row])) for row in rows]

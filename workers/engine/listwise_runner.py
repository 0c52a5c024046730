"""Listwise reranking (jina-reranker-v3): the passages of one query are read together, in blocks, and compared with it
afterwards.

**Neighbours change a score**: a passage's vector depends on the passages before it in its block, so order, company and
duplicates matter; nothing is merged, and ``ScoringOutput.blocks`` says which block each pair was read in. Pairwise
requests make one list of all pairs with the same query.

The state at each passage's marker and at the query's, projected, are their vectors. The query has one vector per block;
their mean, weighted by (1 + best cosine of the block) / 2, is compared with every passage by cosine.

Shapes: n passages of a block, E hidden, D projected, P pairs, Q queries."""

from __future__ import annotations

import time
from dataclasses import dataclass, field, replace

import numpy as np
import numpy.typing as npt
import torch
import torch.nn.functional as F
from torch import Tensor

from workers.engine.counters import Counters
from workers.engine.errors import EngineError
from workers.engine.forward.packed_batch import Piece
from workers.engine.loading.checkpoint import Checkpoint
from workers.engine.loading.weights import read_tensors
from workers.engine.model_types import ModelInfo
from workers.engine.outputs import PairFacts, assemble_output, is_blank, pair_indices, refuse_too_long
from workers.engine.role import Role
from workers.engine.sequence import Sequence, Work
from workers.engine.task_runner import CHARACTERS_PER_TOKEN, ReadingRunner
from workers.engine.texts.listwise_prompt import Block, ListwisePrompt
from workers.engine.types import Pairing, ScoringOutput, ScoringRequest

_PROMPT_TOKENS, _PASSAGE_TOKENS = 192, 12  # around all passages and around each: guesses, only to bound what waits
_PROJECTOR = ("projector.0.weight", "projector.2.weight")

Vectors = npt.NDArray[np.float64]


@dataclass(eq=False, slots=True)
class ListwiseResults:
    """What one request gathers; its lists have one query each, its blocks are numbered through all lists."""

    lists: list[npt.NDArray[np.intp]] = field(default_factory=list)  # pairs that hold text, by list
    blocks: list[tuple[int, Block]] = field(default_factory=list)  # the list that each is of
    vectors: dict[int, tuple[Vectors, Vectors]] = field(default_factory=dict)  # by block: passages [n, D], query [D]
    truncated: dict[int, int] = field(default_factory=dict)  # by pair
    query_truncated: dict[int, int] = field(default_factory=dict)
    tokens: int = 0


class ListwiseRunner(ReadingRunner):
    """One causal body with a projector; a block is one sequence."""

    takes_instruction = True

    def __init__(self, checkpoint: Checkpoint, info: ModelInfo, counters: Counters) -> None:
        super().__init__(info)
        self._model = checkpoint.runner
        self.tokenizer = checkpoint.tokenizer
        self._counters = counters
        self._prompt = ListwisePrompt(checkpoint.tokenizer, info.max_length)
        self._projector = _read_projector(checkpoint)

    def estimate(self, request: ScoringRequest) -> int:
        documents = sum(_PASSAGE_TOKENS + len(text) // CHARACTERS_PER_TOKEN for text in request.documents)
        queries = sum(_PROMPT_TOKENS + 2 * len(text) // CHARACTERS_PER_TOKEN for text in request.queries)
        lists = len(request.queries) if request.pairing is Pairing.MATRIX else 1
        return queries + lists * documents

    def prepare(self, work: Work) -> None:
        request, options = work.scoring, work.scoring.options
        for side, limit in (("query", options.max_tokens_per_query), ("document", options.max_tokens_per_document)):
            if limit is not None and limit < 1:
                raise EngineError("bad_limit", f"A limit of {limit} tokens per {side} leaves nothing. Give at least 1.")
        work.results = results = ListwiseResults()
        _, documents = pair_indices(request)
        for queries, pairs in _lists(request):
            texts = [request.documents[document] for document in documents[pairs]]
            made = self._prompt.blocks(
                request.queries[queries[0]],
                texts,
                options.instruction,
                max_query=options.max_tokens_per_query,
                max_passage=options.max_tokens_per_document,
            )
            results.blocks += [(len(results.lists), block) for block in made.blocks]
            results.lists.append(pairs)
            results.truncated |= {int(pair): cut for pair, cut in zip(pairs, made.truncated, strict=True) if cut}
            results.query_truncated |= {query: made.query_truncated for query in queries if made.query_truncated}
        cut_documents = {int(documents[pair]): cut for pair, cut in results.truncated.items()}
        refuse_too_long(options.truncation, "documents", cut_documents)
        refuse_too_long(options.truncation, "queries", results.query_truncated)
        self._counters.add(truncations=len(results.truncated) + len(results.query_truncated))
        results.tokens = sum(len(block.token_ids) for _, block in results.blocks)
        work.pending.extend(
            Sequence(work, Role.PROMPT, index, block.token_ids, len(block.token_ids))
            for index, (_, block) in enumerate(results.blocks)
        )

    def rows_of(self, work: Work, pair: int) -> list[tuple[Role, list[int]]]:
        results: ListwiseResults = work.results
        blocks = [block for place, block in results.blocks if pair in results.lists[place][block.passages]]
        return [(Role.PROMPT, block.token_ids) for block in blocks]

    def run(self, sequences: list[Sequence]) -> None:
        started = time.monotonic()
        vectors = self._vectors(sequences, in_float32=False)
        again = [i for i, found in enumerate(vectors) if not np.isfinite(found).all()]
        if again and self._model.dtype != torch.float32:
            self._counters.add(float32_retries=len(again))
            for i, found in zip(again, self._vectors([sequences[i] for i in again], in_float32=True), strict=True):
                vectors[i] = found
        for sequence, found in zip(sequences, vectors, strict=True):
            sequence.work.results.vectors[sequence.index] = (found[:-1], found[-1])
        elapsed = time.monotonic() - started
        for work in {sequence.work for sequence in sequences}:
            work.forward_seconds += elapsed

    def finish(self, work: Work) -> ScoringOutput:
        request: ScoringRequest = work.scoring
        results: ListwiseResults = work.results
        pair_queries, _ = pair_indices(request)
        scores = np.full(len(pair_queries), np.nan, dtype=np.float32)
        empty = np.ones(len(pair_queries), dtype=np.bool_)
        blocks = np.full(len(pair_queries), -1, dtype=np.int32)
        blocks_of: list[list[tuple[int, Block]]] = [[] for _ in results.lists]
        for index, (place, block) in enumerate(results.blocks):
            blocks_of[place].append((index, block))
        for pairs, own in zip(results.lists, blocks_of, strict=True):
            scores[pairs] = _cosines([results.vectors[index] for index, _ in own])
            empty[pairs] = False
            for index, block in own:
                blocks[pairs[block.passages]] = index
        query_truncated = np.array(
            [results.query_truncated.get(query, 0) for query in range(len(request.queries))], dtype=np.int32
        )
        truncated = np.array([results.truncated.get(pair, 0) for pair in range(len(scores))], dtype=np.int32)
        output = assemble_output(
            work,
            self.info,
            self._counters,
            scores=scores,
            raw_scores=scores,
            facts=PairFacts(empty, truncated, query_truncated[pair_queries]),
            errors={},
            query_truncated=query_truncated,
            prompt_tokens=results.tokens,
        )
        return replace(output, blocks=blocks)

    def _vectors(self, sequences: list[Sequence], *, in_float32: bool) -> list[Vectors]:
        """For each block ``[n + 1, D]``: its passages, then its query."""
        blocks: list[Block] = [sequence.work.results.blocks[sequence.index][1] for sequence in sequences]
        batch = self._model.pack([Piece(block.token_ids) for block in blocks])
        hidden = self._model.forward(batch, in_float32=in_float32)  # [T, E]
        marks = [
            np.array([*block.passage_marks, block.query_mark]) + start
            for block, start in zip(blocks, batch.starts_cpu, strict=True)
        ]
        rows = torch.from_numpy(np.concatenate(marks)).to(hidden.device)
        projected = F.linear(F.linear(hidden[rows].float(), self._projector[0]).relu(), self._projector[1])
        whole = projected.cpu().double().numpy()
        return np.split(whole, np.cumsum([len(own) for own in marks])[:-1])


def _lists(request: ScoringRequest) -> list[tuple[list[int], npt.NDArray[np.intp]]]:
    """The queries (one, or its copies) and the pairs of every list, blank texts left out."""
    matrix = request.pairing is Pairing.MATRIX
    held = np.array([not is_blank(text) for text in request.documents], dtype=np.bool_)[pair_indices(request)[1]]  # [P]
    queries: dict[object, list[int]] = {}
    for query, text in enumerate(request.queries):
        if not is_blank(text):
            queries.setdefault(query if matrix else text, []).append(query)
    lists = []
    for own in queries.values():
        width = len(request.documents)
        pairs = np.arange(own[0] * width, (own[0] + 1) * width) if matrix else np.array(own)
        if held[pairs].any():
            lists.append((own, pairs[held[pairs]]))
    return lists


def _cosines(blocks: list[tuple[Vectors, Vectors]]) -> npt.NDArray[np.float32]:
    """All passages of a list against the mean of its blocks' query vectors; blocks whose query vector is no number take
    no part in that mean."""
    usable = [block for block in blocks if np.isfinite(block[1]).all()]
    if not usable:
        return np.full(sum(len(passages) for passages, _ in blocks), np.nan, dtype=np.float32)
    weights = np.array([(1 + np.nanmax(_cosine(*block), initial=-1.0)) / 2 for block in usable])
    mean = np.average([query for _, query in usable], axis=0, weights=weights if weights.any() else None)
    return np.concatenate([_cosine(passages, mean) for passages, _ in blocks]).astype(np.float32)


def _cosine(passages: Vectors, query: Vectors) -> Vectors:
    norms = np.linalg.norm(passages, axis=1) * np.linalg.norm(query)
    return np.divide(passages @ query, np.maximum(norms, 1e-12))


def _read_projector(checkpoint: Checkpoint) -> tuple[Tensor, Tensor]:
    """``[E', E]`` and ``[D, E']`` in float32: cosines of projected states are sensitive to rounding."""
    found = read_tensors(checkpoint.folder, set(_PROJECTOR))
    missing = [name for name in _PROJECTOR if name not in found]
    if missing:
        raise EngineError(
            "missing_weights",
            f"{checkpoint.folder} lacks weights that the listwise model needs: {', '.join(missing)}. Give the folder "
            "of jina-reranker-v3.",
        )
    first, second = (found[name].float().to(checkpoint.runner.device) for name in _PROJECTOR)
    if (
        first.dim() != 2
        or second.dim() != 2
        or second.shape[1] != first.shape[0]
        or (first.shape[1] != checkpoint.model.config.hidden_size)
    ):
        raise EngineError(
            "checkpoint_unreadable",
            f"The projector's weights {list(first.shape)} and {list(second.shape)} do not follow a hidden size of "
            f"{checkpoint.model.config.hidden_size}.",
        )
    return first, second

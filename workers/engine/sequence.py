"""What waits, runs and is answered: one request's work and the sequences it is cut into.

A sequence is the smallest thing a micro-batch takes: a query, a document or a prompt. Its work keeps what the finished
ones gave."""

from __future__ import annotations

import itertools
import time
from collections import deque
from collections.abc import Sequence as Range
from concurrent.futures import Future
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
import torch

from workers.engine.caches.cached_encoding import CacheKey
from workers.engine.errors import EngineError, RequestCancelled
from workers.engine.forward.kept_prefix import KeptPrefix, PrefixKey
from workers.engine.pooling.encoding import Encoding, Part
from workers.engine.role import Role
from workers.engine.task_runner import TaskRunner
from workers.engine.types import EncodingRequest, PoolingRequest, ScoringRequest

if TYPE_CHECKING:
    from workers.engine.long_documents import WindowedRequest
    from workers.engine.pooling.packed_documents import PackedDocuments
    from workers.engine.texts.tokenizer import Tokens

_KEYS = itertools.count()
_PRODUCTS_PER_TOKEN = 50_000  # so many products of vectors in MaxSim weigh about as much as one token's forward


@dataclass(eq=False, slots=True)
class Prefix:
    """Tokens that several prompts begin with, or an early part of a long one; key or identity say which."""

    token_ids: list[int]  # without the parent's
    parent: Prefix | None = None
    key: PrefixKey | None = None  # under which it may be kept for other requests
    kept: KeptPrefix | None = None  # held by this request alone
    hot: bool = False  # found in the cache, or put there: the next micro-batch is not charged for it

    def chain(self) -> list[Prefix]:
        """From the first token's to this one."""
        return [*(self.parent.chain() if self.parent else ()), self]


@dataclass(eq=False, slots=True)
class Sequence:
    work: Work
    role: Role
    index: int  # among the request's distinct queries or documents; for a prompt: the pair
    token_ids: list[int]  # without the prefix; empty when ``encoding`` came from a cache
    tokens: int = 0  # what they were when it was encoded, from a cache too
    truncated: int = 0
    attended: int | None = None  # as in ``Tokens``
    read: Tokens | None = None  # as its layout made it, if it came from no cache
    kept: Range[int] | None = None  # places whose token vectors are compared; None: all
    prefix: Prefix | None = None
    cache_key: CacheKey | None = None
    parts: frozenset[Part] = frozenset()  # what its text is to become
    encoding: Encoding | None = None
    token_types: list[int] | None = None  # of a pair, where the model takes them
    continuations: tuple[tuple[int, ...], ...] = ()  # what labels of several tokens begin with, run behind the prompt
    fills: Prefix | None = None  # this is no prompt: it runs that prefix, for those to come
    products: int = 0  # of vectors, where MaxSim with what was encoded before is a part of its work

    @property
    def chain(self) -> list[Prefix]:
        return self.prefix.chain() if self.prefix else []

    @property
    def cost(self) -> int:
        """Tokens that a micro-batch is charged for it, the prefix apart."""
        products = self.products // _PRODUCTS_PER_TOKEN
        if self.encoding is not None:
            return 1 + products
        return len(self.token_ids) + sum(map(len, self.continuations)) + products

    @property
    def square(self) -> int:
        prefix = sum(len(prefix.token_ids) for prefix in self.chain)
        return len(self.token_ids) * (prefix + len(self.token_ids))


@dataclass(eq=False, slots=True)
class EmbeddingResults:
    """What embedding tasks gather for one request, by *distinct* text: duplicates are encoded once."""

    query_of: npt.NDArray[np.intp]  # for each submitted query its distinct index; -1: empty
    document_of: npt.NDArray[np.intp]
    maxsim: npt.NDArray[np.float32]  # [distinct queries, distinct documents], pairwise: [P]; NaN until scored
    pairs: dict[int, list[tuple[int, int]]] | None  # pairwise: a document's (pair, query); None for a matrix
    encodings: dict[tuple[Role, int], Encoding] = field(default_factory=dict)  # the parts that ``finish`` compares
    errors: dict[int, str] = field(default_factory=dict)  # distinct documents that failed by themselves: the code
    truncated: dict[tuple[Role, int], int] = field(default_factory=dict)
    tokens: int = 0
    query_tokens: int = 0
    cached_documents: int = 0
    fallback: str | None = None
    packed: PackedDocuments | list[Encoding] | None = None  # documents that no sequence brings: all of a list, or some
    explained: dict[tuple[Role, int], Sequence] = field(default_factory=dict)  # what ran, if that is to be shown

    def mark_empty(self, role: Role, index: int) -> None:
        places = self.query_of if role is Role.QUERY else self.document_of
        places[places == index] = -1

    def pair_errors(self, documents: npt.NDArray[np.intp], empty: npt.NDArray[np.bool_]) -> dict[int, str]:
        """By pair, given each pair's distinct document."""
        if not self.errors:
            return {}
        failed = np.flatnonzero(np.isin(documents, list(self.errors)) & ~empty)
        return {int(pair): self.errors[int(documents[pair])] for pair in failed}

    def cut(self, role: Role) -> npt.NDArray[np.int32]:
        """Tokens cut from each submitted text of that role."""
        places = self.query_of if role is Role.QUERY else self.document_of
        return np.array([self.truncated.get((role, int(place)), 0) for place in places], dtype=np.int32)


@dataclass(eq=False, slots=True)
class PoolingResults:
    """What single texts gather, by the place submitted; blank ones have no sequence."""

    sequences: dict[int, Sequence] = field(default_factory=dict)
    tokens: int = 0


@dataclass(eq=False, slots=True)
class EncodingResults:
    """What encoding ahead did, by distinct text."""

    encoded: int
    cached: int
    empty: int
    tokens: int
    sequences: list[Sequence]


@dataclass(eq=False, slots=True)
class Work:
    """One request from submission to answer. ``key`` is private: nothing a client sends ever names it."""

    request: ScoringRequest | PoolingRequest | EncodingRequest
    task: TaskRunner
    admitted_tokens: int
    afresh: bool = False  # neither read from a cache nor kept in one: a copy would agree with itself
    key: int = field(default_factory=lambda: next(_KEYS))
    future: Future[Any] = field(default_factory=Future)
    pending: deque[Sequence] = field(default_factory=deque)
    results: Any = None  # the task's own
    windows: WindowedRequest | None = None  # ``request`` is over windows of long documents, and whose
    submitted: float = field(default_factory=time.monotonic)
    prepared: float = 0.0
    started: float = 0.0
    tokenise_seconds: float = 0.0
    forward_seconds: float = 0.0
    maxsim_seconds: float = 0.0

    def __post_init__(self) -> None:
        self.afresh = self.afresh or (isinstance(self.request, ScoringRequest) and self.request.explain)

    @property
    def scoring(self) -> ScoringRequest:
        assert isinstance(self.request, ScoringRequest)
        return self.request

    @property
    def pooling(self) -> PoolingRequest:
        assert isinstance(self.request, PoolingRequest)
        return self.request

    @property
    def encoding(self) -> EncodingRequest:
        assert isinstance(self.request, EncodingRequest)
        return self.request

    def progressed(self) -> None:
        """Tell whoever asked to know that a micro-batch had a part of this."""
        if isinstance(self.request, ScoringRequest) and self.request.progressed is not None:
            self.request.progressed()

    def check_wanted(self) -> None:
        """Raise ``RequestCancelled`` if nobody waits for this any more."""
        if (departed := self.departure(time.monotonic())) is not None:
            raise departed

    def departure(self, now: float) -> RequestCancelled | None:
        """Why nobody waits for this any more, if so."""
        if self.request.cancelled is not None and self.request.cancelled.is_set():
            return RequestCancelled("cancelled", "The request was cancelled before its work was finished.")
        if self.request.deadline is not None and now >= self.request.deadline:
            return RequestCancelled(
                "deadline_exceeded",
                "The deadline passed before the work was finished; what had not started was dropped.",
            )
        return None


def fail(work: Work, error: Exception) -> None:
    """Answer with an error, which others than ours become one of ours."""
    if not isinstance(error, EngineError):
        error = EngineError(
            "out_of_memory" if is_out_of_memory(error) else "engine_failure", f"{type(error).__name__}: {error}"
        )
    work.future.set_exception(error)


def is_out_of_memory(error: Exception) -> bool:
    """On the CPU torch says it in words only."""
    return isinstance(error, torch.OutOfMemoryError | MemoryError) or "can't allocate memory" in str(error)

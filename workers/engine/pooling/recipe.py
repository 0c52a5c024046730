"""How one checkpoint turns texts into encodings and encodings into scores. Each family's own file reads one from its
folder; the pooling runner only follows it.

Shapes: T tokens on the row, N sequences, E hidden."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple, Protocol

from torch import Tensor

from workers.engine.forward.packed_batch import PackedBatch
from workers.engine.model_types import Scale
from workers.engine.pooling.encoding import Part, SparseVector
from workers.engine.role import Role
from workers.engine.sequence import Sequence as Waiting
from workers.engine.texts.tokenizer import TextTokenizer, Tokens
from workers.engine.types import PoolingOutput, PoolingRequest, PoolingTask


class TextLayout(Protocol):
    """Texts to ids, with what the checkpoint puts around each: control tokens, markers, prompts."""

    def room(self, role: Role, instruction: str) -> int:
        """How many tokens of its own a text may have."""

    def encode(self, texts: Sequence[str], role: Role, limit: int, instruction: str) -> list[Tokens]:
        """Each text cut to ``limit`` tokens of its own and dressed; ``Tokens.own`` of 0 says that it holds none."""


class Pooled(NamedTuple):
    values: Sequence[Tensor | SparseVector]  # one per chosen sequence, owning its memory
    finite: Sequence[bool]
    kept: Sequence[Sequence[int]] | None = None  # places within each sequence that its rows stand for; None: all


class Pooler(Protocol):
    """One part of the encodings of a micro-batch."""

    def __call__(self, hidden: Tensor, batch: PackedBatch, sequences: list[Waiting], chosen: list[int]) -> Pooled:
        """``hidden [T, E]`` in the model's dtype or wider; ``chosen`` are the sequences that want this part."""


@dataclass(frozen=True, slots=True)
class Recipe:
    layout: TextLayout
    poolers: Mapping[Part, Pooler]
    tasks: Mapping[PoolingTask, frozenset[Part]]
    weights: Mapping[Part, float] = field(default_factory=dict)  # a score is their weighted sum; none: pairs have none
    takes_instruction: bool = False
    scale: Scale | None = None  # where the checkpoint decides it; DOT: dense vectors are not normalised to be compared
    mean_maxsim: bool = False  # MaxSim over the number of the query's vectors
    labels: tuple[str, ...] = ()  # K, classification only
    activation: Callable[[Tensor], Tensor] | None = None  # of class logits [..., K]; None: answered as they are
    refine: Callable[[PoolingRequest, PoolingOutput], PoolingOutput] | None = None  # what else the answer says
    sample_tail: str = ""  # without which a text gives nothing to test


class PlainLayout:
    """The checkpoint's own control tokens around the text, the same for queries and documents."""

    def __init__(self, tokenizer: TextTokenizer, max_length: int) -> None:
        self._tokenizer = tokenizer
        self._max_length = max_length

    def room(self, role: Role, instruction: str) -> int:
        return self._max_length - self._tokenizer.special_count

    def encode(self, texts: Sequence[str], role: Role, limit: int, instruction: str) -> list[Tokens]:
        return self._tokenizer.encode_surrounded(texts, limit)

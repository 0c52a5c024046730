"""How prompts are cut into pieces that share what they begin with, and how a micro-batch of them lies on one row.

A prompt is a chain: the template's beginning, the query, what all documents of the request begin with, the rest. Chains
end where another prompt may go another way. What no cache holds of a chain is laid on the row once, before the pieces
that continue it; labels of several tokens continue the prompt.

A long prompt is cut further: every part but the last one is a sequence that only fills its prefix, so that nobody
waits for the whole of it.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Protocol

import torch

from workers.engine.counters import Counters
from workers.engine.forward.kept_prefix import KeptPrefix, PrefixCache, PrefixKey, token_digest
from workers.engine.forward.model_runner import ModelRunner
from workers.engine.forward.packed_batch import Piece
from workers.engine.model_types import ModelInfo
from workers.engine.role import Role
from workers.engine.sequence import Prefix, Work
from workers.engine.sequence import Sequence as Prompted
from workers.engine.texts.templates import shared_length

PART_TOKENS = 512  # of a long prompt at a time; a CPU's GEMM is saturated below
_NO_PROMPT = -1  # the index of a sequence that only fills a prefix
_LEAST_GAIN = 16  # tokens that sharing must save: a prefix costs an attention call of its own in every layer


NamePrefix = Callable[[list[int]], PrefixKey]


@dataclass(frozen=True, slots=True)
class ChainedPrompt:
    """``rest`` continues ``prefix``; ``fills`` are links of its chain that run before it, in this order."""

    rest: list[int]  # at least one token
    prefix: Prefix | None
    fills: list[Prefix]


class Chainable(Protocol):
    @property
    def token_ids(self) -> list[int]: ...

    @property
    def heads(self) -> Sequence[int]:
        """Places where other requests' prompts may leave this one's beginning."""


def name_prefixes(cache: PrefixCache | None, model: ModelRunner, info: ModelInfo, work: Work) -> NamePrefix | None:
    """How a beginning is found again in the cache; None where the model's keys and values cannot be kept, or must be
    computed afresh."""
    if cache is None or not model.keeps_prefixes or work.afresh:
        return None
    salt = work.scoring.cache_salt
    return lambda token_ids: PrefixKey(info.name, info.generation, salt, token_digest(token_ids))


def chain_prompts(prompts: Sequence[Chainable], key_of: NamePrefix | None) -> list[ChainedPrompt]:
    """Prompts of one query as chains that share their first links. ``key_of`` names a beginning, for other requests to
    find; None: nothing can be kept, so links are shared inside a micro-batch only and long prompts stay whole."""
    ids = [prompt.token_ids for prompt in prompts]
    borders = _borders(ids, prompts[0].heads if key_of else ())
    trunk: list[Prefix] = []
    start = 0
    for end in _parts(borders) if key_of else borders:
        key = key_of(ids[0][:end]) if key_of and end in borders else None
        trunk.append(Prefix(ids[0][start:end], trunk[-1] if trunk else None, key))
        start = end
    chained = []
    for each in ids:
        branch, at = trunk[-1:], start
        for end in range(start + PART_TOKENS, len(each), PART_TOKENS) if key_of else ():
            branch.append(Prefix(each[at:end], branch[-1] if branch else None))
            at = end
        fills = branch[1:] if trunk else branch[:]
        chained.append(ChainedPrompt(each[at:], branch[-1] if branch else None, fills))
    if key_of and start > PART_TOKENS:
        chained[0].fills[:0] = trunk
    return chained


def chained_sequences(
    work: Work,
    members: Sequence[int],
    prompts: Sequence[Chainable],
    key_of: NamePrefix | None,
    continuations: tuple[tuple[int, ...], ...] = (),
) -> list[Prompted]:
    """Prompts of one query by index as they run: what fills a prefix before who continues it."""
    sequences = []
    for index, chained in zip(members, chain_prompts(prompts, key_of), strict=True):
        sequences += [
            Prompted(work, Role.PROMPT, _NO_PROMPT, link.token_ids, prefix=link.parent, fills=link)
            for link in chained.fills
        ]
        sequences.append(
            Prompted(work, Role.PROMPT, index, chained.rest, prefix=chained.prefix, continuations=continuations)
        )
    return sequences


class ScorePrompts(Protocol):
    def __call__(self, sequences: list[Prompted], *, in_float32: bool) -> list[Prompted]:
        """Score them; returns those that came out with numbers that are none."""


def score_with_retry(sequences: list[Prompted], score: ScorePrompts, model: ModelRunner, counters: Counters) -> None:
    """One micro-batch; what has no finite numbers is tried once more in float32, where that is wider."""
    started = time.monotonic()
    failed = score(sequences, in_float32=False)
    if failed and model.dtype != torch.float32:
        counters.add(float32_retries=len(failed))
        score(failed, in_float32=True)
    elapsed = time.monotonic() - started
    for work in {sequence.work for sequence in sequences}:
        work.forward_seconds += elapsed


@dataclass(frozen=True, slots=True)
class Place:
    """Where a micro-batch finds a prefix: kept by earlier ones, or a piece that may itself continue what they kept."""

    kept: tuple[KeptPrefix, ...] = ()
    piece: int | None = None


@dataclass(frozen=True, slots=True)
class LaidPrompt:
    sequence: Prompted
    piece: int
    continuations: list[int]  # pieces, in the order of the sequence's own; their last tokens count where padded


@dataclass(slots=True)
class PromptRow:
    """The pieces of one micro-batch. ``cache`` None: nothing is taken from it and nothing kept."""

    cache: PrefixCache | None
    packed: bool
    pieces: list[Piece] = field(default_factory=list)
    fresh: dict[Prefix | PrefixKey, KeptPrefix] = field(default_factory=dict)  # filled as the row runs
    _places: dict[Prefix | PrefixKey, Place] = field(default_factory=dict)

    def lay(self, sequences: Sequence[Prompted]) -> list[LaidPrompt]:
        """Prompts of one prefix and length lie side by side: one attention call. What only fills a prefix, first."""
        laid = []
        for sequence in sequences:
            if sequence.fills is not None:
                self._place(sequence.fills)
        prompts = (s for s in sequences if s.fills is None)
        for sequence in sorted(prompts, key=lambda s: (id(s.prefix), len(s.token_ids))):
            place = self._place(sequence.prefix)
            after = place.kept if place.piece is None else ()
            piece = self._add(Piece(sequence.token_ids, place.piece, after, token_types=sequence.token_types))
            laid.append(LaidPrompt(sequence, piece, []))
        for each in laid:
            whole = [] if self.packed else each.sequence.token_ids
            each.continuations.extend(
                self._add(Piece([*whole, *ids], each.piece if self.packed else None))
                for ids in each.sequence.continuations
            )
        return laid

    def hand_over(self, sequences: Sequence[Prompted], failed: set[Prompted], *, retired: bool) -> None:
        """After the run: requests hold what long prompts go on from, the cache keeps what led to finite numbers."""
        for sequence in sequences:
            for link in (*sequence.chain, *([sequence.fills] if sequence.fills else ())):
                states = self.fresh.get(_identity(link), link.kept)
                if sequence.fills is not None:
                    link.kept = states
                elif link.key and states and self.cache and not retired and sequence not in failed:
                    self.cache.put(link.key, states)
                    link.hot = True

    def _add(self, piece: Piece) -> int:
        self.pieces.append(piece)
        return len(self.pieces) - 1

    def _place(self, prefix: Prefix | None) -> Place:
        if prefix is None:
            return Place()
        identity = _identity(prefix)
        if identity not in self._places:
            self._places[identity] = self._laid(prefix, self._place(prefix.parent))
        return self._places[identity]

    def _laid(self, prefix: Prefix, before: Place) -> Place:
        if self.cache is None:
            return Place((), self._add(Piece(prefix.token_ids, before.piece)))
        if before.piece is None:
            known = prefix.kept or (self.cache.get(prefix.key) if prefix.key else None)
            prefix.hot = known is not None
            if known is not None:
                return Place((*before.kept, known))
        keep = self.fresh[_identity(prefix)] = KeptPrefix(len(prefix.token_ids))
        after = before.kept if before.piece is None else ()
        return Place(before.kept, self._add(Piece(prefix.token_ids, before.piece, after, keep)))


def _identity(prefix: Prefix) -> Prefix | PrefixKey:
    return prefix.key or prefix


def _borders(prompts: list[list[int]], heads: Sequence[int]) -> list[int]:
    """Where links that all prompts share end; each saves enough tokens to be worth it, every prompt keeps a rest."""
    first, last = min(prompts), max(prompts)  # in dictionary order the two extremes differ earliest
    common = min(shared_length(first, last), min(map(len, prompts)) - 1)
    borders, start = [], 0
    for border in (*heads, common if len(prompts) > 1 else 0):
        if border <= common and (border - start) * max(1, len(prompts) - 1) >= _LEAST_GAIN:
            borders.append(border)
            start = border
    return borders


def _parts(borders: list[int]) -> list[int]:
    """The borders, and between them as many more as no part needs to exceed ``PART_TOKENS``."""
    parts = []
    for start, end in zip((0, *borders), borders, strict=False):
        parts += [*range(start + PART_TOKENS, end, PART_TOKENS), end]
    return parts

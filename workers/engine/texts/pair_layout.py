"""How a query and a document become one sequence of ids: beside each other as the checkpoint's tokenizer places a pair,
or inside the prompt of an LLM reranker.

Only the template holds control tokens, and it is never cut: what is too long loses the end of its document. A query
that fills more than three quarters of the room is cut to them, so that every document keeps some."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import Enum
from itertools import groupby

from workers.engine.errors import EngineError
from workers.engine.texts.tokenizer import TextTokenizer, Tokens


@dataclass(frozen=True, slots=True)
class Pair:
    """No ids: one of the texts holds no token of its own, such as invisible characters only."""

    token_ids: list[int]
    token_types: list[int] | None
    truncated: int  # tokens cut from the document
    query_truncated: int
    heads: tuple[int, ...] = ()  # nothing of it is worth keeping but what all documents of a query share


@dataclass(frozen=True, slots=True)
class Limits:
    """Tokens; those of the whole include the template's."""

    whole: int
    query: int | None
    document: int | None


class PairLayout(ABC):
    takes_instruction = False

    @property
    @abstractmethod
    def overhead(self) -> int:
        """Tokens that every pair has beside its two texts."""

    @abstractmethod
    def place(
        self,
        queries: Sequence[str],
        documents: Sequence[str],
        pairs: Iterable[tuple[int, int]],
        limits: Limits,
        instruction: str,
    ) -> list[Pair | None]:
        """Each (query, document) by index; None where the template and the query leave no room for a document."""


class SeparatedPair(PairLayout):
    """``[CLS] query [SEP] document [SEP]`` or whatever the checkpoint's own post-processor says; each text is tokenised
    once, however many pairs it is in."""

    def __init__(self, tokenizer: TextTokenizer, *, typed: bool) -> None:
        self._tokenizer = tokenizer
        runs: list[tuple[int | None, list[int], list[int]]] = []
        for text, members in groupby(tokenizer.encode_pair_with_control("a", "b"), key=lambda token: token[2]):
            tokens = list(members)
            runs.append((text, [token[0] for token in tokens], [token[1] for token in tokens]))
        order = [text for text, _, _ in runs if text is not None]
        texts = [(ids, types) for text, ids, types in runs if text is not None]
        if order != [0, 1] or [ids for ids, _ in texts] != [tokenizer.encode("a"), tokenizer.encode("b")]:
            raise EngineError(
                "unsupported_tokenizer",
                f"The tokenizer places the pair ('a', 'b') as {[ids for _, ids, _ in runs]}, in which the plain ids of "
                "both do not follow one another. Give a checkpoint whose tokenizer places a query before its document.",
            )
        places = [index for index, (text, _, _) in enumerate(runs) if text is not None]
        borders = (runs[: places[0]], runs[places[0] + 1 : places[1]], runs[places[1] + 1 :])
        self._ids = [[i for _, ids, _ in border for i in ids] for border in borders]  # before, between, after
        border_types = [[t for _, _, types in border for t in types] for border in borders]
        typed = typed and any(map(any, [*border_types, *(types for _, types in texts)]))
        self._types = border_types if typed else None
        self._text_types = [types[0] for _, types in texts]

    @property
    def overhead(self) -> int:
        return sum(map(len, self._ids))

    def place(
        self,
        queries: Sequence[str],
        documents: Sequence[str],
        pairs: Iterable[tuple[int, int]],
        limits: Limits,
        instruction: str,
    ) -> list[Pair | None]:
        pairs = list(pairs)
        room = limits.whole - self.overhead
        query_tokens = self._encode(queries, {query for query, _ in pairs}, min(room, limits.query or room))
        document_tokens = self._encode(
            documents, {document for _, document in pairs}, min(room, limits.document or room)
        )
        return [self._place(query_tokens[query], document_tokens[document], room) for query, document in pairs]

    def _encode(self, texts: Sequence[str], wanted: set[int], limit: int) -> dict[int, Tokens]:
        return {index: self._tokenizer.encode_cut(texts[index], limit) for index in wanted}

    def _place(self, query: Tokens, document: Tokens, room: int) -> Pair | None:
        if not query.ids or not document.ids:
            return Pair([], None, document.truncated, query.truncated)
        kept_query = min(len(query.ids), max(room * 3 // 4, room - len(document.ids)))
        kept = min(len(document.ids), room - kept_query)
        if kept_query < 1 or kept < 1:
            return None
        before, between, after = self._ids
        ids = [*before, *query.ids[:kept_query], *between, *document.ids[:kept], *after]
        cut, query_cut = len(document.ids) - kept, len(query.ids) - kept_query
        return Pair(ids, self._typed(kept_query, kept), document.truncated + cut, query.truncated + query_cut)

    def _typed(self, query: int, document: int) -> list[int] | None:
        if self._types is None:
            return None
        (before, between, after), (first, second) = self._types, self._text_types
        return [*before, *query * [first], *between, *document * [second], *after]


class Slot(Enum):
    INSTRUCTION = "instruction"
    QUERY = "query"
    DOCUMENT = "document"


Segment = list[int] | tuple[str | Slot, ...]  # ids as they are, or a text with slots that is tokenised as one string


class PromptedPair(PairLayout):
    """A prompt in segments, exactly one of which holds the document. ``instruction``: what stands in its slot unless a
    request gives another; None where the prompt has no such slot, or can do without."""

    def __init__(
        self,
        tokenizer: TextTokenizer,
        segments: Sequence[Segment],
        *,
        default_instruction: str = "",
        instructed: Sequence[Segment] | None = None,
    ) -> None:
        """``instructed``: the segments where an instruction is given, if the prompt then looks otherwise."""
        self._tokenizer = tokenizer
        self._segments = segments
        self._instructed = segments if instructed is None else instructed
        self._default_instruction = default_instruction
        self.takes_instruction = any(Slot.INSTRUCTION in part for part in self._instructed if isinstance(part, tuple))

    @property
    def overhead(self) -> int:
        values = {Slot.INSTRUCTION: self._default_instruction, Slot.QUERY: "", Slot.DOCUMENT: ""}
        return sum(
            len(part) if isinstance(part, list) else len(self._tokenizer.encode(_text(part, values)))
            for part in self._segments
        )

    def place(
        self,
        queries: Sequence[str],
        documents: Sequence[str],
        pairs: Iterable[tuple[int, int]],
        limits: Limits,
        instruction: str,
    ) -> list[Pair | None]:
        encoder = _PromptEncoder(
            self._tokenizer,
            self._instructed if instruction else self._segments,
            instruction or self._default_instruction,
            limits,
        )
        return [encoder.pair(queries[query], documents[document]) for query, document in pairs]


class _PromptEncoder:
    """One request's prompts; what several of them share is tokenised once."""

    def __init__(self, tokenizer: TextTokenizer, segments: Sequence[Segment], instruction: str, limits: Limits) -> None:
        self._tokenizer = tokenizer
        self._instruction = instruction
        self._limits = limits
        place = next(i for i, part in enumerate(segments) if isinstance(part, tuple) and Slot.DOCUMENT in part)
        holder = segments[place]
        assert isinstance(holder, tuple)
        middle = holder.index(Slot.DOCUMENT)
        self._head, self._tail = segments[:place], segments[place + 1 :]
        self._before, self._after = holder[:middle], holder[middle + 1 :]
        self._queries: dict[str, tuple[dict[Slot, str], list[int], list[int], int]] = {}
        self._documents: dict[tuple[str, str, str], tuple[list[int], range, int, int]] = {}
        empty = self._fill("")
        fixed = len(self._ids(self._head, empty)) + len(self._ids(self._tail, empty))
        self._query_room = (limits.whole - fixed - len(self._ids([self._before, self._after], empty))) * 3 // 4

    def pair(self, query: str, document: str) -> Pair | None:
        known = self._queries.get(query)
        if known is None:
            known = self._queries[query] = self._query(query)
        values, head, tail, query_cut = known
        body, inside, touched, beyond = self._body(_text(self._before, values), document, _text(self._after, values))
        if not touched:
            return Pair([], None, beyond, query_cut)
        whole = len(head) + len(body) + len(tail)
        cut = max(0, whole - self._limits.whole, touched - (self._limits.document or touched))
        if cut and cut >= len(inside):
            return None
        ids = [*head, *body[: inside.stop - cut], *body[inside.stop :], *tail]
        return Pair(ids, None, cut + beyond, query_cut)

    def _query(self, query: str) -> tuple[dict[Slot, str], list[int], list[int], int]:
        limit = max(1, min(self._query_room, self._limits.query or self._query_room))
        query, cut = self._tokenizer.cut_text(query, limit)
        values = self._fill(query)
        return values, self._ids(self._head, values), self._ids(self._tail, values), cut

    def _body(self, before: str, document: str, after: str) -> tuple[list[int], range, int, int]:
        """The ids around and of the document; which lie wholly inside it and may be cut; how many hold any of its
        characters; how many tokens of it were left out beforehand."""
        key = (before, document, after)
        known = self._documents.get(key)
        if known is None:
            kept, beyond = self._tokenizer.head(document, self._limits.whole)
            ids, offsets = self._tokenizer.encode_with_offsets(before + kept + after)
            start, end = len(before), len(before) + len(kept)
            inside = [i for i, (first, last) in enumerate(offsets) if start <= first < last <= end]
            touched = sum(first < end and last > start for first, last in offsets)
            span = range(inside[0], inside[-1] + 1) if inside else range(0)
            known = self._documents[key] = (ids, span, touched, beyond)
        return known

    def _ids(self, segments: Sequence[Segment], values: dict[Slot, str]) -> list[int]:
        ids: list[int] = []
        for part in segments:
            ids += part if isinstance(part, list) else self._tokenizer.encode(_text(part, values))
        return ids

    def _fill(self, query: str) -> dict[Slot, str]:
        return {Slot.INSTRUCTION: self._instruction, Slot.QUERY: query}


def _text(parts: tuple[str | Slot, ...], values: dict[Slot, str]) -> str:
    return "".join(values[part] if isinstance(part, Slot) else part for part in parts)

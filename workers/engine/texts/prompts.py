"""From the queries and documents of a request to the prompts of a generative model: one for each distinct pair.

Texts go through a template. Token ids are joined as they are; a text beside token ids is tokenised by itself."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from workers.engine.errors import EngineError
from workers.engine.outputs import is_blank, pair_indices, refuse_too_long
from workers.engine.texts.templates import Prompt, PromptTemplate
from workers.engine.texts.tokenizer import TextTokenizer
from workers.engine.types import ScoringOptions, ScoringRequest

Side = str | tuple[int, ...]  # a query or document as it was given


@dataclass(frozen=True, slots=True)
class PromptSet:
    of_pair: npt.NDArray[np.intp]  # [P], each pair's prompt; -1: a side is empty
    pairs: list[tuple[int, int]]  # for each prompt one (query, document) that it is for
    prompts: list[Prompt | None]  # None: no room for the document


class PromptBuilder:
    """``build`` makes one prompt; ``template`` is None where token ids take its place. ``room``: tokens of a prompt."""

    def __init__(
        self, template: PromptTemplate | None, tokenizer: TextTokenizer, options: ScoringOptions, room: int
    ) -> None:
        self.room = room
        self._template = template
        self._tokenizer = tokenizer
        self._options = options

    def build(self, query: Side, document: Side) -> Prompt | None:
        options = self._options
        if self._template is None:
            return self._joined(self._ids(query, surrounded=options.add_special_tokens), self._ids(document))
        assert isinstance(query, str) and isinstance(document, str)
        return self._template.build(
            query,
            document,
            max_length=self.room,
            max_query=options.max_tokens_per_query,
            max_item=options.max_tokens_per_document,
        )

    def build_all(self, request: ScoringRequest) -> PromptSet:
        """Every distinct pair's prompt; raises if the request forbids the cut that one needs."""
        options = self._options
        queries, documents = sides(request)
        of_pair, pairs = _distinct_pairs(request)
        prompts = [self.build(queries[query], documents[document]) for query, document in pairs]
        made = [(pair, prompt) for pair, prompt in zip(pairs, prompts, strict=True) if prompt is not None]
        refuse_too_long(
            options.truncation, "documents", {d: prompt.truncated for (_, d), prompt in made if prompt.truncated}
        )
        refuse_too_long(
            options.truncation,
            "queries",
            {q: prompt.query_truncated for (q, _), prompt in made if prompt.query_truncated},
        )
        return PromptSet(of_pair, pairs, prompts)

    def _ids(self, side: Side, *, surrounded: bool = False) -> list[int]:
        if not isinstance(side, str):
            return list(side)
        ids = self._tokenizer.encode(side)
        return [*self._tokenizer.prefix_ids, *ids, *self._tokenizer.suffix_ids] if surrounded else ids

    def _joined(self, query: list[int], item: list[int]) -> Prompt | None:
        options = self._options
        query, beyond = query[: options.max_tokens_per_query], len(query[options.max_tokens_per_query or len(query) :])
        cut = max(0, len(query) + len(item) - self.room, len(item) - (options.max_tokens_per_document or len(item)))
        if cut and cut >= len(item):
            return None
        kept = item[: len(item) - cut]
        ids = [*kept, *query] if options.item_first else [*query, *kept]
        return Prompt(ids, cut, beyond, len(item), (0,) if options.item_first else (len(query),))


def sides(request: ScoringRequest) -> tuple[tuple[Side, ...], tuple[Side, ...]]:
    return request.query_ids or request.queries, request.document_ids or request.documents


def refuse_strange_ids(request: ScoringRequest, vocabulary: int) -> None:
    """Raise if a side is given twice, or holds ids that are no tokens of the model."""
    for name, texts, given in (
        ("queries", request.queries, request.query_ids),
        ("documents", request.documents, request.document_ids),
    ):
        if texts and given:
            raise EngineError(
                "text_and_token_ids", f"The {name} are given as texts and as token ids. Give one of them."
            )
        strange = {i: odd for i, ids in enumerate(given) if (odd := [t for t in ids if not 0 <= t < vocabulary])}
        if strange:
            named = "; ".join(f"{name}[{i}]: {odd[:8]}" for i, odd in list(strange.items())[:8])
            raise EngineError(
                "unknown_prompt_token_id",
                f"Token ids outside the model's vocabulary of {vocabulary}: {named}. Give ids from its tokenizer.",
            )
    if request.options.template and (request.query_ids or request.document_ids):
        raise EngineError(
            "bad_template",
            "Token ids are joined as they are, so a template has no place beside them. Leave it out, or give texts.",
        )


def _distinct_pairs(request: ScoringRequest) -> tuple[npt.NDArray[np.intp], list[tuple[int, int]]]:
    places: dict[tuple[Side, Side], int] = {}
    pairs: list[tuple[int, int]] = []
    of_pair = []
    queries, documents = sides(request)
    blank_queries, blank_documents = ([_holds_nothing(each) for each in side] for side in (queries, documents))
    for query, document in zip(*pair_indices(request), strict=True):
        if blank_queries[query] or blank_documents[document]:
            of_pair.append(-1)
            continue
        texts = queries[query], documents[document]
        if texts not in places:
            places[texts] = len(pairs)
            pairs.append((int(query), int(document)))
        of_pair.append(places[texts])
    return np.array(of_pair, dtype=np.intp), pairs


def _holds_nothing(side: Side) -> bool:
    return is_blank(side) if isinstance(side, str) else not side

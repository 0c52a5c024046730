"""The prompts of jina-reranker-v3: a query and a block of passages read together, a marker behind each passage and one
behind the repeated query.

Only the prompt itself holds markers: what stands between two control tokens is tokenised as one string that can hold
none. Passages are cut each to its own limit before they are laid into the prompt, so no marker is ever cut off."""

from __future__ import annotations

from dataclasses import dataclass, field

from workers.engine.errors import EngineError
from workers.engine.texts.tokenizer import TextTokenizer

PASSAGE_MARKER, QUERY_MARKER = "<|embed_token|>", "<|rerank_token|>"
_PUBLISHED_IDS = {PASSAGE_MARKER: 151670, QUERY_MARKER: 151671}
_BLOCK = 125  # passages in one prompt
_PASSAGE_TOKENS, _QUERY_TOKENS = 2048, 512  # the recipe's own limits, where the request gives none
_SEAM = 8  # tokens that joining a passage with the words before it may cost
_LEAST = 128  # tokens for a query, written twice, and passages
# Wording, markers and limits are the checkpoint's interface: its weights were trained with them.
_SYSTEM = (
    "<|im_start|>system\n"
    "You are a search relevance expert who can determine a ranking of the passages based on how relevant they are to "
    "the query. If the query is a question, how relevant a passage is depends on how well it answers the question. "
    "If not, try to analyze the intent of the query and assess how well each passage satisfies the intent. "
    "If an instruction is provided, you should follow the instruction when determining the ranking."
    "<|im_end|>\n<|im_start|>"
)
_ANSWER = "<|im_end|>\n<|im_start|>assistant\n<think>\n\n</think>\n\n"


@dataclass(frozen=True, slots=True)
class Block:
    token_ids: list[int]
    passages: list[int]  # which of the list, in their order
    passage_marks: list[int]  # where in ``token_ids`` each one's marker is
    query_mark: int


@dataclass(frozen=True, slots=True)
class Blocks:
    blocks: list[Block]
    truncated: list[int]  # tokens cut from each passage
    query_truncated: int


@dataclass(slots=True)
class _Open:
    """A block that is being filled."""

    capacity: int  # by the recipe's count: without the words around the passages
    used: int  # tokens in truth
    passages: list[int] = field(default_factory=list)
    texts: list[str] = field(default_factory=list)


class ListwisePrompt:
    """The recipe with one tokenizer; ``blocks`` is safe to call from several threads."""

    def __init__(self, tokenizer: TextTokenizer, max_length: int) -> None:
        self._tokenizer = tokenizer
        self._max_length = max_length
        missing = [marker for marker in _PUBLISHED_IDS if marker not in tokenizer.control]
        if missing:
            raise EngineError(
                "unsupported_tokenizer",
                f"The tokenizer has no {' and no '.join(missing)}, which a listwise model's prompt needs. Give the "
                "folder of jina-reranker-v3, or register the model as another kind.",
            )
        self._passage_id, self._query_id = (tokenizer.control[marker] for marker in _PUBLISHED_IDS)
        published = {marker: tokenizer.control[marker] for marker in _PUBLISHED_IDS}
        if tokenizer.size > max(_PUBLISHED_IDS.values()) and published != _PUBLISHED_IDS:
            raise EngineError(
                "unsupported_tokenizer", f"The markers have the ids {published}; the weights know {_PUBLISHED_IDS}."
            )
        self._head, self._tail = (tokenizer.encode_with_control(part) for part in (_SYSTEM, _ANSWER))
        least = self._fixed("", "") + _LEAST
        if max_length < least:
            raise EngineError(
                "bad_max_length",
                f"max_length is {max_length}, but the prompt around the passages alone takes about {least} tokens. "
                "Give several thousand: all passages of a block share them.",
            )
        self._check()

    def blocks(
        self,
        query: str,
        passages: list[str],
        instruction: str = "",
        *,
        max_query: int | None = None,
        max_passage: int | None = None,
    ) -> Blocks:
        """At most 125 passages a block, closed as the recipe does when one more of full length might not fit."""
        fixed = self._fixed("", instruction)
        room = self._max_length - fixed
        query, query_tokens, query_truncated = self._cut(query, min(max_query or _QUERY_TOKENS, max(1, room // 4)))
        fixed = self._fixed(query, instruction)
        limit = min(max_passage or _PASSAGE_TOKENS, self._max_length - fixed - self._cost("", _BLOCK))
        if limit < 1:
            raise EngineError(
                "no_room",
                f"Query and instruction fill the prompt of {self._max_length} tokens: no passage has room beside them. "
                "Shorten them, or load the model with a larger max_length.",
            )
        blocks: list[Block] = []
        truncated = []
        opened = _Open(self._max_length - 2 * query_tokens, fixed)
        for place, passage in enumerate(passages):
            text, tokens, cut = self._cut(passage, limit)
            truncated.append(cut)
            cost = self._cost(text, len(opened.texts))
            if opened.texts and opened.used + cost > self._max_length:
                blocks.append(self._close(opened, query, instruction))
                opened = _Open(self._max_length - 2 * query_tokens, fixed)
            opened.passages.append(place)
            opened.texts.append(text)
            opened.capacity -= tokens
            opened.used += cost
            if len(opened.texts) >= _BLOCK or opened.capacity <= limit:
                blocks.append(self._close(opened, query, instruction))
                opened = _Open(self._max_length - 2 * query_tokens, fixed)
        if opened.texts:
            blocks.append(self._close(opened, query, instruction))
        return Blocks(blocks, truncated, query_truncated)

    def _close(self, opened: _Open, query: str, instruction: str) -> Block:
        """Lay the prompt out and verify that every marker is in it."""
        ids, marks = list(self._head), []
        for number, text in enumerate(opened.texts):
            before = _opening(len(opened.texts), query, instruction) if number == 0 else "\n</passage>\n"
            ids += self._tokenizer.encode(f'{before}<passage id="{number}">\n{text}')
            marks.append(len(ids))
            ids.append(self._passage_id)
        ids += self._tokenizer.encode(f"\n</passage>\n<query>\n{query}")
        query_mark = len(ids)
        ids += [self._query_id, *self._tokenizer.encode("\n</query>"), *self._tail]
        found = [place for place, token_id in enumerate(ids) if token_id == self._passage_id]
        if found != marks or ids.count(self._query_id) != 1 or len(ids) > self._max_length:
            raise EngineError(
                "broken_prompt",
                f"A prompt of {len(opened.texts)} passages came out with {len(found)} passage markers, "
                f"{ids.count(self._query_id)} query markers and {len(ids)} of at most {self._max_length} tokens. "
                "Nothing was scored; give a tokenizer that belongs to the checkpoint.",
            )
        return Block(ids, opened.passages, marks, query_mark)

    def _fixed(self, query: str, instruction: str) -> int:
        """Tokens of a prompt without its passages, an upper bound."""
        opening = self._tokenizer.encode(_opening(_BLOCK, query, instruction))
        closing = self._tokenizer.encode(f"\n</passage>\n<query>\n{query}")
        return (
            len(self._head)
            + len(opening)
            + len(closing)
            + 1
            + len(self._tokenizer.encode("\n</query>"))
            + len(self._tail)
            + _SEAM
        )

    def _cost(self, text: str, number: int) -> int:
        return 1 + len(self._tokenizer.encode(f'\n</passage>\n<passage id="{number}">\n{text}'))

    def _cut(self, text: str, limit: int) -> tuple[str, int, int]:
        """The beginning of a text that has ``limit`` tokens, how many it has, and how many are left out."""
        text, beyond = self._tokenizer.head(text, limit)
        ids, offsets = self._tokenizer.encode_with_offsets(text)
        if len(ids) <= limit:
            return text, len(ids), beyond
        return text[: offsets[limit - 1][1]], limit, beyond + len(ids) - limit

    def _check(self) -> None:
        """Laid out piece by piece, a prompt must be what the checkpoint's own tokenizer makes of the whole string."""
        query, passages, instruction = (
            "what is a test?",
            ["A test shows whether it works.", "Water boils."],
            "Be strict.",
        )
        built = self._close(_Open(0, 0, [0, 1], passages), query, instruction).token_ids
        body = "\n".join(
            f'<passage id="{number}">\n{passage}{PASSAGE_MARKER}\n</passage>' for number, passage in enumerate(passages)
        )
        whole = f"{_SYSTEM}{_opening(2, query, instruction)}{body}\n<query>\n{query}{QUERY_MARKER}\n</query>{_ANSWER}"
        if built != self._tokenizer.encode_with_control(whole):
            raise EngineError(
                "unsupported_tokenizer",
                "This tokenizer joins its control tokens with the text around them, which listwise prompts of foreign "
                "texts cannot follow. Use another checkpoint.",
            )


def _opening(passages: int, query: str, instruction: str) -> str:
    asked = f"<instruct>\n{instruction}\n</instruct>\n" if instruction else ""
    return (
        f"user\nI will provide you with {passages} passages, each indicated by a numerical identifier. "
        f"Rank the passages based on their relevance to query: {query}\n{asked}"
    )

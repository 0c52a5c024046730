"""Texts for late interaction: a marker behind the first token, queries filled up with the expansion token.

Markers and expansion tokens are put in by id, so a text that holds "[Q] " or "[MASK]" stays text."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

from workers.engine.errors import EngineError
from workers.engine.late_settings import LateSettings
from workers.engine.prompts import PromptedLayout
from workers.engine.role import Role
from workers.engine.tokenizer import TextTokenizer, Tokens

_EXPANSION = ("mask_token", "eos_token", "pad_token")  # the first that the tokenizer has


class MarkedLayout:
    """``lengths`` by role are whole; ``skipped`` are the token ids of documents that are not compared."""

    def __init__(
        self, tokenizer: TextTokenizer, settings: LateSettings, lengths: Mapping[Role, int], skipped: Collection[int]
    ) -> None:
        self._markers = {role: _marker(tokenizer, text) for role, text in settings.markers.items()}
        self._plain = {
            role: PromptedLayout(tokenizer, lengths[role] - len(marker), {role: settings.prompts.get(role, "")})
            for role, marker in self._markers.items()
        }
        self._fill_to = lengths[Role.QUERY] if settings.expands_queries else 0
        self._filler = _expansion_id(tokenizer) if settings.expands_queries else 0
        self._attends_expansion = settings.attends_expansion
        self._skipped = skipped

    def room(self, role: Role, instruction: str) -> int:
        return self._plain[role].room(role, "")

    def encode(self, texts: Sequence[str], role: Role, limit: int, instruction: str) -> list[Tokens]:
        return [self._mark(tokens, role) for tokens in self._plain[role].encode(texts, role, limit, "")]

    def _mark(self, tokens: Tokens, role: Role) -> Tokens:
        ids = [*tokens.ids[:1], *self._markers[role], *tokens.ids[1:]]
        if role is Role.QUERY:
            fill = self._fill_to - len(ids) if tokens.own else 0
            attended = len(ids) if fill > 0 and not self._attends_expansion else None
            return Tokens(ids + [self._filler] * fill, tokens.truncated, tokens.own, attended)
        compared = any(token_id not in self._skipped for token_id in ids)
        return Tokens(ids, tokens.truncated, tokens.own if compared else 0)


def _marker(tokenizer: TextTokenizer, text: str) -> list[int]:
    if not text:
        return []
    token_id = tokenizer.id_of(text)
    if token_id is None:
        raise EngineError(
            "missing_marker",
            f"The checkpoint marks its texts with {text!r}, which its tokenizer does not hold as one token. Save the "
            "tokenizer again with the library that trained it.",
        )
    return [token_id]


def _expansion_id(tokenizer: TextTokenizer) -> int:
    for name in _EXPANSION:
        if name in tokenizer.roles:
            return tokenizer.roles[name]
    raise EngineError(
        "missing_marker",
        "The checkpoint expands its queries, but its tokenizer names no mask, end or padding token to do it with.",
    )

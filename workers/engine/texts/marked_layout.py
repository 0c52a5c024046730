"""Texts for late interaction: a marker behind the first token, queries filled up with the expansion token.

Markers and expansion tokens are put in by id, so a text that holds "[Q] " or "[MASK]" stays text."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

from workers.engine.errors import EngineError
from workers.engine.families.late_settings import LateSettings
from workers.engine.role import Role
from workers.engine.texts.text_prompts import PromptedLayout
from workers.engine.texts.tokenizer import TextTokenizer, Tokens

_EXPANSION = ("mask_token", "eos_token", "pad_token")  # the first that the tokenizer has


class MarkedLayout:
    """``lengths`` by role are whole; ``skipped`` are the token ids of documents that are not compared."""

    def __init__(
        self, tokenizer: TextTokenizer, settings: LateSettings, lengths: Mapping[Role, int], skipped: Collection[int]
    ) -> None:
        self._markers = {role: _marker(tokenizer, settings.markers.get(role, "")) for role in lengths}
        self._plain = {
            role: PromptedLayout(tokenizer, lengths[role] - len(marker), {role: settings.prompts.get(role, "")})
            for role, marker in self._markers.items()
        }
        self._expansion = settings.expansion
        self._filling: list[int] = []
        if settings.expansion is not None:
            length = min(settings.expansion.length, lengths[Role.QUERY])
            self._filling = [_expansion_id(tokenizer, settings.expansion.token)] * length
        self._skipped = skipped

    def room(self, role: Role, instruction: str) -> int:
        return self._plain[role].room(role, "")

    def encode(self, texts: Sequence[str], role: Role, limit: int, instruction: str) -> list[Tokens]:
        return [self._mark(tokens, role) for tokens in self._plain[role].encode(texts, role, limit, "")]

    def _mark(self, tokens: Tokens, role: Role) -> Tokens:
        ids = [*tokens.ids[:1], *self._markers[role], *tokens.ids[1:]]
        if role is Role.QUERY:
            filling = self._filling[len(ids) :]
            unseen = bool(filling) and self._expansion is not None and not self._expansion.attended
            attended = len(ids) if unseen else None
            return Tokens(ids + filling, tokens.truncated, tokens.own, attended, filled=len(filling))
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


def _expansion_id(tokenizer: TextTokenizer, token: str | None) -> int:
    named = [tokenizer.roles[name] for name in _EXPANSION if name in tokenizer.roles]
    found = tokenizer.id_of(token) if token is not None else next(iter(named), None)
    if found is None:
        raise EngineError(
            "missing_marker",
            f"The checkpoint expands its queries, but its tokenizer has no {token or 'mask, end or padding token'} to "
            "do it with.",
        )
    return found

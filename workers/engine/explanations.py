"""What a model read, token by token, and what was cut from the texts: the part of an explanation that all kinds share.

Whatever is shown is of the very run that gave the score: nothing here runs the model."""

from __future__ import annotations

from collections.abc import Sequence

from workers.engine.explanation_types import TokenRow, TokenUse
from workers.engine.role import Role
from workers.engine.texts.tokenizer import TextTokenizer, Tokens


def token_row(
    tokenizer: TextTokenizer, role: Role, token_ids: Sequence[int], uses: Sequence[TokenUse] = ()
) -> TokenRow:
    """``uses``: of the tokens that are no control tokens; by default they are text."""
    control = set(tokenizer.control.values())
    uses = uses or [TokenUse.TEXT] * len(token_ids)
    told = tuple(
        TokenUse.SPECIAL if use in (TokenUse.TEXT, TokenUse.PREFIX) and token_id in control else use
        for token_id, use in zip(token_ids, uses, strict=True)
    )
    return TokenRow(role.value, tuple(token_ids), tuple(tokenizer.texts_of(token_ids)), told)


def uses_of(tokens: Tokens, suffix: int, kept: Sequence[int] | None) -> list[TokenUse]:
    """Of a text by itself, as its layout dressed it: ``suffix`` control tokens behind it, then the expansion; ``kept``
    are the places that are compared, None: all."""
    prefix = len(tokens.ids) - tokens.own - suffix - tokens.filled
    uses = [
        *[TokenUse.PREFIX] * prefix,
        *[TokenUse.TEXT] * tokens.own,
        *[TokenUse.SPECIAL] * suffix,
        *[TokenUse.EXPANSION] * tokens.filled,
    ]
    for place in set(range(len(uses))).difference(range(len(uses)) if kept is None else kept):
        uses[place] = TokenUse.SKIPPED
    return uses


def cut_text(tokenizer: TextTokenizer, texts: Sequence[str], index: int, tokens: int) -> str:
    """The end of a text that so many of its tokens stand for; empty for one given as token ids."""
    if not tokens or not texts:
        return ""
    text = texts[index]
    places = tokenizer.offsets(text)
    return text[places[max(0, len(places) - tokens)][0] :] if places else ""

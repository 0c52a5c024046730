"""Tokens of one label, side by side, to spans of the text: named entities and the like.

Shapes: n tokens, K labels."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import numpy.typing as npt

from workers.engine.texts.tokenizer import TextTokenizer
from workers.engine.types import Span

_OUTSIDE = "O"


def token_spans(
    text: str, shares: npt.NDArray[np.float32], offsets: list[tuple[int, int]], labels: tuple[str, ...]
) -> tuple[Span, ...]:
    """``shares [n, K]``, ``offsets`` of n tokens: first and last-plus-one character.

    Each token has its best label; ``B-`` begins a span, anything else goes on with one of its label. A span's score is
    the mean of its tokens' best shares. What is labelled ``O`` is in none, nor is white space around one.
    """
    best = shares.argmax(axis=1)
    tags = [_tag(labels[label]) for label in best]
    borders = [place for place in range(len(tags)) if _begins(tags, place)]
    spans = []
    for first, end in pairwise([*borders, len(tags)]):
        label = tags[first][1]
        if label != _OUTSIDE:
            score = float(shares[np.arange(first, end), best[first:end]].mean())
            spans.append(Span(label, score, *_trimmed(text, offsets[first][0], offsets[end - 1][1])))
    return tuple(spans)


def token_offsets(tokenizer: TextTokenizer, text: str, count: int) -> list[tuple[int, int]]:
    """Of the first ``count`` tokens of a text; a long one is not tokenised to its end again."""
    text, _ = tokenizer.head(text, count)
    _, offsets = tokenizer.encode_with_offsets(text)
    return offsets[:count]


def _trimmed(text: str, start: int, end: int) -> tuple[int, int]:
    covered = text[start:end]
    if not covered.strip():
        return start, end
    return start + len(covered) - len(covered.lstrip()), end - len(covered) + len(covered.rstrip())


def _tag(label: str) -> tuple[bool, str]:
    """Whether the label begins a span of its own, and its name."""
    return label.startswith("B-"), label[2:] if label.startswith(("B-", "I-")) else label


def _begins(tags: list[tuple[bool, str]], place: int) -> bool:
    return place == 0 or tags[place][0] or tags[place][1] != tags[place - 1][1]

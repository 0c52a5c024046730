"""How long the texts of a set are, counted while they go by. In words: what a token is differs between models."""

from __future__ import annotations

from typing import Any, Final

# Ends of the histogram's columns: each twice the one before, as limits of models are powers of two.
ENDS: Final = (8, 16, 32, 64, 128, 256, 512, 1024, 2048, 4096)


class TextLengths:
    """``words`` and ``characters`` in all texts, the most words in one, and how many texts fall below each end."""

    def __init__(self) -> None:
        self.words = self.characters = self.longest = 0
        self.columns = [0] * (len(ENDS) + 1)

    def add(self, text: str) -> None:
        # Splitting would copy every text; blanks are counted instead, which is exact for single ones.
        words = text.count(" ") + text.count("\n") + 1 if text else 0
        self.words += words
        self.characters += len(text)
        self.longest = max(self.longest, words)
        if words:
            # The place of the highest bit above the first end's: no search.
            self.columns[min(max((words - 1).bit_length() - 3, 0), len(ENDS))] += 1

    def to_json(self) -> dict[str, Any]:
        return {
            "words": self.words,
            "characters": self.characters,
            "longest": self.longest,
            "histogram": self.columns,
        }


def length_labels() -> list[str]:
    """What each column of the histogram holds, shortest first."""
    starts = (1, *(end + 1 for end in ENDS))
    return [*(f"{start:,}–{end:,}" for start, end in zip(starts, ENDS, strict=False)), f"over {ENDS[-1]:,}"]

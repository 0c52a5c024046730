"""Tags of queries: what stands in their metadata under this name, a list or a text of several."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Mapping
from typing import Any, Final

SEPARATORS: Final = re.compile(r"[,;|]")
LONGEST: Final = 60
MOST_COUNTED: Final = 10_000  # different ones of one set
MOST_KEPT: Final = 100


def tags_of(metadata: Mapping[str, Any]) -> list[str]:
    """In their order, each once."""
    given = metadata.get("tags")
    parts = given if isinstance(given, list) else SEPARATORS.split(given) if isinstance(given, str) else []
    tags = (str(part).strip() for part in parts if isinstance(part, str | int | float))
    return [tag for tag in dict.fromkeys(tags) if tag and len(tag) <= LONGEST]


class TagCounts:
    """How many rows have each tag, counted while they go by."""

    def __init__(self) -> None:
        self._counts: Counter[str] = Counter()

    def add(self, metadata: str) -> None:
        """``metadata`` as JSON."""
        if '"tags"' not in metadata:
            return
        for tag in tags_of(json.loads(metadata)):
            if tag in self._counts or len(self._counts) < MOST_COUNTED:
                self._counts[tag] += 1

    def to_json(self) -> list[tuple[str, int]]:
        """The most frequent ones first."""
        return self._counts.most_common(MOST_KEPT)

"""The tags of queries: what their column ``tags`` held, a list or a text with separators between them."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Final

from scoring.models import QuerySet
from scoring.selectors.texts import texts_gone

SEPARATORS: Final = re.compile(r"[,;|]")


def tags_of(metadata: Mapping[str, Any]) -> list[str]:
    """In order, each once."""
    given = metadata.get("tags")
    parts = given if isinstance(given, list) else SEPARATORS.split(given) if isinstance(given, str) else []
    return list(dict.fromkeys(tag for part in parts if (tag := str(part).strip())))


def query_tags(query_set: QuerySet) -> dict[str, list[int]]:
    """Positions of the queries of each tag, ascending; tags in alphabetical order."""
    if texts_gone(query_set):
        return {}
    tagged: dict[str, list[int]] = {}
    rows = query_set.queries.filter(metadata__has_key="tags").order_by("position")
    for position, metadata in rows.values_list("position", "metadata").iterator():
        for tag in tags_of(metadata):
            tagged.setdefault(tag, []).append(position)
    return dict(sorted(tagged.items()))

"""Which queries of a set have which tags."""

from __future__ import annotations

from scoring.ingest.tags import tags_of
from scoring.models import QuerySet
from scoring.selectors.texts import texts_gone


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

"""Examples of the playground: saved, shared with the team by their address, deleted."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from assay.api.principal import Principal
from audit.services import audit_record
from scoring.models import PlaygroundExample, ScoringModel


def example_save(
    *,
    principal: Principal,
    title: str,
    models: Sequence[ScoringModel],
    query: str,
    documents: Sequence[str],
    options: Mapping[str, Any],
) -> PlaygroundExample:
    """``options``: instruction, labels and template, where they were given."""
    example = PlaygroundExample.objects.create(
        team=principal.team,
        created_by=principal.user,
        title=title.strip() or query.strip()[:80],
        model_names=[model.name for model in models],
        query=query,
        documents=list(documents),
        options=dict(options),
    )
    audit_record(verb="example.saved", principal=principal, target=example)
    return example


def example_delete(*, principal: Principal, example: PlaygroundExample) -> None:
    audit_record(verb="example.deleted", principal=principal, target=example)
    example.delete()

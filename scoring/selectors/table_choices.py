"""Which columns of a table a person wants to see."""

from __future__ import annotations

from django.contrib.auth.models import User

from scoring.models import TableChoice


def table_choice_of(*, user: User, table: str) -> list[str]:
    """Their names in order; empty where the person chose nothing."""
    return TableChoice.objects.filter(user=user, table=table).values_list("columns", flat=True).first() or []

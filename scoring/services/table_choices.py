"""What a person chose to see of a table."""

from __future__ import annotations

from collections.abc import Sequence

from django.contrib.auth.models import User

from scoring.models import TableChoice


def table_choice_keep(*, user: User, table: str, columns: Sequence[str]) -> None:
    TableChoice.objects.update_or_create(user=user, table=table, defaults={"columns": list(columns)})


def table_choice_forget(*, user: User, table: str) -> None:
    TableChoice.objects.filter(user=user, table=table).delete()

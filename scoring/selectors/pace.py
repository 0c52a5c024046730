"""How fast models were here."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import timedelta
from typing import Final

from django.db.models import Sum
from django.db.models.functions import Now

from scoring.models import Usage

MEASURED: Final = timedelta(days=30)


def model_paces(names: Iterable[str]) -> dict[str, float]:
    """By name: documents per second of computing over the last 30 days, of requests and jobs together. A model that
    scored nothing is left out. One query."""
    recent = Usage.objects.filter(model_name__in=list(names), day__gt=Now() - MEASURED)
    sums = recent.order_by().values("model_name").annotate(scored=Sum("documents"), seconds=Sum("compute_seconds"))
    return {row["model_name"]: row["scored"] / row["seconds"] for row in sums if row["scored"] and row["seconds"]}

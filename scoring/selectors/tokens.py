"""Reads about a team's API tokens."""

from __future__ import annotations

from django.db.models import Case, CharField, Q, QuerySet, Value, When
from django.db.models.functions import Now

from accounts.models import ApiToken, Team


def tokens_of(team: Team) -> QuerySet[ApiToken]:
    """Each with its ``standing``: whether it can be used now."""
    standing = Case(
        When(enabled=False, then=Value("revoked")),
        When(Q(expires_at__lte=Now()), then=Value("expired")),
        default=Value("in use"),
        output_field=CharField(),
    )
    return (
        ApiToken.objects.filter(team=team)
        .select_related("created_by")
        .annotate(standing=standing)
        .order_by("-created_at")
    )

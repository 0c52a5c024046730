"""Who belongs to a team."""

from __future__ import annotations

from typing import Any

from django.db.models import Count, Q, QuerySet

from accounts.models import Membership, Team


def members_of(team: Team) -> QuerySet[Any]:
    """Each with ``token_count``: the tokens in use that they made for this team."""
    made = Count("user__tokens", filter=Q(user__tokens__team=team, user__tokens__enabled=True))
    return (
        Membership.objects.filter(team=team)
        .select_related("user")
        .annotate(token_count=made)
        .order_by("user__username")
    )

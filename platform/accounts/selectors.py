"""Reads about API tokens."""

from __future__ import annotations

from django.conf import settings
from django.db.models import Q
from django.utils import timezone

from accounts.models import ApiToken


def tokens_by_pepper() -> dict[int, list[ApiToken]]:
    """Tokens that are neither revoked nor expired, by the pepper that made them; every known pepper has an entry."""
    alive = Q(expires_at__isnull=True) | Q(expires_at__gt=timezone.now())
    found: dict[int, list[ApiToken]] = {pepper_id: [] for pepper_id in settings.TOKEN_PEPPERS}
    for token in ApiToken.objects.filter(alive, enabled=True).select_related("team", "created_by").order_by("pk"):
        found.setdefault(token.pepper_id, []).append(token)
    return dict(sorted(found.items()))

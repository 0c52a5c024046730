"""Reads about API tokens."""

from __future__ import annotations

from typing import Any, Final

from django.conf import settings
from django.contrib.auth.models import User
from django.db import connection
from django.db.models import Q
from django.utils import timezone

from accounts.models import ApiToken, Team
from assay.kept import Kept

# Asked often: as a text that is ready it costs a quarter of the processor time that the same question costs through the
# query builder (benchmarks/tokens.py).
TEAM_FIELDS: Final = tuple(field.attname for field in Team._meta.concrete_fields)  # its quotas are asked next
OWNER_FIELDS: Final = ("id", "is_superuser", "username", "is_active")  # in the order of the model, as from_db wants
FIND: Final = f"""
SELECT token.*, member.role AS owner_role,
    {", ".join(f"team.{field} AS team_{field}" for field in TEAM_FIELDS)},
    {", ".join(f"owner.{field} AS owner_{field}" for field in OWNER_FIELDS)}
FROM accounts_apitoken token
JOIN accounts_team team ON team.id = token.team_id
LEFT JOIN auth_user owner ON owner.id = token.created_by_id
LEFT JOIN accounts_membership member ON member.user_id = token.created_by_id AND member.team_id = token.team_id
WHERE token.public_id = %s
"""


def token_found(public_id: str) -> Any | None:
    """The token with its team, who made it, and ``owner_role``: what that person is in the team by now."""
    with connection.cursor() as cursor:
        cursor.execute(FIND, [public_id])
        row = cursor.fetchone()
        if row is None:
            return None
        found = dict(zip((column.name for column in cursor.description or ()), row, strict=True))
    fields = [field.attname for field in ApiToken._meta.concrete_fields]
    token: Any = ApiToken.from_db(connection.alias, fields, [found[field] for field in fields])
    token.team = Team.from_db(connection.alias, TEAM_FIELDS, [found[f"team_{field}"] for field in TEAM_FIELDS])
    owner = [found[f"owner_{field}"] for field in OWNER_FIELDS]
    token.created_by = User.from_db(connection.alias, OWNER_FIELDS, owner) if found["created_by_id"] else None
    token.owner_role = found["owner_role"]
    return token


tokens_kept: Final = Kept[str, Any](token_found)  # a revocation is in force everywhere when these are read again


def tokens_by_pepper() -> dict[int, list[ApiToken]]:
    """Tokens that are neither revoked nor expired, by the pepper that made them; every known pepper has an entry."""
    alive = Q(expires_at__isnull=True) | Q(expires_at__gt=timezone.now())
    found: dict[int, list[ApiToken]] = {pepper_id: [] for pepper_id in settings.TOKEN_PEPPERS}
    for token in ApiToken.objects.filter(alive, enabled=True).select_related("team", "created_by").order_by("pk"):
        found.setdefault(token.pepper_id, []).append(token)
    return dict(sorted(found.items()))

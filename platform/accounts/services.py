"""Make, revoke and check API tokens; say who a token or a user acts for."""

from __future__ import annotations

import hashlib
import hmac
import re
import secrets
from collections.abc import Collection
from datetime import datetime, timedelta

from django.conf import settings
from django.contrib.auth.models import User
from django.core.exceptions import PermissionDenied
from django.db import transaction
from django.db.models import Q
from django.utils import timezone

from accounts.models import ApiToken, Membership, Team
from accounts.scopes import ALL_SCOPES, ROLE_SCOPES
from assay.api.principal import Principal
from assay.errors import AssayError
from audit.services import audit_record

VERBS = {
    "token.created": "created API token {target}",
    "token.revoked": "revoked API token {target}",
}
PREFIX = "assay_"
ALPHABET = "0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"
SECRET_FORM = re.compile(PREFIX + r"([0-9a-zA-Z]{12})_[0-9a-zA-Z]{43}")  # 43 letters of 62: 256 bits
LAST_USED_EVERY = timedelta(minutes=1)


@transaction.atomic
def token_create(
    *,
    team: Team,
    name: str,
    scopes: Collection[str],
    created_by: User | None = None,
    expires_at: datetime | None = None,
) -> tuple[ApiToken, str]:
    """Make a token and return it with its secret, which exists nowhere else from now on."""
    if not scopes or not set(scopes) <= ALL_SCOPES:
        given, known = ", ".join(sorted(scopes)) or "none", ", ".join(sorted(ALL_SCOPES))
        message = f"A token needs scopes out of {known}; given: {given}."
        raise AssayError("unknown_scope", message, status=422, param="scopes")
    public_id = "".join(secrets.choice(ALPHABET) for _ in range(12))
    secret = f"{PREFIX}{public_id}_" + "".join(secrets.choice(ALPHABET) for _ in range(43))
    pepper_id = max(settings.TOKEN_PEPPERS)
    token = ApiToken.objects.create(
        public_id=public_id,
        name=name,
        team=team,
        created_by=created_by,
        scopes=sorted(set(scopes)),
        pepper_id=pepper_id,
        digest=_digest(secret, pepper_id),
        expires_at=expires_at,
    )
    audit_record(verb="token.created", actor=created_by, team=team, target=token, detail={"scopes": token.scopes})
    return token, secret


@transaction.atomic
def token_revoke(*, token: ApiToken, actor: User | None) -> None:
    if ApiToken.objects.filter(pk=token.pk, enabled=True).update(enabled=False):
        audit_record(verb="token.revoked", actor=actor, team=token.team, target=token)
    token.enabled = False


def token_authenticate(*, secret: str) -> ApiToken | None:
    """The live token that ``secret`` belongs to, or None. An unknown id costs the same hash as a known one."""
    form = SECRET_FORM.fullmatch(secret)
    if form is None:
        return None
    token = ApiToken.objects.select_related("team", "created_by").filter(public_id=form[1]).first()
    pepper_id = token.pepper_id if token else max(settings.TOKEN_PEPPERS)
    if pepper_id not in settings.TOKEN_PEPPERS:
        return None  # its pepper was retired: so are all its tokens
    right = hmac.compare_digest(_digest(secret, pepper_id), token.digest if token else "0" * 64)
    if token is None or not right or not token_is_live(token):
        return None
    _note_use(token)
    return token


def team_default() -> Team:
    """The team of an installation that has made no other."""
    return Team.objects.get_or_create(name="default")[0]


def principal_system() -> Principal:
    """The platform itself, acting for the default team: management commands that nobody in particular runs."""
    return Principal(user=None, team=team_default(), token=None, scopes=ALL_SCOPES)


def principal_of_token(token: ApiToken) -> Principal:
    return Principal(user=token.created_by, team=token.team, token=token, scopes=frozenset(token.scopes))


def principal_of_user(user: User) -> Principal:
    """A person acts for the first team they joined; a superuser without one for the default team."""
    membership = Membership.objects.select_related("team").filter(user=user).order_by("pk").first()
    if membership is None and not user.is_superuser:
        raise PermissionDenied("Your user belongs to no team; ask an administrator to add it to one.")
    team = membership.team if membership else team_default()
    scopes = ALL_SCOPES if user.is_superuser or membership is None else ROLE_SCOPES[membership.role]
    return Principal(user=user, team=team, token=None, scopes=scopes)


def _digest(secret: str, pepper_id: int) -> str:
    return hmac.new(settings.TOKEN_PEPPERS[pepper_id].encode(), secret.encode(), hashlib.sha256).hexdigest()


def token_is_live(token: ApiToken) -> bool:
    owner_active = token.created_by is None or token.created_by.is_active
    return token.enabled and owner_active and (token.expires_at is None or token.expires_at > timezone.now())


def _note_use(token: ApiToken) -> None:
    """At most one write a minute, however busy the token is; the condition is checked again by the database."""
    now = timezone.now()
    if token.last_used_at is None or token.last_used_at < now - LAST_USED_EVERY:
        stale = Q(last_used_at__isnull=True) | Q(last_used_at__lt=now - LAST_USED_EVERY)
        ApiToken.objects.filter(stale, pk=token.pk).update(last_used_at=now)

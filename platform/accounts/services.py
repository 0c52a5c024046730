"""Make, change, revoke and check API tokens; say who a token or a user acts for, and what they may do."""

from __future__ import annotations

import hashlib
import hmac
import secrets
from collections.abc import Collection, Sequence
from datetime import datetime, timedelta
from typing import Any, Final

from django.conf import settings
from django.contrib.auth.models import User
from django.core.exceptions import PermissionDenied
from django.db import transaction
from django.db.models import Q
from django.utils import timezone

from accounts.limits import Quota
from accounts.models import ApiToken, Membership, Team
from accounts.scopes import ALL_SCOPES, ROLE_SCOPES, Role
from accounts.selectors import token_found, tokens_kept
from accounts.token_limits import LIMITS, checked_limits, is_admitted, own_rights_check
from assay.api.principal import Principal
from assay.client_address import Address
from assay.errors import AssayError
from assay.token_form import ID_LENGTH, PREFIX, SECRET_LENGTH, WHOLE
from audit.services import audit_record

ALPHABET: Final = "0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"
LAST_USED_EVERY: Final = timedelta(minutes=1)


@transaction.atomic
def token_create(
    *,
    team: Team,
    name: str,
    scopes: Collection[str],
    created_by: User | None = None,
    principal: Principal | None = None,
    expires_at: datetime | None = None,
    allowed_models: Collection[str] = (),
    allowed_networks: Sequence[str] = (),
    **quotas: int | None,
) -> tuple[ApiToken, str]:
    """Make a token and return it with its secret, which exists nowhere else from now on.

    Give the ``principal`` of a request, or the user who makes it (None: the platform itself, bound by nothing). No
    models or networks: all of them. ``quotas`` by the names of ``Quota``; those not given have no limit.

    Raises AssayError 422 for limits that cannot be, 403 ``exceeds_own_rights`` for more than the maker has.
    """
    if principal is None and created_by is not None:
        principal = principal_in_team(created_by, team)
    limits: dict[str, Any] = {"name": name, "scopes": scopes, "expires_at": expires_at}
    limits |= dict.fromkeys(Quota.values) | quotas
    fields = checked_limits({**limits, "allowed_models": allowed_models, "allowed_networks": allowed_networks})
    if principal is not None:
        own_rights_check(principal, fields)
    public_id, secret = _random(ID_LENGTH), _random(SECRET_LENGTH)
    secret = f"{PREFIX}{public_id}_{secret}"
    pepper_id = max(settings.TOKEN_PEPPERS)
    token = ApiToken.objects.create(
        public_id=public_id,
        team=team,
        created_by=principal.user if principal else None,
        pepper_id=pepper_id,
        digest=_digest(secret, pepper_id),
        **fields,
    )
    detail = {field: _plain(value) for field, value in fields.items() if field != "name" and value}
    audit_record(verb="token.created", principal=principal, team=team, target=token, detail=detail)
    return token, secret


@transaction.atomic
def token_change(*, token: ApiToken, principal: Principal, **given: Any) -> ApiToken:
    """Change name, scopes, models, networks or expiry of a token; what is not given stays.

    Raises AssayError as ``token_create`` does, also where what stays is more than the ``principal`` has: only
    ``token_revoke`` is for tokens of more rights than one's own. A change is in force within FRESH_SECONDS.
    """
    fields = {field: value for field, value in checked_limits(given).items() if value != getattr(token, field)}
    own_rights_check(principal, {field: getattr(token, field) for field in LIMITS} | fields)
    if fields:
        ApiToken.objects.filter(pk=token.pk).update(**fields)
        detail = {field: [_plain(getattr(token, field)), _plain(value)] for field, value in fields.items()}
        audit_record(verb="token.changed", principal=principal, team=token.team, target=token, detail=detail)
        token.refresh_from_db()
    return token


@transaction.atomic
def token_revoke(*, token: ApiToken, actor: User | None = None, principal: Principal | None = None) -> None:
    """For good: a token is never enabled again, nor deleted, as requests and events name it."""
    if ApiToken.objects.filter(pk=token.pk, enabled=True).update(enabled=False):
        audit_record(verb="token.revoked", principal=principal, actor=actor, team=token.team, target=token)
    token.enabled = False


def token_authenticate(*, secret: str, address: Address | None = None) -> ApiToken | None:
    """The live token that ``secret`` belongs to, or None. An unknown id costs the same hash as a known one.

    What was revoked or changed is so everywhere within FRESH_SECONDS.

    Raises PermissionDenied when the token may not be used from ``address``.
    """
    form = WHOLE.fullmatch(secret)
    if form is None:
        return None
    token = tokens_kept.get(form[1])
    pepper_id = token.pepper_id if token else max(settings.TOKEN_PEPPERS)
    if pepper_id not in settings.TOKEN_PEPPERS:
        return None  # its pepper was retired: so are all its tokens
    right = hmac.compare_digest(_digest(secret, pepper_id), token.digest if token else "0" * 64)
    if token is None or not right or not token_is_live(token):
        return None
    if not is_admitted(token, address):
        raise PermissionDenied(
            f"The token '{token.name}' may not be used from {address or 'an unknown address'}. Use it in one of its "
            "networks, or ask an administrator to allow this one."
        )
    _note_use(token)
    return token


def team_default() -> Team:
    """The team of an installation that has made no other."""
    return Team.objects.get_or_create(name="default")[0]


def principal_system() -> Principal:
    """The platform itself, acting for the default team: management commands that nobody in particular runs."""
    return Principal(user=None, team=team_default(), token=None, scopes=ALL_SCOPES)


def principal_of_token(token: ApiToken) -> Principal:
    """Of a token that ``token_authenticate`` found. It may no more than whoever made it may by now."""
    scopes = frozenset(token.scopes) & _owner_scopes(token)
    return Principal(user=token.created_by, team=token.team, token=token, scopes=scopes)


def principal_of_user(user: User) -> Principal:
    """A person acts for the first team they joined; a superuser without one for the default team."""
    membership = Membership.objects.select_related("team").filter(user=user).order_by("pk").first()
    if membership is None and not user.is_superuser:
        raise PermissionDenied("Your user belongs to no team; ask an administrator to add it to one.")
    team = membership.team if membership else team_default()
    return Principal(user=user, team=team, token=None, scopes=_scopes(user, membership.role if membership else None))


def principal_in_team(user: User, team: Team) -> Principal:
    """A person who acts for a certain team: what their role there allows, which may be nothing."""
    role = Membership.objects.filter(user=user, team=team).values_list("role", flat=True).first()
    return Principal(user=user, team=team, token=None, scopes=_scopes(user, role))


def _scopes(user: User, role: str | None) -> frozenset[str]:
    if user.is_superuser:
        return ALL_SCOPES
    return ROLE_SCOPES[role] if role else frozenset()


def _owner_scopes(token: Any) -> frozenset[str]:
    """``token`` is one of ``token_found``."""
    return ALL_SCOPES if token.created_by is None else _scopes(token.created_by, token.owner_role)


def _digest(secret: str, pepper_id: int) -> str:
    return hmac.new(settings.TOKEN_PEPPERS[pepper_id].encode(), secret.encode(), hashlib.sha256).hexdigest()


def _random(length: int) -> str:
    return "".join(secrets.choice(ALPHABET) for _ in range(length))


def is_let_in(*, token_id: str | None, user_id: int | None) -> bool:
    """Whether a token (its public id) or else a person would be let in if they came now."""
    if token_id is not None:
        token = token_found(token_id)
        return token is not None and token_is_live(token)
    return user_id is not None and User.objects.filter(pk=user_id, is_active=True).exists()


def token_is_live(token: Any) -> bool:
    """``token`` is one of ``token_found``."""
    owner_active = token.created_by is None or (token.created_by.is_active and bool(_owner_scopes(token)))
    return token.enabled and owner_active and (token.expires_at is None or token.expires_at > timezone.now())


def _note_use(token: ApiToken) -> None:
    """At most one write a minute, however busy the token is; the condition is checked again by the database."""
    now = timezone.now()
    if token.last_used_at is None or token.last_used_at < now - LAST_USED_EVERY:
        stale = Q(last_used_at__isnull=True) | Q(last_used_at__lt=now - LAST_USED_EVERY)
        ApiToken.objects.filter(stale, pk=token.pk).update(last_used_at=now)
        token.last_used_at = now


def _plain(value: Any) -> Any:
    return value.isoformat() if isinstance(value, datetime) else value


@transaction.atomic
def member_change(*, principal: Principal, member: Membership, role: Role) -> None:
    """Another role in the team, in force with the next request. Raises AssayError 409 ``own_role`` for one's own."""
    _not_oneself(principal, member)
    if member.role != role:
        member.role = role
        member.save(update_fields=["role"])
        audit_record(verb="member.changed", principal=principal, team=member.team, target=member)


@transaction.atomic
def member_remove(*, principal: Principal, member: Membership) -> None:
    """The person stays, without this team. Raises AssayError 409 ``own_role`` for oneself."""
    _not_oneself(principal, member)
    audit_record(verb="member.removed", principal=principal, team=member.team, target=member)
    member.delete()


def _not_oneself(principal: Principal, member: Membership) -> None:
    """Else the last administrator could lock the team out."""
    if principal.user is not None and principal.user.pk == member.user_id:
        message = "This is your own membership; ask another administrator to change it."
        raise AssayError("own_role", message, status=409)

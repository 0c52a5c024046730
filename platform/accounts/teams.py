"""Make teams and users, and say who belongs to which team as what."""

from __future__ import annotations

from django.contrib.auth.models import User
from django.core.exceptions import ValidationError
from django.db import transaction

from accounts.limits import Quota
from accounts.models import Membership, Team
from accounts.scopes import ROLE_SCOPES, Role
from assay.api.principal import Principal
from assay.api.sentences import shortened
from assay.errors import AssayError
from audit.services import audit_record

MAX_NAME = 100


@transaction.atomic
def team_create(*, name: str, principal: Principal | None = None) -> Team:
    """``principal`` of a request; None: whoever runs the platform.

    Raises AssayError 403 ``permission_denied`` for all but superusers, 422 ``bad_name``, 409 ``team_exists``.
    """
    if principal is not None and not may_see_all(principal):
        message = f"{principal.label} may not make teams: superusers may, and `manage.py create_team` on the server."
        raise AssayError("permission_denied", message, status=403)
    name = name.strip()
    if not (1 <= len(name) <= MAX_NAME and name.isprintable()):
        message = f"'{shortened(name)}' cannot be a team's name; give 1 to {MAX_NAME} characters that can be seen."
        raise AssayError("bad_name", message, status=422, param="name")
    if Team.objects.filter(name=name).exists():
        message = f"There is a team '{name}' already; use it, or give another name."
        raise AssayError("team_exists", message, status=409, param="name")
    team = Team.objects.create(name=name)
    audit_record(verb="team.created", principal=principal, team=team, target=team)
    return team


@transaction.atomic
def user_create(*, username: str, password: str, team: Team, role: str) -> User:
    """A user who belongs to ``team``. Raises AssayError 422 ``bad_name``, 409 ``user_exists``."""
    user = User(username=username)
    user.set_password(password)
    if User.objects.filter(username=username).exists():
        message = f"There is a user '{username}' already; give another name."
        raise AssayError("user_exists", message, status=409, param="username")
    try:
        user.full_clean()
    except ValidationError as error:
        message = f"'{shortened(username)}' cannot be a user's name: {' '.join(error.messages)}"
        raise AssayError("bad_name", message, status=422, param="username") from error
    user.save()
    audit_record(verb="user.created", team=team, target=user)
    member_set(team=team, username=username, role=role)
    return user


@transaction.atomic
def member_set(*, team: Team, username: str, role: str, principal: Principal | None = None) -> tuple[Membership, bool]:
    """Make a user a member, or another kind of member. Returns the membership and whether it is new.

    Raises AssayError 404 for a name that is no user's, 403 ``exceeds_own_rights`` for a role with more rights than the
    principal's: a token that is limited in any way makes nobody a member.
    """
    user = User.objects.filter(username=username).first()
    if user is None:
        message = f"There is no user '{shortened(username)}'; make one by `manage.py create_user` or on /admin/."
        raise AssayError("not_found", message, status=404, param="username")
    if principal is not None:
        _own_rights_check(principal, role)
    membership, is_new = Membership.objects.select_for_update().get_or_create(
        team=team, user=user, defaults={"role": role}
    )
    if is_new or membership.role != role:
        membership.role = role
        membership.save(update_fields=["role"])
        verb = "member.added" if is_new else "member.changed"
        audit_record(verb=verb, principal=principal, team=team, target=membership, detail={"role": role})
    return membership, is_new


@transaction.atomic
def member_remove(*, team: Team, username: str, principal: Principal) -> None:
    """Raises AssayError 404 for somebody who is no member."""
    membership = Membership.objects.select_for_update().filter(team=team, user__username=username).first()
    if membership is None:
        message = f"There is no member '{shortened(username)}' in the team '{team.name}'."
        raise AssayError("not_found", message, status=404, param="username")
    audit_record(verb="member.removed", principal=principal, team=team, target=membership)
    membership.delete()


def may_see_all(principal: Principal) -> bool:
    """Whether every team is the principal's to see: superusers, also by tokens that they made without limits."""
    user = principal.user
    return user is not None and user.is_active and user.is_superuser and not _is_limited(principal)


def _own_rights_check(principal: Principal, role: str) -> None:
    if _is_limited(principal) or not ROLE_SCOPES[role] <= principal.scopes:
        raise AssayError(
            "exceeds_own_rights",
            f"Nobody gives a member more than they have: {Role(role).label.lower()}s may do what {principal.label} may "
            "not, which has fewer scopes or is limited to models, networks, a time or a quota.",
            status=403,
            param="role",
        )


def _is_limited(principal: Principal) -> bool:
    token = principal.token
    if token is None:
        return False
    quotas = any(getattr(token, quota) is not None for quota in Quota)
    return bool(token.allowed_models or token.allowed_networks or token.expires_at or quotas)

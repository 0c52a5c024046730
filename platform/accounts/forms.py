"""Logging in, on the record."""

from __future__ import annotations

from datetime import timedelta
from typing import Any, Final

from django.contrib.admin.forms import AdminAuthenticationForm
from django.contrib.auth.forms import AuthenticationForm
from django.contrib.auth.models import User
from django.core.exceptions import ValidationError
from django.utils import timezone

from accounts.models import Membership
from audit.models import AuditEvent
from audit.services import audit_record

FAILURES_EVERY: Final = timedelta(minutes=1)


class LoginForm(AuthenticationForm):
    """Django's own, with an audit event for each outcome."""

    def clean(self) -> dict[str, Any]:
        try:
            fields = super().clean()
        except ValidationError:
            login_failed_record(username=self.cleaned_data.get("username", ""))
            raise
        if (user := self.get_user()) is not None:
            login_record(user=user)
        return fields


class AdminLoginForm(LoginForm, AdminAuthenticationForm):
    """For the administration: of its staff only."""


def login_record(*, user: User, **detail: Any) -> None:
    membership = Membership.objects.select_related("team").filter(user=user).order_by("pk").first()
    team = membership.team if membership else None
    audit_record(verb="user.logged_in", actor=user, team=team, target=user, detail=detail)


def login_failed_record(*, username: str) -> None:
    """At most one event a minute for each user, and one for all names that are nobody's.

    What was typed is not kept: people type passwords into the wrong field. Events are for ever, and a stranger who
    guesses must not be able to fill the disk with them.
    """
    user = User.objects.filter(username=username).first()
    target_id = str(user.pk) if user else ""
    recent = AuditEvent.objects.filter(verb="user.login_failed", at__gt=timezone.now() - FAILURES_EVERY)
    target_type = User._meta.label_lower if user else ""
    if not recent.filter(target_type=target_type, target_id=target_id).exists():
        membership = Membership.objects.select_related("team").filter(user=user).first() if user else None
        audit_record(verb="user.login_failed", team=membership.team if membership else None, target=user)

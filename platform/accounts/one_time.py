"""Tickets that log a user in once: signed, short-lived, bound to the user's last login, which using one moves on."""

from __future__ import annotations

from datetime import timedelta

from django.contrib.auth.models import User
from django.core import signing

SALT = "accounts.one_time"
LIFETIME = timedelta(hours=12)


def ticket_create(user: User) -> str:
    return signing.dumps([user.pk, _moment(user)], salt=SALT)


def ticket_user(ticket: str) -> User | None:
    """The user of a ticket that is genuine, young and not used yet."""
    try:
        user_id, moment = signing.loads(ticket, salt=SALT, max_age=LIFETIME)
    except signing.BadSignature:
        return None
    user = User.objects.filter(pk=user_id, is_active=True).first()
    return user if user is not None and _moment(user) == moment else None


def _moment(user: User) -> str:
    return user.last_login.isoformat() if user.last_login else "never"

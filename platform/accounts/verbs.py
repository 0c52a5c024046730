"""The closed vocabulary of what the audit log may say about people, teams and tokens."""

from __future__ import annotations

from audit.services import register_verb

VERBS = {
    "token.created": "created API token {target}",
    "token.changed": "changed API token {target}",
    "token.revoked": "revoked API token {target}",
    "user.logged_in": "logged in",
    "user.login_failed": "failed to log in as {target}",
    "user.created": "created user {target}",
    "user.changed": "changed user {target}",
    "team.created": "created team {target}",
    "team.changed": "changed team {target}",
    "member.added": "added {target}",
    "member.changed": "made a member {target}",
    "member.removed": "removed {target}",
}


def register() -> None:
    for verb, sentence in VERBS.items():
        register_verb(verb, sentence)

"""Which peppers are in use, and which tokens a retired one would take along."""

from __future__ import annotations

from typing import Any

from django.conf import settings
from django.core.management.base import BaseCommand

from accounts.selectors import tokens_by_pepper


class Command(BaseCommand):
    help = "List the peppers with the live tokens that need them: before an old pepper is removed, these are renewed."

    def handle(self, *args: Any, **options: Any) -> None:
        newest = max(settings.TOKEN_PEPPERS)
        for pepper_id, tokens in tokens_by_pepper().items():
            state = "makes new tokens" if pepper_id == newest else "verifies older tokens"
            if pepper_id not in settings.TOKEN_PEPPERS:
                state = "removed: its tokens no longer work"
            noun = "token" if len(tokens) == 1 else "tokens"
            self.stdout.write(f"pepper {pepper_id} ({state}): {len(tokens)} live {noun}")
            if pepper_id == newest:
                continue
            for token in tokens:
                used = f"{token.last_used_at:%Y-%m-%d %H:%M} UTC" if token.last_used_at else "never"
                owner = token.created_by.get_username() if token.created_by else "nobody"
                self.stdout.write(f"  {token.prefix}  {token.name}  team {token.team}  of {owner}  last used {used}")

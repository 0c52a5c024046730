from __future__ import annotations

from django.apps import AppConfig


class AccountsConfig(AppConfig):
    name = "accounts"

    def ready(self) -> None:
        from accounts.services import VERBS
        from audit.services import register_verb

        for verb, sentence in VERBS.items():
            register_verb(verb, sentence)

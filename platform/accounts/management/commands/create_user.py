"""Make a user on the command line; the password is printed once."""

from __future__ import annotations

import secrets
from typing import Any

from django.core.management.base import BaseCommand, CommandError, CommandParser

from accounts.models import Team
from accounts.scopes import Role
from accounts.services import team_default
from accounts.teams import user_create
from assay.errors import AssayError


class Command(BaseCommand):
    help = "Make a user who belongs to a team, and print the password, once."

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("username")
        parser.add_argument("--team", help="name of the team (default: the team of the installation)")
        parser.add_argument("--role", choices=Role.values, default=Role.ANALYST, help="in the team (default: analyst)")

    def handle(self, *args: Any, username: str, **options: Any) -> None:
        password = secrets.token_urlsafe(12)
        try:
            team = Team.objects.get(name=options["team"]) if options["team"] else team_default()
            user_create(username=username, password=password, team=team, role=options["role"])
        except Team.DoesNotExist as error:
            known = ", ".join(Team.objects.values_list("name", flat=True)) or "none yet"
            raise CommandError(f"There is no team {options['team']!r}; the teams are: {known}.") from error
        except AssayError as error:
            raise CommandError(error.message) from error
        self.stdout.write(password)

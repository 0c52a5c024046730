"""Make a team on the command line."""

from __future__ import annotations

from typing import Any

from django.core.management.base import BaseCommand, CommandError, CommandParser

from accounts.teams import team_create
from assay.errors import AssayError


class Command(BaseCommand):
    help = "Make a team: the owner of sets, jobs and tokens, which no other team sees."

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("name", help="of the team")

    def handle(self, *args: Any, name: str, **options: Any) -> None:
        try:
            team = team_create(name=name)
        except AssayError as error:
            raise CommandError(error.message) from error
        self.stdout.write(f"The team '{team.name}' is there; add people by `manage.py create_user NAME --team TEAM`.")

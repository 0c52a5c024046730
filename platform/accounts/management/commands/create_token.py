"""Make an API token on the command line; its secret is printed once."""

from __future__ import annotations

from typing import Any

from django.core.management.base import BaseCommand, CommandError, CommandParser

from accounts.models import Team
from accounts.scopes import ALL_SCOPES, Scope
from accounts.services import team_default, token_create
from assay.errors import AssayError


class Command(BaseCommand):
    help = "Make an API token and print its secret, once."

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("--name", required=True, help="what the token is for")
        parser.add_argument(
            "--scopes", nargs="+", default=[Scope.SCORE], help=f"one or more of: {', '.join(sorted(ALL_SCOPES))}"
        )
        parser.add_argument("--team", help="name of the team (default: the team of the installation)")

    def handle(self, *args: Any, **options: Any) -> None:
        try:
            team = Team.objects.get(name=options["team"]) if options["team"] else team_default()
            _, secret = token_create(team=team, name=options["name"], scopes=options["scopes"])
        except Team.DoesNotExist as error:
            known = ", ".join(Team.objects.values_list("name", flat=True)) or "none yet"
            raise CommandError(f"There is no team {options['team']!r}; the teams are: {known}.") from error
        except AssayError as error:
            raise CommandError(error.message) from error
        self.stdout.write(secret)

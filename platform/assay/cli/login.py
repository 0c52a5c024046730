"""``assay login``."""

from __future__ import annotations

import sys
from typing import Annotated

import typer

from assay.cli.output import AsJson, say, show_json
from assay.client import Client, ConfigurationError, PermissionDeniedError
from assay.client.config import DEFAULT_URL, Target, clean_url, config_write


def add_to(app: typer.Typer) -> None:
    app.command()(login)


def login(
    url: Annotated[str, typer.Option(prompt="Server", envvar="ASSAY_URL", help="The server's address.")] = DEFAULT_URL,
    token_stdin: Annotated[bool, typer.Option("--token-stdin", help="Read the token from standard input.")] = False,
    as_json: AsJson = False,
) -> None:
    """Keep a server's address and a token for the next commands, in a file that you alone can read.

    \b
    assay login --url https://assay.example.org
    assay login --url https://assay.example.org --token-stdin < token.txt
    """
    address = clean_url(url)
    token = (sys.stdin.readline() if token_stdin else typer.prompt("Token", hide_input=True, err=True)).strip()
    if not token:
        raise ConfigurationError(
            "The token is empty; make one with `manage.py create_token`, or on the server's pages."
        )
    with Client(address, token) as client:
        try:
            models = [card["id"] for card in client.cards()]
        except PermissionDeniedError:  # known, and without the scope to score
            models = []
    path = config_write(Target(address, token))
    if as_json:
        return show_json({"url": address, "file": str(path), "models": models})
    say(f"Logged in at {address}; kept in {path}.")

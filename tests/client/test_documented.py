"""docs/client.md names every command with its options, and every call."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import typer

from assay.cli.app import app
from assay.client import Client
from assay.settings import env
from tests.client.test_calls import TOKEN, calls_of

PAGE = (env.ROOT / "docs" / "client.md").read_text()

OPTION = re.compile(r"`(--[a-z0-9-]+)`")


def commands(command: Any, name: str = "assay") -> Iterator[tuple[str, set[str]]]:
    """Every command that does something, with its long options."""
    for child_name, child in getattr(command, "commands", {}).items():
        yield from commands(child, f"{name} {child_name}")
    if not hasattr(command, "commands"):
        options = {option for parameter in command.params for option in parameter.opts if option.startswith("--")}
        yield name, options - {"--help"}


def test_every_command_is_documented_with_its_options() -> None:
    """``--json`` is said to be everywhere, once."""
    documented = {
        " ".join(word for word in command.split() if word.islower()): {"--json", *OPTION.findall(options)}
        for command, options in re.findall(r"^\| `(assay [^`]*)` \|(.*)\|$", PAGE, re.MULTILINE)
    }
    assert documented == dict(commands(typer.main.get_command(app)))


def test_every_call_is_documented() -> None:
    with Client("http://x", TOKEN) as client:
        calls = calls_of(client)
    assert [call for call in calls if f"`{call.rpartition('.')[2]}`" not in PAGE] == []

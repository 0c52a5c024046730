"""``assay workers``."""

from __future__ import annotations

import typer

from assay.cli.output import AsJson, Limit, first, show_json, show_rows
from assay.client import Client


def add_to(app: typer.Typer) -> None:
    app.command()(workers)


def workers(limit: Limit = 0, as_json: AsJson = False) -> None:
    """Which processes score, and what they have loaded."""
    with Client() as client:
        found = first(client.workers.list(), limit)
    if as_json:
        return show_json(found)
    show_rows(
        ("name", "host", "device", "state", "models", "last heard of"),
        (
            (worker["name"], worker["host"], worker["device"], worker["state"],
             ", ".join(each["model"] for each in worker["placements"]) or None, worker["heartbeat_at"])
            for worker in found
        ),
    )  # fmt: skip

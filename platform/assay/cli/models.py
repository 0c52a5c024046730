"""``assay models``."""

from __future__ import annotations

from typing import Annotated

import typer

from assay.cli.inputs import Settings, settings_of
from assay.cli.output import AsJson, Limit, first, say, show_fields, show_json, show_rows
from assay.client import Client
from assay.client.shapes import Model

app = typer.Typer(no_args_is_help=True, rich_markup_mode=None, help="Registered models.")


@app.command("list")
def list_(limit: Limit = 0, as_json: AsJson = False) -> None:
    """All registered models, and how far each is."""
    with Client() as client:
        models = first(client.models.list(), limit)
    if as_json:
        return show_json(models)
    show_rows(
        ("name", "kind", "state", "default", "dtype", "loaded on"),
        (
            (model["name"], model["kind"], model["state"], model["is_default"], model["dtype"], _loaded(model))
            for model in models
        ),
    )  # fmt: skip


@app.command()
def show(name: str, as_json: AsJson = False) -> None:
    """One registered model, with where it is loaded."""
    with Client() as client:
        _show(client.models.get(name), as_json)


@app.command()
def register(
    name: str,
    source: Annotated[str, typer.Argument(help="A folder on the workers, or package:DISTRIBUTION/FOLDER.")],
    kind: Annotated[str | None, typer.Option(help="Such as cross-encoder or bi-encoder.")] = None,
    settings: Settings = None,
    wait: Annotated[bool, typer.Option("--wait/--no-wait", "-w", help="Until a worker has tested it.")] = True,
    as_json: AsJson = False,
) -> None:
    """Register a model and wait until a worker has tested it: only then is it served, or rejected (exit code 1).

    \b
    assay models register reranker /models/reranker --kind cross-encoder --set max_length=512
    """
    fields = settings_of(settings, taken=("name", "source", "kind"))
    if wait:
        say(f"Waiting until a worker has tested '{name}'; with --no-wait, or after Ctrl-C, it is tested all the same.")
    with Client() as client:
        model = client.models.register(name, source, kind=kind, wait=wait, **fields)
    _show(model, as_json)
    if wait and model["state"] != "available":
        say(f"assay: The model '{name}' is {model['state']} and not served. {_failed_checks(model)}")
        raise typer.Exit(1)


def _failed_checks(model: Model) -> str:
    checks = (model["self_test_report"] or {}).get("checks", ())
    return " ".join(f"{check['name']}: {check['detail']}" for check in checks if not check["passed"])


def _show(model: Model, as_json: bool) -> None:
    if as_json:
        return show_json(model)
    shown = ("name", "kind", "state", "source", "device", "dtype", "is_default", "pinned", "revision")
    fields = {field: model[field] for field in shown if model.get(field) not in ("", None)}  # type: ignore[literal-required]
    show_fields({**fields, "loaded on": _loaded(model), "self-test": model["self_test_report"] or "-"})


def _loaded(model: Model) -> str:
    found = [f"{each['worker'] or '?'}: {each['state']}" for each in model["placements"] if each["present"]]
    return ", ".join(found) or "-"

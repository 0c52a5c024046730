"""``assay pools`` and ``assay agreement``."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Annotated, Any

import typer

from assay.cli.exports import FORMATS
from assay.cli.inputs import Settings, ranking_of, settings_of
from assay.cli.output import AsJson, Limit, first, say, show_fields, show_json, show_rows
from assay.client import Client
from assay.client.judging_shapes import Agreement, Pool

app = typer.Typer(no_args_is_help=True, rich_markup_mode=None, help="Pools of pairs that people judge.")
PoolId = Annotated[str, typer.Argument(metavar="POOL", help="Its id.", show_default=False)]


def add_to(app: typer.Typer) -> None:
    app.command()(agreement)


@app.command()
def create(
    rankings: Annotated[
        list[str] | None,
        typer.Argument(metavar="JOB[:STAGE]...", help="Without a stage, a job's last one.", show_default=False),
    ] = None,
    depth: Annotated[int | None, typer.Option("--k", "-k", help="Documents of each ranking; otherwise 10.")] = None,
    base: Annotated[str | None, typer.Option(help="Id of the judgements whose pairs are left out.")] = None,
    name: Annotated[str | None, typer.Option(help="Otherwise made from the rankings.")] = None,
    quorum: Annotated[int | None, typer.Option(help="Judges per pair; otherwise 1.")] = None,
    settings: Settings = None,
    as_json: AsJson = False,
) -> None:
    """Make a pool of the first documents of rankings. --set gives the rest, such as run_set, rule or scale.

    \b
    assay pools create JOB:0 JOB:1 -k 10 --base SET
    assay pools create JOB --quorum 2 --set rule=majority --set 'query_ids=["q03", "q07"]'
    """
    fields = settings_of(settings, taken=("stages", "k", "base", "name", "quorum"))
    named = {key: value for key, value in (("name", name), ("quorum", quorum)) if value is not None}
    with Client() as client:
        made = client.pools.create(
            [ranking_of(ranking) for ranking in rankings or ()], k=depth, base=base, **named, **fields
        )
    _show(made, as_json)


@app.command("list")
def list_(
    state: Annotated[str | None, typer.Option(help="Only open or closed ones.")] = None,
    limit: Limit = 20,
    as_json: AsJson = False,
) -> None:
    """The team's pools, the newest first."""
    with Client() as client:
        found = first(client.pools.list(**({"state": state} if state else {})), limit)
    if as_json:
        return show_json(found)
    show_rows(
        ("id", "name", "state", "pairs", "quorum", "rule", "created"),
        (
            (pool["id"], pool["name"], pool["state"], pool["pair_count"], pool["quorum"], pool["rule"],
             pool["created_at"])
            for pool in found
        ),
    )  # fmt: skip


@app.command()
def show(pool_id: PoolId, as_json: AsJson = False) -> None:
    """One pool: how far its judging is, and what publishing would give."""
    with Client() as client:
        _show(client.pools.get(pool_id), as_json)


@app.command()
def close(pool_id: PoolId, as_json: AsJson = False) -> None:
    """Hand out no pair of a pool any more; what was judged stays."""
    with Client() as client:
        _show(client.pools.close(pool_id), as_json)


@app.command("open")
def open_(pool_id: PoolId, as_json: AsJson = False) -> None:
    """Open a closed pool again."""
    with Client() as client:
        _show(client.pools.open(pool_id), as_json)


@app.command()
def delete(pool_id: PoolId, as_json: AsJson = False) -> None:
    """Delete a pool with its verdicts; what was published stays."""
    with Client() as client:
        client.pools.delete(pool_id)
    if as_json:
        show_json({"deleted": pool_id})


@app.command("export-verdicts")
def export_verdicts(
    pool_id: PoolId,
    output: Annotated[Path | None, typer.Option("--output", "-o", help="Otherwise standard output.")] = None,
    format: Annotated[
        str | None, typer.Option(help="csv, jsonl or parquet; otherwise by the file's name, else csv.")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Write every verdict of a pool: the pair, who judged it, the grade, and in what way it was given.

    \b
    assay pools export-verdicts POOL -o verdicts.csv
    assay pools export-verdicts POOL --format jsonl | head
    """
    chosen = format or (FORMATS.get(output.suffix.lower()) if output else None) or "csv"
    with Client() as client:
        made = client.exports.save("verdicts", output or sys.stdout.buffer, format=chosen, pool=pool_id)
    if as_json and output:
        show_json({"file": str(output), "format": chosen, "rows": made["rows_done"], "bytes": output.stat().st_size})


@app.command()
def publish(
    pool_id: PoolId,
    source: Annotated[
        list[str] | None,
        typer.Option(help="Whose verdicts count: blind, seen, imported, model; may be repeated. Otherwise people's."),
    ] = None,
    accept_models: Annotated[
        bool, typer.Option("--accept-models", help="Needed for the source model: you know how far it agrees.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Write the grades of a pool as the next version of the judgement set.

    \b
    assay pools publish POOL
    assay pools publish POOL --source blind --source model --accept-models
    """
    with Client() as client:
        made: dict[str, Any] = {**client.pools.publish(pool_id, sources=source, accept_models=accept_models)}
    if as_json:
        return show_json(made)
    show_fields({**{name: made[name] for name in ("id", "name", "version")}, "rows": made["counts"]["kept"]})


def agreement(pool_id: PoolId, as_json: AsJson = False) -> None:
    """How far the judges of a pool agree; models apart from people.

    \b
    assay agreement POOL
    """
    with Client() as client:
        found = client.pools.agreement(pool_id)
    if as_json:
        return show_json(found)
    show_rows(("judges", "coefficient", "value", "n", "same grade"), _agreement_rows(found))
    for sentence in dict.fromkeys(_sentences(found)):
        say(sentence)
    if found["conflicts"]:
        say(f"{found['conflicts']:,} pairs are not agreed, {found['serious']:,} of them by two grades or more.")


def _agreement_rows(found: Agreement) -> Iterator[Sequence[Any]]:
    people = found["people"]
    yield "all people", "alpha", people["alpha"], people["doubly_judged"], people["raw"]
    for two in (*found["two"], *found["models"]):
        yield f"{two['first']} and {two['second'] or 'people'}", "kappa", two["kappa"], two["n"], two["raw"]


def _sentences(found: Agreement) -> Iterator[str]:
    """Why there is no coefficient."""
    if found["people"]["alpha"] is None:
        yield found["people"]["sentence"]
    yield from (two["sentence"] for two in (*found["two"], *found["models"]) if two["kappa"] is None)


def _show(pool: Pool, as_json: bool) -> None:
    if as_json:
        return show_json(pool)
    shown = ("id", "name", "state", "pair_count", "quorum", "rule", "scale", "relevant_from", "base")
    fields: dict[str, Any] = {name: pool[name] for name in shown}  # type: ignore[literal-required]
    progress, published = pool["progress"], pool["publication"]
    judges = (f"{one['name']}: {one['graded']:,} graded, {one['cannot']:,} not" for one in progress["judges"])
    show_fields(
        {
            **fields,
            "judged": f"{progress['done']:,} of {progress['pairs']:,}",
            "judges": "; ".join(judges) or None,
            "to publish": f"version {published['version']}, {published['changed']:,} grades that are new",
        }
    )

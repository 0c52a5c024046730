"""``assay jobs``."""

from __future__ import annotations

import json
import sys
import uuid
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Annotated, Any, Final

import typer

from assay.cli.inputs import Model, Settings, settings_of
from assay.cli.output import AsJson, Limit, first, say, show_fields, show_json, show_rows
from assay.cli.progress import job_bar, pace
from assay.cli.sets import Kind, Mapping, sets_of, uploaded_from
from assay.client import Client
from assay.client.shapes import Job

app = typer.Typer(no_args_is_help=True, rich_markup_mode=None, help="Batch jobs.")
JobId = Annotated[str, typer.Argument(metavar="JOB", help="Its id.", show_default=False)]
FORMATS: Final = {".csv": "csv", ".jsonl": "jsonl", ".parquet": "parquet", ".run": "trec"}


@app.command()
def run(
    documents: Annotated[str, typer.Argument(help="Id of a document set, or a file to upload.", show_default=False)],
    queries: Annotated[str, typer.Argument(help="Id of a query set, or a file to upload.", show_default=False)],
    model: Model = None,
    top_k: Annotated[int | None, typer.Option("--top-k", "-k", help="Documents kept per query.")] = None,
    stages: Annotated[str | None, typer.Option(help="A JSON list of stages, instead of --model and --top-k.")] = None,
    name: Annotated[str | None, typer.Option(help="Otherwise made from the sets and the model.")] = None,
    mapping: Mapping = None,
    settings: Settings = None,
    wait: Annotated[bool, typer.Option("--wait", "-w", help="Until it has ended, with a progress bar.")] = False,
    as_json: AsJson = False,
) -> None:
    """Rank the documents of a set for every query of a set.

    With --wait, Ctrl-C asks whether to cancel the job or to leave it running.

    \b
    assay jobs run advice.csv questions.tsv --mapping text=body --model minilm --top-k 100 --wait
    assay jobs run advice.csv questions.tsv --mapping text=body --set priority=10 \\
      --stages '[{"method": "bm25", "top_k": 1000}, {"model": "minilm", "source": 0, "top_k": 100}]'
    """
    fields = settings_of(settings, taken=("document_set", "query_set", "model", "top_k", "name", "stages"))
    with Client() as client:
        job = client.jobs.create(
            _set_id(client, Kind.DOCUMENTS, documents, mapping),
            _set_id(client, Kind.QUERIES, queries, None),
            model=model, top_k=top_k, name=name, stages=_stages(stages), **fields,
        )  # fmt: skip
        if wait:
            job = _watched(client, job["id"])
    _show(job, as_json)
    _end_with(job, waited=wait)


@app.command()
def wait(job_id: JobId, as_json: AsJson = False) -> None:
    """Watch a job until it has ended. Fails if it did not end as completed."""
    with Client() as client:
        job = _watched(client, job_id)
    _show(job, as_json)
    _end_with(job, waited=True)


@app.command("list")
def list_(
    state: Annotated[list[str] | None, typer.Option(help="Only jobs in this state; may be repeated.")] = None,
    limit: Limit = 20,
    as_json: AsJson = False,
) -> None:
    """The team's jobs, the newest first."""
    with Client() as client:
        jobs = first(client.jobs.list(**({"state": state} if state else {})), limit)
    if as_json:
        return show_json(jobs)
    show_rows(
        ("id", "name", "state", "model", "pairs", "created"),
        (
            (job["id"], job["name"], job["state"], job["model"], job["pair_count"], job["created_at"])
            for job in jobs
        ),
    )  # fmt: skip


@app.command()
def show(job_id: JobId, as_json: AsJson = False) -> None:
    """One job, with its progress."""
    with Client() as client:
        _show(client.jobs.get(job_id), as_json)


@app.command()
def cancel(job_id: JobId, as_json: AsJson = False) -> None:
    """Cancel a job; what is scored stays."""
    _moved(lambda client: client.jobs.cancel(job_id), as_json)


@app.command()
def pause(job_id: JobId, as_json: AsJson = False) -> None:
    """Give nothing more of a job to the workers."""
    _moved(lambda client: client.jobs.pause(job_id), as_json)


@app.command()
def resume(job_id: JobId, as_json: AsJson = False) -> None:
    """Resume a paused job."""
    _moved(lambda client: client.jobs.resume(job_id), as_json)


@app.command()
def retry(job_id: JobId, as_json: AsJson = False) -> None:
    """Queue an ended job again with what is unfinished."""
    _moved(lambda client: client.jobs.retry(job_id), as_json)


@app.command()
def results(
    job_id: JobId,
    top_n: Annotated[int, typer.Option("--top-n", "-n", min=1, help="Documents per query.")] = 10,
    query_id: Annotated[str | None, typer.Option(help="Only this query.")] = None,
    texts: Annotated[bool, typer.Option("--texts", help="With titles and texts.")] = False,
    stage: Annotated[int | None, typer.Option(help="From 0 on; otherwise the last.")] = None,
    limit: Annotated[int, typer.Option(min=0, help="At most so many queries; 0: all.")] = 0,
    as_json: AsJson = False,
) -> None:
    """The best documents of each query.

    \b
    assay jobs results JOB --top-n 3 --texts
    """
    with Client() as client:
        found = first(client.jobs.results(job_id, top_n=top_n, texts=texts, query_id=query_id, stage=stage), limit)
    if as_json:
        return show_json(found)
    show_rows(
        ("query", "rank", "score", "document", *(("title", "text") if texts else ())),
        (
            (result["query_id"], row["rank"], row["score"], row["document_id"],
             *((row.get("title"), row.get("text")) if texts else ()))
            for result in found
            for row in result["documents"]
        ),
    )  # fmt: skip


@app.command()
def export(
    job_id: JobId,
    output: Annotated[Path | None, typer.Option("--output", "-o", help="Otherwise standard output.")] = None,
    format: Annotated[
        str | None, typer.Option(help="csv, jsonl, parquet or trec; otherwise by the file's name, else jsonl.")
    ] = None,
    stage: Annotated[int | None, typer.Option(help="From 0 on; otherwise the last.")] = None,
    as_json: AsJson = False,
) -> None:
    """Write all rankings to a file, as they come.

    \b
    assay jobs export JOB -o rankings.csv
    assay jobs export JOB --format trec | trec_eval judgements.txt -
    """
    chosen = format or (FORMATS.get(output.suffix.lower()) if output else None) or "jsonl"
    with Client() as client:
        client.jobs.export(job_id, output or sys.stdout.buffer, format=chosen, stage=stage)
    if as_json and output:
        show_json({"file": str(output), "format": chosen, "bytes": output.stat().st_size})


@app.command()
def events(
    job_id: JobId,
    problems: Annotated[bool, typer.Option("--problems", help="Only what went wrong.")] = False,
    limit: Limit = 20,
    as_json: AsJson = False,
) -> None:
    """What happened to a job, its stages and its chunks, the newest first."""
    with Client() as client:
        found = first(client.jobs.events(job_id, **({"problems": True} if problems else {})), limit)
    if as_json:
        return show_json(found)
    show_rows(
        ("at", "what", "from", "to", "by", "why"),
        (
            (event["at"], event["what"], event["from_state"], event["to_state"], event["actor"], event["reason"])
            for event in found
        ),
    )  # fmt: skip


def _watched(client: Client, job_id: str) -> Job:
    """The job once it has ended. Ctrl-C leaves it running, unless somebody is there and wants it cancelled."""
    try:
        with job_bar() as update:
            return client.jobs.wait(job_id, on_progress=update)
    except KeyboardInterrupt:
        if sys.stdin.isatty() and _confirmed(f"Cancel job {job_id}?"):
            client.jobs.cancel(job_id)
            say("It is being cancelled; what is scored stays.")
        else:
            say(f"Job {job_id} goes on. Come back with `assay jobs wait {job_id}`.")
        raise typer.Exit(130) from None


def _confirmed(question: str) -> bool:
    try:
        return typer.confirm(question, err=True)
    except typer.Abort:
        return False


def _set_id(client: Client, kind: Kind, given: str, mapping: Sequence[str] | None) -> str:
    """``given`` itself if it is an id, else that of the set made of the file of this name."""
    try:
        return str(uuid.UUID(given))
    except ValueError:
        options = {"mapping": settings_of(mapping) or None}
        return uploaded_from(sets_of(client, kind), Path(given), **options)["id"]


def _stages(given: str | None) -> list[dict[str, Any]] | None:
    if given is None:
        return None
    try:
        stages: list[dict[str, Any]] = json.loads(given)
    except ValueError as error:
        raise typer.BadParameter(f"--stages is not JSON: {error}.") from error
    return stages


def _moved(move: Callable[[Client], Job], as_json: bool) -> None:
    with Client() as client:
        _show(move(client), as_json)


def _show(job: Job, as_json: bool) -> None:
    if as_json:
        return show_json(job)
    fields: dict[str, Any] = {
        "id": job["id"],
        "name": job["name"],
        "state": job["state"],
        "models": ", ".join(stage.get("model") or stage.get("method") or "-" for stage in job["stages"]),
        "documents": job["document_count"],
        "queries": job["query_count"],
        "created": job["created_at"],
    }
    if "progress" in job:
        fields["done"] = f"{job['progress']['pairs_done']:,} of {job['progress']['pairs_total']:,} pairs"
        fields["now"] = pace(job)
    fields["failure"] = job["failure"]
    show_fields({name: value for name, value in fields.items() if value not in ("", None)})


def _end_with(job: Job, *, waited: bool) -> None:
    if waited and job["state"] != "completed":
        raise typer.Exit(1)

"""The command line: its commands, and the exit code of everything that can go wrong."""

from __future__ import annotations

import json
import sys
from typing import Final, NoReturn

import typer

from assay.cli import (
    bench,
    comparisons,
    cutoffs,
    evaluation,
    explanations,
    exports,
    jobs,
    login,
    models,
    pools,
    scoring,
    sets,
    workers,
)
from assay.client.errors import ApiError, ClientError, ConfigurationError, UnreachableError

FAILED: Final = 1
USAGE: Final = 2
REFUSED: Final = 3
UNREACHABLE: Final = 4

app = typer.Typer(
    no_args_is_help=True,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
    help="Score, rerank and run batch jobs on an Assay server.",
    epilog="Server and token come from ASSAY_URL and ASSAY_TOKEN, or from `assay login`. Exit codes: 0 done, 1 failed, "
    "2 wrong usage, 3 refused by the server, 4 no answer from it, 130 interrupted.",
)
for commands in (scoring, explanations, sets, exports, evaluation, comparisons, pools, bench, login):
    commands.add_to(app)
app.add_typer(jobs.app, name="jobs")
app.add_typer(sets.app, name="sets")
app.add_typer(models.app, name="models")
app.add_typer(pools.app, name="pools")
app.add_typer(cutoffs.app, name="cutoff")
workers.add_to(app)


def main() -> NoReturn:
    try:
        app(prog_name="assay")
    except ConfigurationError as error:
        _end(error, USAGE)
    except UnreachableError as error:
        _end(error, UNREACHABLE)
    except ApiError as error:
        _end(error, REFUSED)
    except ClientError as error:
        _end(error, FAILED)
    sys.exit()


def _end(error: ClientError, code: int) -> NoReturn:
    """Say it on standard error, as an object if the answer would have been one, and leave."""
    detail: dict[str, object] = {"code": type(error).__name__, "message": str(error)}
    if isinstance(error, ApiError):
        detail = {"message": str(error), **error.detail, "code": error.code, "status": error.status}
    if "--json" in sys.argv:
        typer.echo(json.dumps({"error": detail}, ensure_ascii=False), err=True)
    else:
        more = [f"{name} {detail[name]}" for name in ("code", "param", "request_id") if detail.get(name)]
        typer.echo(f"assay: {error}" + (f" ({', '.join(more)})" if isinstance(error, ApiError) else ""), err=True)
    sys.exit(code)

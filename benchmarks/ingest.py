"""A file becomes a document set, against a plain COPY of rows already parsed: python benchmarks/ingest.py [ROWS]

ROWS (1,000,000) short documents as CSV, TSV and JSON lines, through the import that an upload runs: every cell checked,
ids told apart, one transaction. Servers and database are its own, below DATA_DIR. Memory is the client's peak above
where it stood. The peer's rows lie in its memory and nothing about them is checked.
"""

from __future__ import annotations

import json
import os
import platform
import sys
import tempfile
import time
from pathlib import Path

import django

os.environ["DJANGO_SETTINGS_MODULE"] = "assay.settings.test"
django.setup()

from django.db import connection, transaction  # noqa: E402

from accounts.scopes import ALL_SCOPES  # noqa: E402
from accounts.services import team_default  # noqa: E402
from assay.api.principal import Principal  # noqa: E402
from scoring.models import DocumentSet  # noqa: E402
from scoring.services.imports import set_import  # noqa: E402

TEXT = "Descale a kettle with citric acid: fill it half with water, boil, wait for twenty minutes and rinse, number"
COPY = "COPY scoring_document (document_set_id, position, external_id, title, text, metadata, is_empty) FROM STDIN"
LINES = {
    "csv": lambda n: f'd{n},Title {n},"{TEXT} {n}, twice"\n',
    "tsv": lambda n: f"d{n}\tTitle {n}\t{TEXT} {n}, twice\n",
    "jsonl": lambda n: json.dumps({"id": f"d{n}", "title": f"Title {n}", "text": f"{TEXT} {n}, twice"}) + "\n",
}
HEADERS = {"csv": b"id,title,text\n", "tsv": b"id\ttitle\ttext\n", "jsonl": b""}


def peak_mib() -> int:
    status = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in status if line.startswith("VmHWM")) >> 10


def main(rows: int) -> None:
    outside = connection.settings_dict["NAME"]
    connection.creation.create_test_db(verbosity=0, autoclobber=True)
    principal, seconds = Principal(user=None, team=team_default(), token=None, scopes=ALL_SCOPES), {}
    print(f"{platform.machine()}, {os.cpu_count()} cores, Python {platform.python_version()}, {rows:,} rows")
    for kind, line in LINES.items():
        with tempfile.TemporaryFile() as file:
            file.write(HEADERS[kind])
            file.writelines(line(n).encode() for n in range(rows))
            Path("/proc/self/clear_refs").write_text("5")  # the peak is counted anew
            before, started = peak_mib(), time.perf_counter()
            set_import(principal=principal, kind_name="documents", name=kind, file=file, file_name=kind)
            seconds[kind] = time.perf_counter() - started
            print(f"{kind:5} {rows / seconds[kind]:8,.0f} rows/s, +{peak_mib() - before} MiB", flush=True)
    parsed = [(n, f"d{n}", f"Title {n}", f"{TEXT} {n}, twice", "{}", False) for n in range(rows)]
    started = time.perf_counter()
    with transaction.atomic(), connection.cursor() as cursor:
        parent = str(DocumentSet.objects.create(team=principal.team, name="peer").pk)
        with cursor.copy(COPY) as copy:
            for row in parsed:
                copy.write_row((parent, *row))
    peer = time.perf_counter() - started
    ratios = ", ".join(f"{kind} {peer / each:.2f}x" for kind, each in seconds.items())
    connection.creation.destroy_test_db(outside, verbosity=0)
    print(f"COPY  {rows / peer:8,.0f} rows/s; ours against it: {ratios}")


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 1_000_000)

"""Backup and restore as docs/deploy.md tells it: a dump taken while the platform runs is the whole truth."""

from __future__ import annotations

import subprocess
from pathlib import Path
from typing import Any

import httpx
import psycopg
import pytest
from psycopg import sql

from assay.embedded import postgres_programs
from assay.settings import env
from assay.supervisor import free_port, web_command
from tests.integration.rig import wait_for
from tests.integration.running import checked, finished, registered, submitted
from tests.stack import Stack, manage

pytestmark = pytest.mark.stack


def program(name: str, *arguments: str) -> None:
    subprocess.run([postgres_programs() / name, *arguments], check=True, capture_output=True, text=True, timeout=300)


def contents(address: str) -> dict[str, tuple[int, str]]:
    """Of every table: how many rows, and a checksum over all of them."""
    with psycopg.connect(address) as link:
        tables = link.execute("SELECT tablename FROM pg_tables WHERE schemaname = 'public' ORDER BY 1").fetchall()
        query = sql.SQL(
            "SELECT count(*), coalesce(md5(string_agg(md5(t::text), '' ORDER BY md5(t::text))), '') FROM {} t"
        )
        return {name: _row(link, query.format(sql.Identifier(name))) for (name,) in tables}


def _row(link: psycopg.Connection[Any], query: sql.Composed) -> tuple[int, str]:
    row = link.execute(query).fetchone()
    assert row is not None
    return int(row[0]), str(row[1])


def result_pages(client: httpx.Client, job: dict[str, Any]) -> list[dict[str, Any]]:
    summary = checked(client.get(f"/api/v1/jobs/{job['id']}"))
    return [summary, checked(client.get(f"/api/v1/jobs/{job['id']}/results"))]


def test_what_was_dumped_is_restored_whole(stack: Stack, empty_database: str, tmp_path: Path) -> None:
    job = submitted(stack.client, registered(stack.client, "late-kept"), chunks=3)
    assert finished(stack.client, job)["state"] == "completed"
    dump = tmp_path / "assay.dump"
    program("pg_dump", "--format=custom", "--file", str(dump), stack.database_url)
    program("pg_restore", "--exit-on-error", "--no-owner", "--dbname", empty_database, str(dump))

    kept, restored = contents(stack.database_url), contents(empty_database)
    living = {"scoring_worker", "django_session"}  # heartbeats went on meanwhile
    assert kept.keys() == restored.keys()
    assert {name for name in kept if kept[name][0] != restored[name][0]} - living == set()
    assert {name for name in kept if kept[name] != restored[name]} - living <= {
        "scoring_placement",
        "accounts_apitoken",
    }
    assert restored["scoring_chunk"][0] >= 3 and restored["scoring_document"][0] >= 192

    environment = {**stack.environment, "DATABASE_URL": empty_database}
    assert manage(environment, "migrate", "--check") == ""
    port = free_port()
    with (tmp_path / "web.log").open("w") as log:
        web = subprocess.Popen(web_command("127.0.0.1", port), env=env.for_child(environment), stdout=log, stderr=log)
        try:
            with httpx.Client(base_url=f"http://127.0.0.1:{port}", headers=stack.client.headers) as client:
                wait_for(lambda: _answers(client), seconds=180, what="the web server on the restored database")
                assert result_pages(client, job) == result_pages(stack.client, job)
        finally:
            web.terminate()
            web.wait(180)
    # The restored database goes on where the other stood: ids are given out anew, and what must not be is refused.
    with (
        psycopg.connect(empty_database) as link,
        pytest.raises(psycopg.errors.InsufficientPrivilege, match="append-only"),
    ):
        link.execute("UPDATE audit_auditevent SET verb = 'x'")


def _answers(client: httpx.Client) -> bool:
    try:
        return client.get("/readyz").is_success
    except httpx.TransportError:
        return False

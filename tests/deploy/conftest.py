from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlsplit, urlunsplit

import psycopg
import pytest
from django.conf import settings

Environment = dict[str, str]


@pytest.fixture
def empty_database() -> Iterator[str]:
    """The address of a database without tables, on the session's server."""
    parts = urlsplit(settings.DATABASE_URL)
    name = f"assay_deploy_{os.getpid()}"
    with psycopg.connect(urlunsplit(parts._replace(path="/postgres")), autocommit=True) as server:
        server.execute(f"DROP DATABASE IF EXISTS {name} WITH (FORCE)")
        server.execute(f"CREATE DATABASE {name}")
        try:
            yield urlunsplit(parts._replace(path=f"/{name}"))
        finally:
            server.execute(f"DROP DATABASE {name} WITH (FORCE)")


@pytest.fixture
def environment(empty_database: str, tmp_path: Path) -> Environment:
    """Of a process on that database."""
    return {
        "DJANGO_SETTINGS_MODULE": "assay.settings.dev",
        "DATABASE_URL": empty_database,
        "REDIS_URL": settings.REDIS_URL,
        "DATA_DIR": str(tmp_path),
        "DEVICE": "cpu",
    }

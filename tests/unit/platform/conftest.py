from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from django.conf import settings


@pytest.fixture
def data_dir() -> Iterator[Path]:
    """An empty data folder. Not below pytest's own: that one is closed to other users again by every session that
    starts, and where the tests run as root PostgreSQL is another user."""
    folder = Path(tempfile.mkdtemp(prefix="data-", dir=settings.DATA_DIR))
    yield folder
    shutil.rmtree(folder)

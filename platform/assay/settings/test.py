"""The test session: real servers of its own in ``var/test``, one Redis database that no running platform uses."""

from __future__ import annotations

import atexit
import contextlib
import fcntl
import itertools
from pathlib import Path
from typing import IO

from assay import embedded
from assay.settings import env
from assay.settings.base import *  # noqa: F403
from assay.settings.base import DATABASES


def _own_folder(session: contextlib.ExitStack) -> Path:
    """The first of test, test-2, … that no other session holds: several may run at once and never meet."""
    for number in itertools.count(1):
        folder = env.data_dir() / ("test" if number == 1 else f"test-{number}")
        folder.mkdir(parents=True, exist_ok=True)
        lock: IO[str] = session.enter_context((folder / "session.lock").open("a"))
        with contextlib.suppress(BlockingIOError):
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return folder
    raise AssertionError("unreachable: the numbers do not end")


# pytest-django reads the settings before any conftest runs, so the session's servers are started here.
_session = contextlib.ExitStack()
atexit.register(_session.close)
DATA_DIR = _own_folder(_session)
_session.enter_context(
    embedded.servers(DATA_DIR, postgres=not env.given("DATABASE_URL"), redis=not env.given("REDIS_URL"), durable=False)
)

DATABASE_URL = env.url("DATABASE_URL", schemes=("postgresql", "postgres"), default=embedded.database_url(DATA_DIR))
REDIS_URL = env.url("REDIS_URL", schemes=("redis", "rediss", "unix"), default=embedded.redis_url(DATA_DIR))
DATABASES["default"] |= env.postgres(DATABASE_URL)
CELERY_BROKER_URL = env.celery_broker(REDIS_URL)
MEDIA_ROOT = DATA_DIR / "files"
FILE_UPLOAD_TEMP_DIR = DATA_DIR / "uploads"
FILE_UPLOAD_TEMP_DIR.mkdir(exist_ok=True, mode=0o700)

SNAPSHOT_SECONDS = 0.0  # tests look at once at what they changed
SECRET_KEY = "the test suite's key, worth nothing outside it"
TOKEN_PEPPERS = {1: "the-test-suites-first-pepper-0000000", 2: "the-test-suites-second-pepper-000000"}
ALLOWED_HOSTS = ["testserver", "localhost", "127.0.0.1"]
PASSWORD_HASHERS = [
    "django.contrib.auth.hashers.MD5PasswordHasher"
]  # tests log in often; strength is not their subject

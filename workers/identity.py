"""Which worker a process is: an id that outlives restarts, kept by name in the data folder."""

from __future__ import annotations

import contextlib
import fcntl
import json
import re
import time
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Final

NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,62}")
PATIENCE_SECONDS: Final = 15.0  # the process before us may still be draining


class NameRefused(Exception):
    """No worker can have this name here."""


@contextlib.contextmanager
def worker_identity(name: str, *, folder: Path) -> Iterator[uuid.UUID]:
    """The id of the worker ``name``, ours alone while the block runs; the kernel frees it when the process dies.

    Raises NameRefused for a name that is no file name, or that another process keeps for longer than it takes to stop.
    """
    if not NAME.fullmatch(name):
        raise NameRefused(
            f"The worker's name is {name!r}; give up to 63 letters, digits, '.', '_' and '-', such as worker-1."
        )
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / f"{name}.json").open("a+", encoding="utf-8") as file:
        _lock(file.fileno(), name)
        file.seek(0)
        text = file.read()
        if not text:
            text = json.dumps({"id": str(uuid.uuid4())})
            file.write(text)
            file.flush()
        yield uuid.UUID(json.loads(text)["id"])


def _lock(descriptor: int, name: str) -> None:
    give_up = time.monotonic() + PATIENCE_SECONDS
    while True:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return
        except BlockingIOError as error:
            if time.monotonic() > give_up:
                raise NameRefused(
                    f"A worker named {name!r} is running on this data folder; give the second one another --name."
                ) from error
            time.sleep(0.2)

"""Which server, and which token: what was given, else the environment, else the file that ``assay login`` writes.

This file alone reads the environment for clients: they run on machines that have none of the platform's settings.
"""

from __future__ import annotations

import json
import os
import tempfile
import tomllib
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit

from assay.client.errors import ConfigurationError

DEFAULT_URL: Final = "http://127.0.0.1:8000"
OTHERS: Final = 0o077


@dataclass(frozen=True, slots=True)
class Target:
    url: str
    token: str = field(repr=False)


def config_path() -> Path:
    return Path.home() / ".config" / "assay" / "config.toml"


def target(url: str | None = None, token: str | None = None) -> Target:
    """Raises ConfigurationError if there is no token. A stored token is only ever sent to the server it was made by."""
    stored = config_read()
    address = clean_url(url or os.environ.get("ASSAY_URL") or (stored.url if stored else DEFAULT_URL))
    secret = token or os.environ.get("ASSAY_TOKEN") or (stored.token if stored and stored.url == address else None)
    if secret is None:
        raise ConfigurationError(f"There is no token for {address}: set ASSAY_TOKEN, or run `assay login`.")
    if not (secret.isascii() and secret.isprintable()):
        raise ConfigurationError("The token has characters that no token has; copy it again.")
    return Target(address, secret)


def clean_url(url: str) -> str:
    """Without a slash at its end. Raises ConfigurationError for what is no HTTP address."""
    parts = urlsplit(url)
    if parts.scheme not in ("http", "https") or not parts.hostname or "@" in parts.netloc:
        raise ConfigurationError(f"'{url}' is no server's address; give one such as {DEFAULT_URL}.")
    return url.rstrip("/")


def config_read() -> Target | None:
    """What is stored; None if nothing is. Raises ConfigurationError for a file that others may read, or that is bad."""
    path = config_path()
    try:
        with path.open("rb") as file:
            if os.fstat(file.fileno()).st_mode & OTHERS:
                raise ConfigurationError(f"Others can read {path}, which holds a token: chmod 600 it.")
            values = tomllib.load(file)
        return Target(values["url"], values["token"])
    except FileNotFoundError:
        return None
    except (tomllib.TOMLDecodeError, KeyError, UnicodeDecodeError) as error:
        raise ConfigurationError(f"{path} cannot be read ({error}); run `assay login` to write it anew.") from None
    except OSError as error:
        raise ConfigurationError(f"{path} cannot be read: {error.strerror}.") from error


def config_write(stored: Target) -> Path:
    """Readable by its owner alone from its first byte on; replaces the old file at once."""
    path = config_path()
    path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    # A JSON string is a TOML string too. mkstemp makes files of mode 600.
    lines = f"url = {json.dumps(stored.url)}\ntoken = {json.dumps(stored.token)}\n"
    descriptor, name = tempfile.mkstemp(dir=path.parent, prefix="config.")
    with os.fdopen(descriptor, "w", encoding="utf-8") as file:
        file.write(lines)
    Path(name).replace(path)
    return path

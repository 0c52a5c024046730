"""Typed readers of the environment. No other file of the platform reads ``os.environ``.

Every reader raises ``ImproperlyConfigured`` with one sentence: the variable, what was given, what would be valid.
A variable that is set to the empty string counts as not set.
"""

from __future__ import annotations

import contextlib
import importlib.util
import ipaddress
import os
import re
import secrets as random
from collections.abc import Collection, Mapping
from ipaddress import IPv4Network, IPv6Network, ip_network
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl, unquote, urlsplit

from django.core.exceptions import ImproperlyConfigured

TRUE = {"1", "true", "yes", "on"}
FALSE = {"0", "false", "no", "off"}

# A host that vanished sends no farewell: without these a thread waits for it for a quarter of an hour.
LINK_PATIENCE = {
    "connect_timeout": "10",  # seconds
    "keepalives_idle": "10",
    "keepalives_interval": "5",
    "keepalives_count": "3",
    "tcp_user_timeout": "20000",  # milliseconds
}
S3_OPTIONS = {"endpoint_url", "region_name", "addressing_style"}

ROOT = Path(__file__).resolve().parents[3]


_asked: dict[str, bool] = {}  # every variable that was looked for, and whether it is set
_by_file: set[str] = set()  # those that may hold a secret, and so may be the path of a file


def _raw(name: str) -> str | None:
    value = os.environ.get(name, "").strip() or None
    _asked[name] = value is not None
    return value


def sources() -> dict[str, str]:
    """Where the value of each variable that was read came from."""
    found = {}
    for name, is_set in _asked.items():
        if name.removesuffix("_FILE") not in _by_file or name in _by_file:
            in_file = _asked.get(f"{name}_FILE", False)
            found[name] = "the environment" if is_set else "a file that the environment names" if in_file else "default"
    return found


def may_hold_secret(name: str) -> bool:
    return name in _by_file


def _refuse(name: str, given: str, valid: str) -> ImproperlyConfigured:
    return ImproperlyConfigured(f"{name} is {given!r}; give {valid}.")


def _missing(name: str, valid: str) -> ImproperlyConfigured:
    return ImproperlyConfigured(f"{name} is not set; give {valid}.")


def given(name: str) -> bool:
    """Whether ``name`` is set, by itself or as the path of a file."""
    return _raw(name) is not None or _raw(f"{name}_FILE") is not None


def data_dir() -> Path:
    """The folder of everything this installation writes."""
    return folder("DATA_DIR", ROOT / "var")


def text(name: str, default: str | None = None) -> str:
    value = _raw(name) or default
    if value is None:
        raise _missing(name, "a text")
    return value


def words(name: str, default: Collection[str] = (), *, required: str | None = None) -> list[str]:
    """A comma-separated list; ``required`` says in words what it must hold."""
    value = _raw(name)
    if value is None and required:
        raise _missing(name, required)
    return [word.strip() for word in value.split(",") if word.strip()] if value else list(default)


def hosts(name: str) -> list[str]:
    """Names with or without a port, addresses and networks."""
    entries = words(name)
    for entry in entries:
        with contextlib.suppress(ValueError):
            ipaddress.ip_network(entry, strict=False)
            continue
        if not re.fullmatch(r"([A-Za-z0-9_.-]+|\[[0-9A-Fa-f:.]+\])(:\d{1,5})?", entry):
            raise _refuse(name, entry, "names (host or host:port), addresses or networks (10.1.0.0/16), with commas")
    return entries


def integer(name: str, default: int, *, minimum: int = 0, maximum: int | None = None) -> int:
    value = _raw(name)
    if value is None:
        return default
    valid = (
        f"a whole number of at least {minimum}" if maximum is None else f"a whole number from {minimum} to {maximum}"
    )
    if not re.fullmatch(r"[+-]?\d{1,18}", value, re.ASCII):
        raise _refuse(name, value, valid)
    number = int(value)
    if number < minimum or (maximum is not None and number > maximum):
        raise _refuse(name, value, valid)
    return number


def boolean(name: str, default: bool) -> bool:
    value = _raw(name)
    if value is None:
        return default
    if value.lower() not in TRUE | FALSE:
        raise _refuse(name, value, "true or false (1, 0, yes, no, on, off)")
    return value.lower() in TRUE


def choice(name: str, default: str, *, pattern: str, valid: str) -> str:
    """A value that ``pattern`` matches whole; ``valid`` says the pattern in words."""
    value = _raw(name) or default
    if not re.fullmatch(pattern, value):
        raise _refuse(name, value, valid)
    return value


def folder(name: str, default: Path) -> Path:
    """An absolute folder path; it need not exist yet, but may not be a file."""
    value = _raw(name)
    path = Path(value).expanduser().resolve() if value else default.resolve()
    if path.exists() and not path.is_dir():
        raise _refuse(name, str(path), "a folder, not a file")
    return path


def file(name: str) -> str:
    """The absolute path of a file that exists; empty if the variable is not set."""
    value = _raw(name)
    if value is None:
        return ""
    path = Path(value).expanduser().resolve()
    if not path.is_file():
        raise _refuse(name, value, "the path of a file that exists")
    return str(path)


def folders(name: str, default: Collection[Path] = ()) -> list[Path]:
    """Existing folders, separated as in PATH."""
    value = _raw(name)
    paths = [Path(part).expanduser().resolve() for part in value.split(os.pathsep) if part] if value else list(default)
    for path in paths:
        if not path.is_dir():
            raise _refuse(name, str(path), f"folders that exist, separated by {os.pathsep!r}")
    return paths


def networks(name: str) -> list[IPv4Network | IPv6Network]:
    """Networks and single addresses, separated by commas."""
    try:
        return [ip_network(word) for word in words(name)]
    except ValueError as error:
        valid = "networks such as 10.0.0.0/8 or fd00::/8, separated by commas, without bits behind the mask"
        raise _refuse(name, ",".join(words(name)), valid) from error


def url(name: str, *, schemes: Collection[str], default: str | None = None) -> str:
    """An address, which may hold a password and so may stand in the file that ``NAME_FILE`` names."""
    value = _raw_or_file(name) or default
    valid = "a URL such as " + " or ".join(f"{scheme}://…" for scheme in schemes)
    if value is None:
        raise _missing(name, valid)
    try:
        parts = urlsplit(value)
        usable = parts.scheme in schemes and (parts.port is None or parts.port > 0)
    except ValueError:
        usable = False
    if not usable:
        # The value itself may hold a password: only its scheme is repeated.
        raise _refuse(name, value.split("://", 1)[0] + "://…" if "://" in value else "not a URL", valid)
    return value


def secret(name: str, *, create_in: Path | None = None) -> str:
    """A secret from ``NAME``, from the file that ``NAME_FILE`` names, or from ``create_in/name``, made on first use."""
    if value := _raw_or_file(name):
        return value
    if create_in is None:
        raise _missing(name, f"a long random text, or the path of a file that holds one in {name}_FILE")
    return _created_once(create_in / name.lower())


def _raw_or_file(name: str) -> str | None:
    """``NAME``, or what the file holds that ``NAME_FILE`` names: an orchestrator hands secrets over as files."""
    _by_file.add(name)
    value, file = _raw(name), _raw(f"{name}_FILE")
    if file is None:
        return value
    if value is not None:
        raise ImproperlyConfigured(f"{name} and {name}_FILE are both set; give one of them.")
    try:
        content = Path(file).read_text(encoding="utf-8").strip()
    except (OSError, UnicodeDecodeError) as error:
        raise _refuse(f"{name}_FILE", file, f"the path of a readable text file ({error.__class__.__name__})") from error
    if not content:
        raise _refuse(f"{name}_FILE", file, "a file that is not empty")
    return content


def _created_once(path: Path) -> str:
    path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    draft = path.with_name(f"{path.name}.{os.getpid()}")
    if not path.exists():
        draft.touch(mode=0o600)
        draft.write_text(random.token_urlsafe(48), encoding="utf-8")
        # A hard link appears whole or not at all: of two processes that start together, the first one's secret counts.
        with contextlib.suppress(FileExistsError):
            path.hardlink_to(draft)
        draft.unlink()
    return path.read_text(encoding="utf-8").strip()


def peppers(name: str, *, create_in: Path | None = None) -> dict[int, str]:
    """``id:value`` pairs, separated by commas; the highest id signs new tokens, the others still verify old ones."""
    value = secret(name, create_in=create_in)
    if create_in is not None and not given(name):
        return {1: value}  # the one made here, of a kept secret's form
    pairs: dict[int, str] = {}
    for part in value.split(","):
        number, _, pepper = part.strip().partition(":")
        if not number.isdecimal() or len(pepper) < 32 or int(number) in pairs:
            raise ImproperlyConfigured(
                f"{name} must be pairs such as 1:<32 or more characters>, separated by commas, no id twice."
            )
        pairs[int(number)] = pepper
    return pairs


def credentials(name: str) -> dict[str, tuple[str, str]]:
    """Host and secret by name, from ``name@host=secret`` pairs, separated by commas or lines."""
    found: dict[str, tuple[str, str]] = {}
    for part in re.split(r"[,\n]", _raw_or_file(name) or ""):
        form = re.fullmatch(r"([\w-]{1,64})@([a-z0-9._:\[\]-]+)=(\S+)", part.strip(), re.ASCII)
        if part.strip() and (form is None or form[1] in found):
            raise ImproperlyConfigured(f"{name} must be pairs such as cohere@api.cohere.com=<secret>, no name twice.")
        if form is not None:
            found[form[1]] = (form[2], form[3])
    return found


def postgres(address: str) -> dict[str, Any]:
    """The parts of a PostgreSQL URL as Django wants them; the query's members become connection options."""
    parts = urlsplit(address)
    options = {**LINK_PATIENCE, **dict(parse_qsl(parts.query))}
    return {
        "ENGINE": "django.db.backends.postgresql",
        "NAME": unquote(parts.path.lstrip("/")),
        "USER": unquote(parts.username or ""),
        "PASSWORD": unquote(parts.password or ""),
        "HOST": options.pop("host", None) or unquote(parts.hostname or ""),
        "PORT": str(parts.port or ""),
        "OPTIONS": options,
    }


def celery_broker(address: str) -> str:
    """A Redis URL as Celery spells it: for a Unix socket the scheme and the database's name differ from redis-py's."""
    parts = urlsplit(address)
    if parts.scheme != "unix":
        return address
    database = dict(parse_qsl(parts.query)).get("db", "0")
    return f"redis+socket://{parts.path}?virtual_host={database}"


def storage(name: str) -> dict[str, Any]:
    """Where uploaded files lie, as a member of Django's STORAGES: in ``MEDIA_ROOT``, or in ``s3://bucket/prefix``.

    ``NAME_ACCESS_KEY`` and ``NAME_SECRET_KEY`` (or their files) are the bucket's; without them the host's role counts.
    """
    if not given(name):
        return {"BACKEND": "django.core.files.storage.FileSystemStorage"}
    parts = urlsplit(url(name, schemes=("s3",)))
    options = dict(parse_qsl(parts.query))
    if not parts.hostname or parts.username or not options.keys() <= S3_OPTIONS:
        valid = f"s3://bucket/prefix with no more than {', '.join(sorted(S3_OPTIONS))} behind the question mark"
        raise _refuse(name, f"s3://{parts.hostname or ''}…", valid)
    if importlib.util.find_spec("storages") is None:
        raise ImproperlyConfigured(f"{name} needs django-storages; `pip install 'assay[storage]'`, or unset {name}.")
    access_key, secret_key = _raw_or_file(f"{name}_ACCESS_KEY"), _raw_or_file(f"{name}_SECRET_KEY")
    if (access_key is None) != (secret_key is None):
        raise ImproperlyConfigured(f"{name}_ACCESS_KEY and {name}_SECRET_KEY belong together; give both or neither.")
    return {
        "BACKEND": "storages.backends.s3.S3Storage",
        "OPTIONS": {
            **options,
            "bucket_name": parts.hostname,
            "location": parts.path.strip("/"),
            "access_key": access_key,
            "secret_key": secret_key,
            "file_overwrite": False,
            "max_memory_size": 8 << 20,  # what is larger is read by way of a temporary file
        },
    }


def for_child(changes: Mapping[str, str]) -> dict[str, str]:
    """The environment of a child process: this one's, with ``changes``."""
    return {**os.environ, **changes}


def metrics_folder() -> Path | None:
    """Where the web processes of one server keep their metrics for each other; None for one process alone."""
    value = _raw("PROMETHEUS_MULTIPROC_DIR")
    return Path(value) if value else None

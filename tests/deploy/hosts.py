"""Hosts made of network namespaces: each has its own interfaces and loopback, and nothing but a cable between them."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from assay.settings import env

END_SECONDS = 40.0


@dataclass
class Host:
    """A namespace, the folder of its logs, and the processes that run in it."""

    namespace: str
    folder: Path
    processes: dict[str, subprocess.Popen[bytes]] = field(default_factory=dict)

    def start(
        self, name: str, command: list[str], environment: Mapping[str, str], *, user: tuple[int, int] | None = None
    ) -> None:
        enter = ["nsenter", f"--net=/run/netns/{self.namespace}"]
        if user is not None:
            enter += [f"--setuid={user[0]}", f"--setgid={user[1]}"]
        with self.log_path(name).open("ab") as log:
            self.processes[name] = subprocess.Popen(
                [*enter, "--", *command], env=env.for_child(environment), cwd="/" if user else env.ROOT,
                stdin=subprocess.DEVNULL, stdout=log, stderr=log,
            )  # fmt: skip

    def log_path(self, name: str) -> Path:
        return self.folder / f"{name}.log"

    def stop(self) -> None:
        """The last one started ends first: servers outlive whoever uses them."""
        for process in reversed(self.processes.values()):
            process.terminate()
            try:
                process.wait(END_SECONDS)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()


@dataclass(frozen=True)
class Cable:
    """Between the two hosts; pulled out it loses every packet, and neither side is told."""

    namespace: str
    interface: str

    def pull(self) -> None:
        ip("-n", self.namespace, "link", "set", self.interface, "down")

    def plug(self) -> None:
        ip("-n", self.namespace, "link", "set", self.interface, "up")


@dataclass(frozen=True)
class Pair:
    """``near`` holds the servers, ``far`` a worker. The addresses are ``near``'s as seen by ``far`` and from here."""

    near: Host
    far: Host
    cable: Cable
    address: str
    address_here: str


def ip(*arguments: str) -> None:
    result = subprocess.run(["ip", *arguments], capture_output=True, text=True, check=False)
    if result.returncode:
        raise OSError(f"ip {' '.join(arguments)}: {result.stderr.strip()}")


@contextmanager
def two_hosts(folder: Path) -> Iterator[Pair]:
    """Skips the test where namespaces cannot be made, with the reason."""
    if shutil.which("ip") is None or shutil.which("nsenter") is None:
        pytest.skip("no network namespaces here: `ip` or `nsenter` is missing")
    number = os.getpid() % 250
    near, far = (Host(f"assay-{side}-{os.getpid()}", folder) for side in ("near", "far"))
    here, net = f"assay{os.getpid()}", f"10.217.{number}"
    with ExitStack() as undo:
        try:
            for host in (near, far):
                ip("netns", "add", host.namespace)
                undo.callback(ip, "netns", "del", host.namespace)
                ip("-n", host.namespace, "link", "set", "lo", "up")
            ip("-n", near.namespace, "link", "add", "cable", "type", "veth", "peer", "cable", "netns", far.namespace)
            ip("link", "add", here, "type", "veth", "peer", "here", "netns", near.namespace)
            for place, interface, address in (
                (["-n", near.namespace], "cable", f"{net}.1"),
                (["-n", far.namespace], "cable", f"{net}.2"),
                (["-n", near.namespace], "here", f"{net}.5"),
                ([], here, f"{net}.6"),
            ):
                ip(*place, "address", "add", f"{address}/30", "dev", interface)
                ip(*place, "link", "set", interface, "up")
        except OSError as error:
            undo.close()
            pytest.skip(f"no network namespaces here: {error}")
        undo.callback(near.stop)
        undo.callback(far.stop)
        yield Pair(near, far, Cable(near.namespace, "cable"), f"{net}.1", f"{net}.5")

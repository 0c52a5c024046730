"""Other servers of the same weights: vLLM and infinity, each in a virtual environment of its own, started as it runs
best on this machine."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import httpx
from load import Target

START_SECONDS: Final = 900
OFFLINE: Final = {
    "HF_HUB_OFFLINE": "1",
    "TRANSFORMERS_OFFLINE": "1",
    "DO_NOT_TRACK": "1",
    "VLLM_CPU_KVCACHE_SPACE": "2",
}


@dataclass(frozen=True, slots=True)
class Peer:
    name: str
    command: list[str]
    path: str = "/rerank"


def peers(vllm: Path | None, infinity: Path | None, model: Path, *, dtype: str) -> Iterator[Peer]:
    """Those whose environment is there. infinity computes in float32 on a CPU: its bfloat16 is not for CPUs."""
    places = {"vllm": (vllm, "vllm", _vllm), "infinity": (infinity, "infinity_emb", _infinity)}
    for name, (folder, program, arguments) in places.items():
        if folder is None or not (folder / "bin" / program).exists():
            where = f"no {program} in {folder}/bin" if folder else f"give --{name} FOLDER, its virtual environment"
            print(f"{name}: not compared, {where}.")
            continue
        yield Peer(name, [str(folder / "bin" / program), *arguments(model, dtype)])


def _vllm(model: Path, dtype: str) -> list[str]:
    return ["serve", str(model), "--dtype", dtype, "--served-model-name", "pairs"]


def _infinity(model: Path, dtype: str) -> list[str]:
    return ["v2", "--model-id", str(model), "--served-model-name", "pairs", "--engine", "torch", "--device", "cpu",
            "--dtype", "float32", "--no-bettertransformer"]  # fmt: skip


@contextlib.contextmanager
def serving(peer: Peer, port: int) -> Iterator[Target]:
    """Running until the block ends, and answering. Raises SystemExit with the end of its log if it does not start."""
    with tempfile.TemporaryFile("w+b") as log:
        process = subprocess.Popen(
            [*peer.command, "--host", "127.0.0.1", "--port", str(port)],
            stdin=subprocess.DEVNULL, stdout=log, stderr=log, env={**os.environ, **OFFLINE}, start_new_session=True,
        )  # fmt: skip
        try:
            url, give_up = f"http://127.0.0.1:{port}", time.monotonic() + START_SECONDS
            while not _answers(url):
                if process.poll() is not None or time.monotonic() > give_up:
                    log.seek(0)
                    raise SystemExit(f"{peer.name} did not start:\n{log.read().decode(errors='replace')[-2000:]}")
                time.sleep(0.5)
            yield Target(url, peer.path)
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGTERM)
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(20)
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()


def _answers(url: str) -> bool:
    with contextlib.suppress(httpx.TransportError):
        return httpx.get(f"{url}/health", timeout=2, trust_env=False).is_success
    return False

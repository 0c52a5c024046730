"""The command line and the client against the running platform, as somebody who is nobody yet on this machine."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from dataclasses import dataclass
from io import BytesIO, TextIOWrapper
from pathlib import Path
from typing import Any

import pytest

from assay.cli.app import main
from tests.integration.running import registered
from tests.stack import Stack


@dataclass(frozen=True)
class Ended:
    code: int | str | None
    out: str
    err: str

    @property
    def json(self) -> Any:
        return json.loads(self.out)


Assay = Callable[..., Ended]


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.delenv("ASSAY_URL", raising=False)
    monkeypatch.delenv("ASSAY_TOKEN", raising=False)
    return tmp_path


@pytest.fixture
def server(stack: Stack, home: Path, monkeypatch: pytest.MonkeyPatch) -> Stack:
    monkeypatch.setenv("ASSAY_URL", stack.base_url)
    monkeypatch.setenv("ASSAY_TOKEN", stack.token)
    return stack


@pytest.fixture
def assay(home: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Assay:
    """``assay("jobs", "list", "--json")``: run the command as the shell does."""

    def run(*arguments: object, stdin: bytes = b"") -> Ended:
        monkeypatch.setattr(sys, "argv", ["assay", *map(str, arguments)])
        monkeypatch.setattr(sys, "stdin", TextIOWrapper(BytesIO(stdin), encoding="utf-8"))
        capsys.readouterr()
        with pytest.raises(SystemExit) as ended:
            main()
        out, err = capsys.readouterr()
        return Ended(ended.value.code or 0, out, err)

    return run


@pytest.fixture
def model(server: Stack) -> str:
    return registered(server.client, "late-client")

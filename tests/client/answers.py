"""A server that answers what it is told, one answer after the other, and keeps what it was asked."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from email.message import Message
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any


@dataclass(frozen=True)
class Answer:
    """``status`` 0: the connection is closed without a word, as soon as the client is gone if it is ``slow``."""

    status: int = 200
    body: Any = None
    headers: Mapping[str, str] = field(default_factory=dict)
    slow: bool = False


@dataclass(frozen=True)
class Asked:
    method: str
    path: str
    headers: Message
    body: bytes


@dataclass
class Scripted:
    url: str
    answers: list[Answer]
    asked: list[Asked]

    def say(self, *answers: Answer) -> None:
        self.answers[:] = answers
        self.asked.clear()


@contextmanager
def scripted() -> Iterator[Scripted]:
    answers: list[Answer] = []
    asked: list[Asked] = []

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def answer(self) -> None:
            body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
            asked.append(Asked(self.command, self.path, self.headers, body))
            told = answers.pop(0)
            if told.slow:
                self.rfile.read(1)
            if not told.status:
                self.close_connection = True
                return
            content = b"" if told.body is None else json.dumps(told.body).encode()
            self.send_response(told.status)
            for name, value in {**told.headers, "Content-Length": str(len(content))}.items():
                self.send_header(name, value)
            self.end_headers()
            self.wfile.write(content)

        do_GET = do_POST = do_PUT = do_DELETE = do_PATCH = answer

        def log_message(self, format: str, *arguments: Any) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever, daemon=True)
        thread.start()
        yield Scripted(f"http://127.0.0.1:{server.server_port}", answers, asked)
        server.shutdown()
        thread.join()

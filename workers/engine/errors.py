"""What the engine refuses, in words for people and a code for machines."""

from __future__ import annotations


class EngineError(Exception):
    """A request or a model that cannot be served. ``code`` is for machines, the message for people."""

    def __init__(self, code: str, message: str) -> None:
        super().__init__(message)
        self.code = code


class RequestCancelled(EngineError):
    """The client left, the job was cancelled, or the deadline passed before the work started."""

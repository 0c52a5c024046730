"""Why a model is not to be had on this worker."""

from __future__ import annotations


class ModelUnavailable(Exception):
    """The model cannot be used here now. ``failures`` counts the loads that failed in a row."""

    def __init__(self, message: str, failures: int = 0) -> None:
        super().__init__(message)
        self.failures = failures


class ModelFault(Exception):
    """The model was loaded, but is not what it should be."""

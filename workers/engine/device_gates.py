"""One forward pass at a time on a device: two models that peak together need the memory of both peaks.

The runner thread passes a gate for each micro-batch, a load for each pass that it makes to look at its model. Whoever
holds one holds no other."""

from __future__ import annotations

import threading
from collections import defaultdict

import torch


class DeviceGates:
    """Thread-safe; the gates of one process."""

    def __init__(self) -> None:
        self._gates: defaultdict[str, threading.Lock] = defaultdict(threading.Lock)
        self._lock = threading.Lock()

    def of(self, device: torch.device | str) -> threading.Lock:
        name = str(device)
        with self._lock:
            return self._gates["cuda:0" if name == "cuda" else name]

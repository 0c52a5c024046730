"""What memory a worker's models may claim together, and what its device really has left: other processes live there."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import psutil
from django.conf import settings

SHARE: Final = 0.75  # of the device, for the models of one worker, unless WORKER_MEMORY_BYTES says
MEMORY_LIMIT: Final = Path("/sys/fs/cgroup/memory.max")
CPU: Final = "cpu"


@dataclass(frozen=True, slots=True)
class DeviceMemory:
    """Bytes. ``device_class`` is what figures measured on one device hold for."""

    device: str
    device_class: str
    budget_bytes: int
    reserve_bytes: int

    @classmethod
    def of(cls, device: str) -> DeviceMemory:
        """Of ``auto``, ``cpu``, ``cuda`` or ``cuda:N``, as the settings say."""
        device = _resolved(device)
        reserve = settings.WORKER_MEMORY_RESERVE_BYTES
        share = max(int(_total(device) * SHARE) - reserve, 0)
        return cls(device, _device_class(device), settings.WORKER_MEMORY_BYTES or share, reserve)

    def free_bytes(self) -> int:
        """What the driver, or the host, says is free, less the reserve."""
        return max(_free(self.device) - self.reserve_bytes, 0)

    def room_bytes(self, claimed_bytes: int) -> int:
        """For one more model beside those that claimed ``claimed_bytes``."""
        return max(min(self.budget_bytes - claimed_bytes, self.free_bytes()), 0)


def _resolved(device: str) -> str:
    import torch

    if device == "auto":
        return "cuda" if torch.cuda.is_available() else CPU
    missing = device.startswith("cuda") and int(device.partition(":")[2] or 0) >= torch.cuda.device_count()
    return CPU if missing else device  # models registered for the CPU still run there


def _device_class(device: str) -> str:
    import torch

    return CPU if device == CPU else torch.cuda.get_device_name(device)


def _total(device: str) -> int:
    if device == CPU:
        return min(int(psutil.virtual_memory().total), _container_limit())
    import torch

    return int(torch.cuda.mem_get_info(device)[1])


def _free(device: str) -> int:
    if device == CPU:
        return int(psutil.virtual_memory().available)
    import torch

    # What this process's allocator keeps for later is free for its models too.
    kept = torch.cuda.memory_reserved(device) - torch.cuda.memory_allocated(device)
    return int(torch.cuda.mem_get_info(device)[0]) + kept


def _container_limit() -> int:
    """Of a container that has one; the host's memory is not all its own."""
    try:
        text = MEMORY_LIMIT.read_text().strip()
    except OSError:
        return sys.maxsize
    return int(text) if text.isdecimal() else sys.maxsize

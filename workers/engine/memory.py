"""Freed memory: kept from one forward to the next, given back to the machine after a load or an unload."""

from __future__ import annotations

import ctypes
import gc
import os
import sys
import traceback
from pathlib import Path

import torch

_TRIM_THRESHOLD, _MMAP_THRESHOLD = -1, -3  # the C library's names of the two, from malloc.h
_KEPT_BYTES = 2**29  # free memory at the end of the heap that stays ours
_MAPPED_BYTES = 2**25  # from this size on (weights, not activations) an allocation is a mapping of its own


def keep_freed_memory() -> None:
    """Let the next forward write where the last one did: otherwise every large activation is mapped, zeroed page by
    page and unmapped again (60 MB a forward of 2,048 tokens at 384 dimensions, a twentieth of its time)."""
    tune = getattr(ctypes.CDLL(None), "mallopt", None) if sys.platform == "linux" else None  # glibc only
    if tune is not None:
        tune(_MMAP_THRESHOLD, _MAPPED_BYTES)
        tune(_TRIM_THRESHOLD, _KEPT_BYTES)


class MemoryMeter:
    """The most memory that something took on a device: what CUDA allocated at its peak; on the CPU, by how much the
    process's resident memory had grown whenever ``note`` was called."""

    def __init__(self, device: torch.device) -> None:
        gc.collect()  # else what was left by others is given back meanwhile and counts against it
        _trim_heap()  # else what it takes would fill free blocks and not show
        self._device = device
        self._most = 0
        if device.type == "cuda":
            torch.cuda.reset_peak_memory_stats(device)
        self._before = self._now()

    def note(self) -> int:
        """The most so far, in bytes."""
        self._most = max(self._most, self._now() - self._before)
        return self._most

    def _now(self) -> int:
        return torch.cuda.max_memory_allocated(self._device) if self._device.type == "cuda" else resident_bytes()


def resident_bytes() -> int:
    """Of this process; 0 where the system does not say (it has no /proc)."""
    try:
        return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    except FileNotFoundError:
        return 0


def forget_frames(error: BaseException | None) -> None:
    """Clear the local variables that an error and its causes hold, so that whoever keeps it keeps no weights."""
    while error is not None:
        traceback.clear_frames(error.__traceback__)
        error = error.__cause__ or error.__context__


def give_memory_back() -> None:
    """Collect cycles (modules refer to each other), then let the allocators return what they keep for later."""
    gc.collect()
    _trim_heap()
    if torch.cuda.is_available():
        torch.cuda.empty_cache()


def _trim_heap() -> None:
    """Reading a checkpoint leaves hundreds of megabytes of small free blocks that the C library would keep."""
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None) if sys.platform == "linux" else None  # glibc only
    if trim is not None:
        trim(0)

"""Memory that nobody uses any more, given back to the machine after a load or an unload."""

from __future__ import annotations

import ctypes
import gc
import sys

import torch


def give_memory_back() -> None:
    """Collect cycles (modules refer to each other), then let the allocators return what they keep for later."""
    gc.collect()
    if sys.platform == "linux":
        # Reading a checkpoint leaves hundreds of megabytes of small free blocks that the C library would keep.
        trim = getattr(ctypes.CDLL(None), "malloc_trim", None)  # glibc only
        if trim is not None:
            trim(0)
    if torch.cuda.is_available():
        torch.cuda.empty_cache()

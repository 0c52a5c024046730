"""Triton kernels, each beside its formula in plain torch. Triton is optional: torch for the CPU comes without it, so
the modules of kernels are imported only where ``available`` says that they can run."""

from __future__ import annotations

import importlib.util
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager

import torch

DTYPES = (torch.float32, torch.float16, torch.bfloat16)  # what the kernels multiply


class KernelError(RuntimeError):
    """A kernel could not be compiled or launched; says which and why. The caller has another way, and tells."""


def available(*tensors: torch.Tensor) -> bool:
    """Whether kernels can take these: on CUDA, in a dtype they multiply, with Triton installed."""
    return (
        all(tensor.is_cuda and tensor.dtype in DTYPES for tensor in tensors)
        and importlib.util.find_spec("triton") is not None
    )


@contextmanager
def launching(kernel: str, tensor: torch.Tensor) -> Iterator[None]:
    """On the tensor's device, which Triton does not look at itself; whatever it raises becomes ``KernelError``."""
    from triton.errors import TritonError

    try:
        with torch.cuda.device_of(tensor):
            yield
    except torch.OutOfMemoryError:
        raise  # not the kernel's fault; the engine answers it with smaller batches
    except (TritonError, RuntimeError, OSError, subprocess.CalledProcessError) as error:  # the last two: its C compiler
        raise KernelError(f"The {kernel} kernel could not be launched: {type(error).__name__}: {error}") from error

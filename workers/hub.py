"""A model's files from the hub, downloaded once into the first of MODEL_ROOTS: this revision's weights and settings."""

from __future__ import annotations

from collections.abc import Callable
from fnmatch import fnmatch
from pathlib import Path
from typing import Final

import httpx2  # what the hub's own client asks with, and raises the errors of
from django.conf import settings
from huggingface_hub import HfApi
from huggingface_hub.errors import HfHubHTTPError, LocalEntryNotFoundError

from scoring.services.errands import HUB

WANTED: Final = (
    "*.safetensors", "*.safetensors.index.json", "*.json", "*.txt", "*.model", "*.jinja", "*.gguf", "README.md",
    "artifact.metadata", "sparse_linear.pt", "colbert_linear.pt",
)  # fmt: skip
UNWANTED: Final = ("onnx/*", "openvino/*", "*/onnx/*", "*/openvino/*")
ANSWER_SECONDS: Final = 10.0


class HubError(Exception):
    """Why the files could not be had, in a sentence."""


def hub_download(source: str, *, progress: Callable[[int, int], None]) -> Path:
    """``hub:<owner>/<name>@<revision>`` to its folder. ``progress`` is told the bytes done and in all, after each file.

    What was complete before is not fetched again. Raises HubError.
    """
    name, _, revision = source.removeprefix(HUB).partition("@")
    folder = Path(settings.MODEL_ROOTS[0]) / "hub" / f"{name}@{revision}".replace("/", "--")
    api = HfApi(endpoint=settings.MODEL_HUB_URL, token=False)
    try:
        info = api.model_info(name, revision=revision, files_metadata=True, timeout=ANSWER_SECONDS)
        files = [(file.rfilename, file.size or 0) for file in info.siblings or [] if _is_wanted(file.rfilename)]
        total, done = sum(size for _, size in files), 0
        progress(0, total)
        for path, size in files:
            api.hf_hub_download(name, path, revision=info.sha, local_dir=folder)
            done += size
            progress(done, total)
    except HfHubHTTPError as error:
        raise HubError(f"{settings.MODEL_HUB_URL} does not give {name} at {revision}: {_first_line(error)}") from error
    except (httpx2.HTTPError, LocalEntryNotFoundError, OSError) as error:
        raise HubError(
            f"{settings.MODEL_HUB_URL} cannot be reached from this worker ({_first_line(error)}). Put the model's "
            "folder below one of MODEL_ROOTS by another way and give its path, or name a mirror in MODEL_HUB_URL."
        ) from error
    if not files:
        raise HubError(f"{name} at {revision} holds no file that is read here; weights must be safetensors or GGUF.")
    return folder


def _is_wanted(path: str) -> bool:
    return any(fnmatch(path, form) for form in WANTED) and not any(fnmatch(path, form) for form in UNWANTED)


def _first_line(error: Exception) -> str:
    return (
        f"{type(error).__name__}: {str(error).strip().splitlines()[0]}" if str(error).strip() else type(error).__name__
    )

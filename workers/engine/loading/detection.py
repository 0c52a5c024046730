"""What kind of model a folder holds, read off its configuration files; no weights are loaded.

Asked in this order, since the later signs are the weaker ones:

1. Files that one family alone has: BGE-M3's two heads, and ColBERT's own metadata.
2. ``config_sentence_transformers.json`` and ``modules.json``: the library or the modules that made the folder.
3. The class in ``config.architectures``: sequence classification is a cross-encoder where it has one label or
   sentence-transformers' mark, else a classifier; token classification is a classifier; a causal model is generative,
   unless its name says that it reranks; a listwise reranker has a class of its own.
4. A bare encoder (``…Model``) is a bi-encoder. A masked language model alone could be anything."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from workers.engine.errors import EngineError
from workers.engine.loading.weights import read_json
from workers.engine.model_types import ModelKind

_LISTWISE = ("JinaForRanking",)
# The class of sentence-transformers or PyLate that wrote config_sentence_transformers.json.
_BY_LIBRARY = {
    "ColBERT": ModelKind.LATE_INTERACTION,
    "CrossEncoder": ModelKind.CROSS_ENCODER,
    "MultiVectorEncoder": ModelKind.LATE_INTERACTION,
    "SentenceTransformer": ModelKind.BI_ENCODER,
    "SparseEncoder": ModelKind.SPARSE,
}
_BY_MODULE = {
    "LogitScore": ModelKind.CROSS_ENCODER,
    "MLMTransformer": ModelKind.SPARSE,
    "SpladePooling": ModelKind.SPARSE,
    "Pooling": ModelKind.BI_ENCODER,
}


def detect_kind(folder: Path) -> ModelKind:
    """Raises ``EngineError`` where the folder could be several kinds, or says nothing that is known here."""
    signs: tuple[Callable[[Path], ModelKind | None], ...] = (_by_files, _by_library, _by_modules, _by_architecture)
    for sign in signs:
        kind = sign(folder)
        if kind is not None:
            return kind
    architectures = ", ".join(read_json(folder / "config.json").get("architectures") or ()) or "no architecture"
    raise EngineError(
        "unclear_kind",
        f"{folder} names {architectures} and nothing that says how it scores. Give the kind: {', '.join(ModelKind)}.",
    )


def _by_files(folder: Path) -> ModelKind | None:
    if all((folder / name).is_file() for name in ("sparse_linear.pt", "colbert_linear.pt")):
        return ModelKind.HYBRID
    if (folder / "artifact.metadata").is_file():
        return ModelKind.LATE_INTERACTION
    if not (folder / "config.json").is_file() and any(folder.glob("*.gguf")):
        return ModelKind.CROSS_ENCODER if _named_reranker(folder) else ModelKind.GENERATIVE
    return None


def _by_library(folder: Path) -> ModelKind | None:
    content = read_json(folder / "config_sentence_transformers.json")
    if content.keys() & {"query_prefix", "document_prefix", "skiplist_words", "attend_to_expansion_tokens"}:
        return ModelKind.LATE_INTERACTION
    written_by = content.get("model_type")
    # Older versions wrote no type, and only sentence embeddings had this file then; modules.json knows better.
    return _BY_LIBRARY.get(str(written_by)) if written_by else None


def _by_modules(folder: Path) -> ModelKind | None:
    modules: Any = read_json(folder / "modules.json") or []
    names = [str(module.get("type", "")).rpartition(".")[2] for module in modules]
    found = {kind for name, kind in _BY_MODULE.items() if name in names}
    if ModelKind.SPARSE in found:
        return ModelKind.SPARSE
    if found:
        return found.pop() if len(found) == 1 else None
    if any("pylate" in str(module.get("type", "")) for module in modules):
        return ModelKind.LATE_INTERACTION
    return None


def _by_architecture(folder: Path) -> ModelKind | None:
    config = read_json(folder / "config.json")
    name = next(iter(config.get("architectures") or ()), "")
    if name in _LISTWISE:
        return ModelKind.LISTWISE
    if name == "HF_ColBERT":
        return ModelKind.LATE_INTERACTION
    if name.endswith("ForSequenceClassification"):
        pairs = _label_count(config) == 1 or "sentence_transformers" in config
        pairs = pairs or "sbert_ce_default_activation_function" in config or _named_reranker(folder)
        return ModelKind.CROSS_ENCODER if pairs else ModelKind.CLASSIFIER
    if name.endswith("ForTokenClassification"):
        return ModelKind.CLASSIFIER
    if name.endswith(("ForCausalLM", "LMHeadModel")):
        return ModelKind.CROSS_ENCODER if _named_reranker(folder) else ModelKind.GENERATIVE
    if name.endswith("ForMaskedLM"):
        return ModelKind.SPARSE if "splade" in _names(folder) else None
    return ModelKind.BI_ENCODER if name.endswith("Model") else None


def _label_count(config: dict[str, Any]) -> int:
    labels = config.get("id2label")
    return len(labels) if labels else int(config.get("num_labels", 2))


def _named_reranker(folder: Path) -> bool:
    """A reranker that is a plain language model differs from others of its class by its name only."""
    return "rerank" in _names(folder)


def _names(folder: Path) -> str:
    """Whatever calls the model by name: the folder, the files in it, its configuration, the head of its card."""
    config = read_json(folder / "config.json")
    card = folder / "README.md"
    head = ""
    if card.is_file():
        with card.open(encoding="utf-8", errors="replace") as file:
            head = file.read(4096).partition("\n---")[0]  # the metadata block: tags, base_model, pipeline_tag
    files = " ".join(path.name for path in folder.glob("*.gguf"))
    places = [part for part in folder.resolve().parts if part.startswith("models--")]  # a hub's snapshot folder
    return " ".join((folder.name, *places, files, str(config.get("_name_or_path", "")), head)).lower()

"""The kind of a folder from its configuration files alone."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.engine.tiny_pairs import build_cross_encoder
from tests.engine.tiny_rerankers import build_mxbai, build_qwen3_roles
from workers.engine import EngineError, ModelKind
from workers.engine.loading.detection import detect_kind

LIBRARY = "config_sentence_transformers.json"
Files = dict[str, Any]  # by path; None: an empty file, text as it is, anything else as JSON


def modules(*types: str) -> list[dict[str, str]]:
    return [{"path": f"{index}_", "type": kind} for index, kind in enumerate(types)]


def architecture(name: str, **more: Any) -> Files:
    return {"config.json": {"architectures": [name], **more}}


BERT = "sentence_transformers.models.Transformer"
CASES: dict[str, tuple[Files, ModelKind]] = {
    "ms-marco": (
        architecture("BertForSequenceClassification", id2label={"0": "LABEL_0"}),
        ModelKind.CROSS_ENCODER,
    ),
    "nli cross-encoder": (
        architecture("RobertaForSequenceClassification", id2label={"0": "a", "1": "b"}, sentence_transformers={}),
        ModelKind.CROSS_ENCODER,
    ),
    "sentiment": (
        architecture("BertForSequenceClassification", id2label={"0": "bad", "1": "good"}),
        ModelKind.CLASSIFIER,
    ),
    "two labels by default": (architecture("BertForSequenceClassification"), ModelKind.CLASSIFIER),
    "entities": (architecture("BertForTokenClassification"), ModelKind.CLASSIFIER),
    "all-minilm": (
        {**architecture("BertModel"), "modules.json": modules(BERT, "sentence_transformers.models.Pooling")},
        ModelKind.BI_ENCODER,
    ),
    "qwen3-embedding": (
        {
            **architecture("Qwen3ForCausalLM"),
            "modules.json": modules(BERT, "sentence_transformers.models.Pooling"),
        },
        ModelKind.BI_ENCODER,
    ),
    "bare encoder": (architecture("XLMRobertaModel"), ModelKind.BI_ENCODER),
    "new sentence-transformers": (
        {**architecture("ModernBertModel"), LIBRARY: {"model_type": "SentenceTransformer"}},
        ModelKind.BI_ENCODER,
    ),
    "splade": (
        {
            **architecture("BertForMaskedLM"),
            "modules.json": modules(
                "sentence_transformers.sparse_encoder.models.MLMTransformer",
                "sentence_transformers.sparse_encoder.models.SpladePooling",
            ),
        },
        ModelKind.SPARSE,
    ),
    "new sparse": ({**architecture("BertForMaskedLM"), LIBRARY: {"model_type": "SparseEncoder"}}, ModelKind.SPARSE),
    "splade by name": (architecture("DistilBertForMaskedLM", _name_or_path="naver/splade-x"), ModelKind.SPARSE),
    "colbert": ({**architecture("HF_ColBERT"), "artifact.metadata": {}}, ModelKind.LATE_INTERACTION),
    "colbert without metadata": (architecture("HF_ColBERT"), ModelKind.LATE_INTERACTION),
    "pylate": (
        {
            **architecture("ModernBertModel"),
            "modules.json": modules(BERT, "pylate.models.Dense.Dense"),
            LIBRARY: {"query_prefix": "[Q] ", "document_prefix": "[D] "},
        },
        ModelKind.LATE_INTERACTION,
    ),
    "multi-vector": (
        {**architecture("BertModel"), LIBRARY: {"model_type": "MultiVectorEncoder"}},
        ModelKind.LATE_INTERACTION,
    ),
    "bge-m3": (
        {**architecture("XLMRobertaModel"), "sparse_linear.pt": None, "colbert_linear.pt": None,
         "modules.json": modules(BERT, "sentence_transformers.models.Pooling")},
        ModelKind.HYBRID,
    ),
    "jina-reranker-v3": (architecture("JinaForRanking"), ModelKind.LISTWISE),
    "smollm": (architecture("LlamaForCausalLM"), ModelKind.GENERATIVE),
    "gguf": ({"SmolLM2-Q4.gguf": None}, ModelKind.GENERATIVE),
    "reranker gguf": ({"Qwen3-Reranker-Q4.gguf": None}, ModelKind.CROSS_ENCODER),
    "reranker by its card": (
        {**architecture("Qwen3ForCausalLM"), "README.md": "---\npipeline_tag: text-ranking\n"
         "base_model: Qwen/Qwen3-Reranker-0.6B\n---\n# Model"},
        ModelKind.CROSS_ENCODER,
    ),
    "a card that only mentions rerankers": (
        {**architecture("Qwen3ForCausalLM"), "README.md": "---\nlicense: mit\n---\nNot a reranker."},
        ModelKind.GENERATIVE,
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", CASES)
def test_kind_from_configuration(tmp_path: Path, case: str) -> None:
    files, kind = CASES[case]
    for name, content in files.items():
        text = "" if content is None else content if isinstance(content, str) else json.dumps(content)
        (tmp_path / name).write_text(text)
    assert detect_kind(tmp_path) is kind


def test_whole_checkpoints(tmp_path: Path) -> None:
    assert detect_kind(build_cross_encoder("deberta-v2", tmp_path / "one")) is ModelKind.CROSS_ENCODER
    assert detect_kind(build_qwen3_roles(tmp_path / "two")) is ModelKind.CROSS_ENCODER
    assert detect_kind(build_mxbai(tmp_path / "mxbai-rerank-base-v2")) is ModelKind.CROSS_ENCODER
    assert (
        detect_kind(build_mxbai(tmp_path / "models--x--mxbai-rerank" / "snapshots" / "0123")) is ModelKind.CROSS_ENCODER
    )
    assert detect_kind(build_mxbai(tmp_path / "chat")) is ModelKind.GENERATIVE


def test_real_packages(minilm_folder: Path, smollm2_folder: Path) -> None:
    assert detect_kind(minilm_folder) is ModelKind.BI_ENCODER
    assert detect_kind(smollm2_folder) is ModelKind.GENERATIVE


@pytest.mark.parametrize("files", [{}, architecture("BertForMaskedLM"), architecture("T5ForConditionalGeneration")])
def test_unclear_folders_list_the_kinds(tmp_path: Path, files: Files) -> None:
    for name, content in files.items():
        (tmp_path / name).write_text(json.dumps(content))
    with pytest.raises(EngineError, match="cross-encoder, bi-encoder, late-interaction, sparse") as caught:
        detect_kind(tmp_path)
    assert caught.value.code == "unclear_kind"


def test_a_broken_configuration_is_said_to_be_one(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text("{")
    with pytest.raises(EngineError, match="not JSON"):
        detect_kind(tmp_path)

"""Classifiers of texts and of tokens against transformers' pipelines."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from transformers import (
    BertConfig,
    BertForSequenceClassification,
    BertForTokenClassification,
    DebertaV2Config,
    DebertaV2ForSequenceClassification,
    DebertaV2ForTokenClassification,
    DistilBertConfig,
    DistilBertForSequenceClassification,
    DistilBertForTokenClassification,
    ModernBertConfig,
    ModernBertForSequenceClassification,
    ModernBertForTokenClassification,
    PreTrainedModel,
    Qwen3Config,
    Qwen3ForSequenceClassification,
    Qwen3ForTokenClassification,
    RobertaConfig,
    RobertaForSequenceClassification,
    RobertaForTokenClassification,
    XLMRobertaConfig,
    XLMRobertaForTokenClassification,
)
from transformers import (
    pipeline as transformers_pipeline,
)

from tests.engine.inside import body_of, clear_caches
from tests.engine.tiny import CHATML, HIDDEN, ROBERTA, byte_level_bpe, save_random, unigram, wordpiece
from workers.engine import (
    Engine,
    EngineConfig,
    EngineError,
    ItemStatus,
    ModelKind,
    ModelSpec,
    PoolingOptions,
    PoolingOutput,
    PoolingRequest,
    PoolingTask,
    ScoringRequest,
    Span,
)
from workers.engine.pooling.spans import token_spans

pipeline: Any = transformers_pipeline
TEXTS = (
    "The river rose after a night of rain, and the bridge was closed until the water fell again.",
    "bees",
    "Numbers such as 1, 22 and 333 are split into digits.",
    "Bees gather nectar from flowers.",
)
TOPICS = {"id2label": {0: "rivers", 1: "bees", 2: "numbers"}, "label2id": {"rivers": 0, "bees": 1, "numbers": 2}}
NAMES = ("O", "B-PLACE", "I-PLACE", "B-THING", "I-THING")
ENTITIES = {"id2label": dict(enumerate(NAMES)), "label2id": {name: i for i, name in enumerate(NAMES)}}
SHORT: dict[str, Any] = {"max_position_embeddings": 66, **HIDDEN}
DISTILLED: dict[str, Any] = {"max_position_embeddings": 66, "dim": 32, "n_layers": 2, "n_heads": 4, "hidden_dim": 64}
DECODER: dict[str, Any] = {"max_position_embeddings": 66, "num_key_value_heads": 2, "head_dim": 8, **HIDDEN}
SPECIAL: dict[str, Any] = dict.fromkeys(
    ("bos_token_id", "cls_token_id", "eos_token_id", "sep_token_id", "pad_token_id"), 1
)

Build = Callable[[int, Any], PreTrainedModel]


def roberta_bpe() -> Any:
    return byte_level_bpe(ROBERTA, surround=True)


def chat_bpe() -> Any:
    return byte_level_bpe(CHATML, surround=False)


def modernbert(vocabulary: int, labels: Any) -> ModernBertConfig:
    return ModernBertConfig(vocab_size=vocabulary, local_attention=8, **SPECIAL, **SHORT, **labels)


CLASSIFIERS: dict[str, tuple[Build, Callable[[], Any]]] = {
    "bert": (lambda v, k: BertForSequenceClassification(BertConfig(vocab_size=v, **SHORT, **k)), wordpiece),
    "roberta": (
        lambda v, k: RobertaForSequenceClassification(RobertaConfig(vocab_size=v, pad_token_id=1, **SHORT, **k)),
        roberta_bpe,
    ),
    "distilbert": (
        lambda v, k: DistilBertForSequenceClassification(DistilBertConfig(vocab_size=v, **DISTILLED, **k)),
        wordpiece,
    ),
    "deberta-v2": (
        lambda v, k: DebertaV2ForSequenceClassification(DebertaV2Config(vocab_size=v, **SHORT, **k)),
        wordpiece,
    ),
    "modernbert-cls": (
        lambda v, k: ModernBertForSequenceClassification(modernbert(v, {"classifier_pooling": "cls", **k})),
        roberta_bpe,
    ),
    "modernbert-mean": (
        lambda v, k: ModernBertForSequenceClassification(modernbert(v, {"classifier_pooling": "mean", **k})),
        roberta_bpe,
    ),
    "qwen3": (lambda v, k: Qwen3ForSequenceClassification(Qwen3Config(vocab_size=v, **DECODER, **k)), chat_bpe),
}
TAGGERS: dict[str, tuple[Build, Callable[[], Any]]] = {
    "bert": (lambda v, k: BertForTokenClassification(BertConfig(vocab_size=v, **SHORT, **k)), wordpiece),
    "roberta": (
        lambda v, k: RobertaForTokenClassification(RobertaConfig(vocab_size=v, pad_token_id=1, **SHORT, **k)),
        roberta_bpe,
    ),
    "xlm-roberta": (
        lambda v, k: XLMRobertaForTokenClassification(XLMRobertaConfig(vocab_size=v, pad_token_id=1, **SHORT, **k)),
        unigram,
    ),
    "distilbert": (
        lambda v, k: DistilBertForTokenClassification(DistilBertConfig(vocab_size=v, **DISTILLED, **k)),
        wordpiece,
    ),
    "deberta-v2": (
        lambda v, k: DebertaV2ForTokenClassification(DebertaV2Config(vocab_size=v, **SHORT, **k)),
        wordpiece,
    ),
    "modernbert": (lambda v, k: ModernBertForTokenClassification(modernbert(v, k)), roberta_bpe),
    "qwen3": (lambda v, k: Qwen3ForTokenClassification(Qwen3Config(vocab_size=v, **DECODER, **k)), chat_bpe),
}
PROBLEMS: dict[str, dict[str, Any]] = {
    "one": {"num_labels": 1},
    "multi": {"problem_type": "multi_label_classification", **TOPICS},
    "regression": {"problem_type": "regression", "num_labels": 1},
}


def save(build: tuple[Build, Callable[[], Any]], labels: dict[str, Any], folder: Path) -> Path:
    tokenizer = build[1]()
    tokenizer.model_max_length = 64
    return save_random(lambda size: build[0](size, labels), tokenizer, folder)


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    made = {name: save(build, TOPICS, tmp_path_factory.mktemp(name)) for name, build in CLASSIFIERS.items()}
    made |= {name: save(CLASSIFIERS["bert"], k, tmp_path_factory.mktemp(name)) for name, k in PROBLEMS.items()}
    for name, build in TAGGERS.items():
        made[f"tag-{name}"] = save(build, ENTITIES, tmp_path_factory.mktemp(name))
    return made


@pytest.fixture(scope="module")
def engine(folders: dict[str, Path]) -> Iterator[Engine]:
    engine = Engine(EngineConfig(threads=1, max_batch_tokens=64))
    for name, folder in folders.items():
        engine.load(ModelSpec(name, folder, ModelKind.CLASSIFIER, dtype="float32"))
    yield engine
    engine.close()


def ask(engine: Engine, name: str, texts: tuple[str, ...] = TEXTS, **options: Any) -> PoolingOutput:
    task = PoolingTask.TOKEN_CLASSIFY if name.startswith("tag-") else PoolingTask.CLASSIFY
    return engine.submit_pooling(PoolingRequest(name, texts, task, options=PoolingOptions(**options))).result(60)


@pytest.mark.parametrize("name", [*CLASSIFIERS, *PROBLEMS])
def test_shares_of_texts_equal_the_pipeline(engine: Engine, folders: dict[str, Path], name: str) -> None:
    library = pipeline("text-classification", str(folders[name]), top_k=None, device="cpu", dtype=torch.float32)
    output, logits = ask(engine, name), ask(engine, name, use_activation=False)
    for text, ours, raw in zip(TEXTS, output.data, logits.data, strict=True):
        assert ours.classes is not None and raw.classes is not None
        theirs = {entry["label"]: entry["score"] for entry in library([text])[0]}
        np.testing.assert_allclose(ours.classes, [theirs[label] for label in output.labels], rtol=0, atol=1e-4)
        bare = {entry["label"]: entry["score"] for entry in library([text], function_to_apply="none")[0]}
        np.testing.assert_allclose(raw.classes, [bare[label] for label in output.labels], rtol=0, atol=1e-4)


@pytest.mark.parametrize("name", TAGGERS)
def test_shares_of_tokens_and_spans_equal_the_pipeline(engine: Engine, folders: dict[str, Path], name: str) -> None:
    folder = str(folders[f"tag-{name}"])
    library = pipeline("token-classification", folder, device="cpu", dtype=torch.float32, ignore_labels=[])
    merging = pipeline("ner", folder, device="cpu", dtype=torch.float32, aggregation_strategy="simple")
    output = ask(engine, f"tag-{name}")
    assert output.labels == NAMES
    found = 0
    for text, ours in zip(TEXTS, output.data, strict=True):
        theirs = library(text)
        assert ours.token_classes is not None and len(theirs) == len(ours.token_ids) == len(ours.token_classes)
        assert [NAMES[label] for label in ours.token_classes.argmax(axis=1)] == [entry["entity"] for entry in theirs]
        np.testing.assert_allclose(ours.token_classes.max(axis=1), [e["score"] for e in theirs], rtol=0, atol=1e-4)
        spans = merging(text)
        assert [(s.label, text[s.start : s.end].strip()) for s in ours.spans] == [
            (entry["entity_group"], text[entry["start"] : entry["end"]].strip()) for entry in spans
        ]
        np.testing.assert_allclose([s.score for s in ours.spans], [entry["score"] for entry in spans], atol=1e-4)
        found += len(spans)
    assert found > 4
    raw = ask(engine, f"tag-{name}", use_activation=False).data[0]
    assert raw.spans == () and raw.token_classes is not None
    shares = output.data[0].token_classes
    assert shares is not None
    np.testing.assert_allclose(torch.tensor(raw.token_classes).softmax(dim=-1).numpy(), shares, rtol=0, atol=1e-5)


def test_spans_are_merged_by_label_and_begin_anew_with_b() -> None:
    tags = ["B-THING", "I-THING", "B-THING", "I-PLACE", "O", "O", "I-PLACE"]
    shares = np.full((7, 5), 0.1, dtype=np.float32)
    shares[range(7), [NAMES.index(tag) for tag in tags]] = [0.5, 0.7, 0.6, 0.8, 0.9, 0.9, 0.4]
    offsets = [(i * 10, i * 10 + 5) for i in range(7)]
    expected = (
        Span("THING", 0.6, 0, 15),
        Span("THING", 0.6, 20, 25),
        Span("PLACE", 0.8, 30, 35),
        Span("PLACE", 0.4, 60, 65),
    )
    spans = token_spans("x" * 70, shares, offsets, NAMES)
    assert [(s.label, s.start, s.end) for s in spans] == [(s.label, s.start, s.end) for s in expected]
    assert [s.score for s in spans] == pytest.approx([s.score for s in expected])
    assert token_spans("", shares[:0], [], NAMES) == ()
    plain = token_spans("x" * 70, np.eye(2, dtype=np.float32)[[1, 1, 0]], offsets[:3], ("bee", "B-"))
    assert [s.label for s in plain] == ["", "", "bee"]  # a label need not follow the scheme


@pytest.mark.parametrize("name", [*CLASSIFIERS, *(f"tag-{name}" for name in TAGGERS)])
def test_neither_company_nor_order_changes_an_answer(engine: Engine, name: str) -> None:
    report = engine.self_test(name)
    assert report.passed, report
    together = [logits(text) for text in ask(engine, name, use_activation=False).data]
    clear_caches(engine, name)
    backwards = [logits(text) for text in ask(engine, name, TEXTS[::-1], use_activation=False).data][::-1]
    for place, text in enumerate(TEXTS):
        clear_caches(engine, name)
        alone = logits(ask(engine, name, (text,), use_activation=False).data[0])
        np.testing.assert_allclose(alone, together[place], rtol=1e-4, atol=1e-5)
        np.testing.assert_allclose(backwards[place], together[place], rtol=1e-4, atol=1e-5)


def logits(text: Any) -> Any:
    return text.classes if text.classes is not None else text.token_classes


def test_all_but_one_architecture_run_packed(engine: Engine) -> None:
    padded = {name for name, info in engine.models().items() if info.execution == "padded"}
    assert padded == {"deberta-v2", "tag-deberta-v2"}


def test_long_and_blank_texts(engine: Engine) -> None:
    long = "river bees " * 100
    for name in ("bert", "tag-bert"):
        output = ask(engine, name, (long, " ", "bees"))
        assert [text.status for text in output.data] == [ItemStatus.TRUNCATED, ItemStatus.EMPTY, ItemStatus.OK]
        assert output.data[0].truncated_tokens > 0
    cut = ask(engine, "tag-bert", (long,)).data[0]
    assert cut.token_classes is not None and len(cut.token_classes) == len(cut.token_ids) == 62
    assert all(0 <= span.start < span.end <= len(long) for span in cut.spans)


def test_control_tokens_in_texts_stay_text(engine: Engine) -> None:
    output = ask(engine, "tag-bert", ("bees [SEP] honey [MASK]",)).data[0]
    assert len(output.token_ids) > 6 and min(output.token_ids) > 4


def test_a_classifier_scores_no_pairs(engine: Engine) -> None:
    with pytest.raises(EngineError, match="does not score a query with documents; it can classify") as refusal:
        engine.submit(ScoringRequest("bert", ("a",), ("b",))).result(60)
    assert refusal.value.code == "unsupported_task"
    with pytest.raises(EngineError, match="cannot embed"):
        engine.submit_pooling(PoolingRequest("tag-bert", ("a",), PoolingTask.EMBED)).result(60)


def test_s8_what_is_no_number_fails_that_text_alone(folders: dict[str, Path]) -> None:
    engine = Engine(EngineConfig(threads=1))
    for name in ("bert", "tag-bert"):
        engine.load(ModelSpec(name, folders[name], ModelKind.CLASSIFIER, dtype="float32"))
        positions: Any = body_of(engine, name).get_submodule("embeddings.position_embeddings")
        positions.weight.data[12] = float("nan")
        output = ask(engine, name, (TEXTS[0], "bees"))
        assert [text.status for text in output.data] == [ItemStatus.FAILED, ItemStatus.OK]
        assert output.errors == {0: "non_finite_value"} and output.data[0].spans == ()
    engine.close()


def test_the_self_test_fails_where_a_value_is_no_number(folders: dict[str, Path]) -> None:
    engine = Engine(EngineConfig(threads=1))
    for name in ("bert", "tag-bert"):
        engine.load(ModelSpec(name, folders[name], ModelKind.CLASSIFIER, dtype="bfloat16"))
        assert engine.self_test(name).passed
        positions: Any = body_of(engine, name).get_submodule("embeddings.position_embeddings")
        positions.weight.data[3] = float("nan")
        report = engine.self_test(name)
        assert not report.passed and not report.checks[0].passed, report
    engine.close()


@pytest.mark.parametrize("name", ["wordpiece", "control"])
def test_a_step_reward_model_judges_its_steps(tmp_path: Path, name: str) -> None:
    """Against transformers, which is given the ids with the step token in its places."""
    tokenizer = chat_bpe()
    tokenizer.add_tokens(["<step>"], special_tokens=True)
    step = tokenizer.convert_tokens_to_ids("<step>") if name == "control" else tokenizer("!")["input_ids"][0]
    mark = "<step>" if name == "control" else "!"
    tokenizer.model_max_length = 64
    labels = {"id2label": {0: "bad", 1: "good"}, "label2id": {"bad": 0, "good": 1}, "step_tag_id": step}
    save_random(
        lambda size: Qwen3ForTokenClassification(Qwen3Config(vocab_size=size, **DECODER, **labels)), tokenizer, tmp_path
    )
    engine = Engine(EngineConfig(threads=1))
    engine.load(ModelSpec("tag-step", tmp_path, ModelKind.CLASSIFIER, dtype="float32"))
    texts = (f"the river rose{mark}bees{mark}", "no step at all", f"1{mark} 22 333{mark} rain")
    output = ask(engine, "tag-step", texts)
    model = Qwen3ForTokenClassification.from_pretrained(tmp_path, dtype=torch.float32).eval()
    for text, ours in zip(texts, output.data, strict=True):
        ids = tokenizer(text, return_tensors="pt")["input_ids"]
        with torch.inference_mode():
            expected = model(ids).logits[0].softmax(dim=-1)[ids[0] == step]
        assert ours.token_classes is not None and ours.token_ids == (step,) * len(expected)
        np.testing.assert_allclose(ours.token_classes, expected, rtol=0, atol=1e-5)
        assert ours.spans == ()
    assert [len(text.token_ids) for text in output.data] == [2, 0, 2]
    report = engine.self_test("tag-step")
    assert report.passed and "9 of 9" not in report.checks[0].detail and "0 of 0" not in report.checks[0].detail
    long = ask(engine, "tag-step", (f"bees{mark}" * 60,)).data[0]
    assert long.status is ItemStatus.TRUNCATED and len(long.token_ids) < 60
    engine.close()


def test_a_body_without_its_head_and_a_head_of_another_kind_are_refused(tiny_folders: dict[str, Path]) -> None:
    engine = Engine(EngineConfig(threads=1))
    with pytest.raises(EngineError, match=r"classifier\.weight"):
        engine.load(ModelSpec("bare", tiny_folders["bert"], ModelKind.CLASSIFIER))
    engine.close()

"""Cross-encoders of every architecture against transformers, one pair at a time, and against sentence-transformers."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
import torch
from safetensors.torch import load_file, save_file
from sentence_transformers import CrossEncoder
from transformers import (
    AlbertConfig,
    AlbertForSequenceClassification,
    AutoModelForSequenceClassification,
    AutoTokenizer,
)

from tests.engine.inside import body_of, record_rows
from tests.engine.tiny import CORPUS, HIDDEN
from tests.engine.tiny_pairs import CROSS_ENCODERS, PADDED, build_cross_encoder, write_settings
from workers.engine import (
    Engine,
    EngineConfig,
    EngineError,
    ItemStatus,
    ModelKind,
    ModelSpec,
    Pairing,
    Scale,
    ScoringOptions,
    ScoringOutput,
    ScoringRequest,
    Truncation,
)
from workers.engine.forward.steady_rows import filled

QUERIES = ("who makes honey?", "the river rose", "numbers: 22, 333")
DOCUMENTS = ("honey", "Bees gather nectar from flowers.", "The water fell again, after a night of rain.", "yes\nno")
DECODERS = ("qwen3", "llama", "gemma")  # without a pad token, which only transformers one by one can do
PAIRS = [(query, document) for query in QUERIES for document in DOCUMENTS]


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    return {name: build_cross_encoder(name, tmp_path_factory.mktemp(name)) for name in CROSS_ENCODERS}


@pytest.fixture(scope="module")
def engine(folders: dict[str, Path]) -> Iterator[Engine]:
    engine = Engine(EngineConfig(threads=1, max_batch_tokens=256))
    for name, folder in folders.items():
        engine.load(ModelSpec(name, folder, ModelKind.CROSS_ENCODER))
    yield engine
    engine.close()


@pytest.fixture
def fresh_engine() -> Iterator[Engine]:
    engine = Engine(EngineConfig(threads=1))
    yield engine
    engine.close()


def load(engine: Engine, folder: Path, **fields: object) -> None:
    engine.load(ModelSpec("pairs", folder, ModelKind.CROSS_ENCODER, **fields))  # type: ignore[arg-type]


def score(
    engine: Engine, name: str, queries: tuple[str, ...], documents: tuple[str, ...], **fields: object
) -> ScoringOutput:
    options = ScoringOptions(**fields)  # type: ignore[arg-type]
    return engine.submit(ScoringRequest(name, queries, documents, options=options)).result()


def library_logits(folder: Path, pairs: list[tuple[str, str]]) -> npt.NDArray[np.float32]:
    """``[pairs, labels]`` of transformers' own forward, one pair at a time."""
    tokenizer = AutoTokenizer.from_pretrained(folder)
    model = AutoModelForSequenceClassification.from_pretrained(folder, dtype=torch.float32).eval()
    with torch.inference_mode():
        rows = [model(**tokenizer(*pair, return_tensors="pt")).logits[0] for pair in pairs]
    logits: npt.NDArray[np.float32] = torch.stack(rows).numpy()
    return logits


@pytest.mark.parametrize("name", CROSS_ENCODERS)
def test_raw_scores_equal_transformers_one_by_one(engine: Engine, folders: dict[str, Path], name: str) -> None:
    output = score(engine, name, QUERIES, DOCUMENTS)
    expected = library_logits(folders[name], PAIRS)[:, 0]
    assert np.ptp(expected) > 0.1  # the pairs differ at all
    np.testing.assert_allclose(output.raw_scores, expected, rtol=0, atol=1e-4)
    np.testing.assert_allclose(output.scores, 1 / (1 + np.exp(-expected)), rtol=0, atol=1e-4)
    assert output.scale is Scale.PROBABILITY
    assert engine.models()[name].execution == ("padded" if name in PADDED else "packed")


@pytest.mark.parametrize("name", [name for name in CROSS_ENCODERS if name not in DECODERS])
def test_scores_equal_sentence_transformers(engine: Engine, folders: dict[str, Path], name: str) -> None:
    expected = CrossEncoder(str(folders[name]), device="cpu").predict(PAIRS, batch_size=5)
    output = score(engine, name, QUERIES, DOCUMENTS)
    np.testing.assert_allclose(output.scores, expected, rtol=0, atol=1e-4)


@pytest.mark.parametrize("name", CROSS_ENCODERS)
def test_s3_company_and_order_change_nothing(engine: Engine, name: str) -> None:
    words = " ".join(CORPUS[:5]).split()
    documents = tuple(" ".join(words[i : i + 1 + i % 9]) for i in range(64))
    together = score(engine, name, ("honey",), documents).raw_scores
    order = np.random.default_rng(3).permutation(len(documents))
    shuffled = score(engine, name, ("honey",), tuple(documents[i] for i in order)).raw_scores
    np.testing.assert_allclose(shuffled, together[order], rtol=0, atol=1e-5)
    for size in (1, 3, 6):
        parts = [score(engine, name, ("honey",), documents[i : i + size]).raw_scores for i in range(0, 12, size)]
        np.testing.assert_allclose(np.concatenate(parts), together[:12], rtol=0, atol=1e-5)


@pytest.mark.parametrize("name", ["bert", "deberta-v2", "qwen3"])
def test_matrix_and_pairwise_agree(engine: Engine, name: str) -> None:
    matrix = score(engine, name, QUERIES, DOCUMENTS).raw_scores
    queries, documents = zip(*PAIRS, strict=True)
    pairwise = engine.submit(ScoringRequest(name, queries, documents, Pairing.PAIRWISE)).result().raw_scores
    np.testing.assert_allclose(pairwise, matrix, rtol=0, atol=1e-5)


@pytest.mark.parametrize("name", ["bert", "qwen3"])
def test_a_pair_given_twice_runs_once(engine: Engine, name: str) -> None:
    before = engine.statistics().sequences
    output = score(engine, name, ("honey", "honey"), ("rain", "river", "rain"))
    assert engine.statistics().sequences - before == 2
    np.testing.assert_array_equal(output.raw_scores, np.tile(output.raw_scores[:3], 2))
    assert output.raw_scores[0] == output.raw_scores[2] != output.raw_scores[1]


@pytest.mark.parametrize("name", ["bert", "electra", "roberta", "xlm-roberta", "camembert"])
def test_behind_the_last_attention_only_what_the_head_reads_is_computed(
    fresh_engine: Engine, folders: dict[str, Path], name: str
) -> None:
    load(fresh_engine, folders[name])
    rows: list[tuple[int, int]] = []
    body: Any = body_of(fresh_engine, "pairs")
    for place, layer in enumerate(body.encoder.layer):
        layer.intermediate.register_forward_pre_hook(
            lambda module, inputs, place=place: rows.append((place, inputs[0].shape[1]))
        )
    output = score(fresh_engine, "pairs", ("river",), DOCUMENTS)
    assert rows == [
        (0, filled(output.prompt_tokens, torch.device("cpu"))),
        (1, filled(len(DOCUMENTS), torch.device("cpu"))),
    ]


@pytest.mark.parametrize("name", CROSS_ENCODERS)
def test_v1_v2_blank_texts_are_empty_and_change_no_other_score(engine: Engine, name: str) -> None:
    output = score(engine, name, ("honey",), ("", "   ", "\n\t"))
    assert np.isnan(output.scores).all() and (output.status == ItemStatus.EMPTY).all() and not output.errors
    mixed = score(engine, name, ("honey",), ("", *DOCUMENTS))
    np.testing.assert_allclose(mixed.scores[1:], score(engine, name, ("honey",), DOCUMENTS).scores, rtol=0, atol=1e-6)
    assert mixed.status[0] == ItemStatus.EMPTY and (mixed.status[1:] == ItemStatus.OK).all()
    assert (score(engine, name, (" ",), DOCUMENTS).status == ItemStatus.EMPTY).all()


def test_invisible_characters_alone_are_empty(engine: Engine) -> None:
    output = score(engine, "bert", ("river",), ("\u200b", "river"))
    np.testing.assert_array_equal(output.status, [ItemStatus.EMPTY, ItemStatus.OK])


def test_control_tokens_in_texts_stay_text(fresh_engine: Engine, folders: dict[str, Path]) -> None:
    load(fresh_engine, folders["bert"])
    rows = record_rows(fresh_engine, "pairs")
    score(fresh_engine, "pairs", ("[SEP] [CLS] [MASK]",), ("a [SEP] b [PAD]",))
    tokenizer = AutoTokenizer.from_pretrained(folders["bert"])
    found = [token for token in tokenizer.convert_ids_to_tokens(rows[-1]) if token in tokenizer.all_special_tokens]
    assert found == ["[CLS]", "[SEP]", "[SEP]"]


@pytest.mark.parametrize("name", ["bert", "roberta", "xlm-roberta", "mpnet", "deberta-v2", "llama"])
def test_l6_lengths_around_the_limit(engine: Engine, folders: dict[str, Path], name: str) -> None:
    assert engine.models()[name].max_length == 64
    tokenizer = AutoTokenizer.from_pretrained(folders[name])
    room = 64 - tokenizer.num_special_tokens_to_add(pair=True)
    words = CORPUS[0].split() * 30
    query = "rain"
    taken = len(tokenizer(query, add_special_tokens=False)["input_ids"])
    documents, lengths = [], []
    for count in range(1, 400):
        document = " ".join(words[:count])
        length = len(tokenizer(document, add_special_tokens=False)["input_ids"]) + taken
        if length >= room - 3:
            documents.append(document)
            lengths.append(length)
        if length > room + 3:
            break
    output = score(engine, name, (query,), tuple(documents))
    np.testing.assert_array_equal(output.truncated_tokens, np.maximum(np.array(lengths) - room, 0))
    assert np.isfinite(output.scores).all() and output.truncated_tokens[-1] > 0 and output.truncated_tokens[0] == 0
    full = [i for i, length in enumerate(lengths) if length <= room]
    expected = library_logits(folders[name], [(query, documents[i]) for i in full])[:, 0]
    np.testing.assert_allclose(output.raw_scores[full], expected, rtol=0, atol=1e-4)


def test_only_the_document_is_cut_as_the_library_does(engine: Engine, folders: dict[str, Path]) -> None:
    query, document = "who makes honey?", " ".join(CORPUS[:3])
    tokenizer = AutoTokenizer.from_pretrained(folders["bert"])
    model = AutoModelForSequenceClassification.from_pretrained(folders["bert"], dtype=torch.float32).eval()
    inputs = tokenizer(query, document, truncation="only_second", max_length=64, return_tensors="pt")
    with torch.inference_mode():
        expected = float(model(**inputs).logits[0, 0])
    output = score(engine, "bert", (query,), (document,))
    assert output.raw_scores[0] == pytest.approx(expected, abs=1e-4)
    assert output.status[0] == ItemStatus.TRUNCATED and output.query_truncated_tokens[0] == 0


def test_l4_both_sides_too_long(engine: Engine) -> None:
    output = score(engine, "bert", ("a " * 100, "a"), ("b " * 80, "b"))
    room = 64 - 3
    long_query = room * 3 // 4
    np.testing.assert_array_equal(output.query_truncated_tokens, [100 - long_query, 0])
    np.testing.assert_array_equal(output.truncated_tokens, [80 - (room - long_query), 0, 80 - (room - 1), 0])
    assert output.query_truncated_tokens[0] > 0 and np.isfinite(output.scores).all()
    cut, whole = ItemStatus.TRUNCATED, ItemStatus.OK
    np.testing.assert_array_equal(output.status, [cut, cut, cut, whole])


def test_a_long_query_beside_a_short_document_stays_whole(engine: Engine) -> None:
    output = score(engine, "bert", ("a " * 59,), ("b b",))
    np.testing.assert_array_equal(output.query_truncated_tokens, [0])
    assert output.status[0] == ItemStatus.OK and output.prompt_tokens == 64


def test_l2_l5_long_texts_cut_by_tokens(engine: Engine) -> None:
    long = "0123456789abcdef" * 375
    documents = (long, *(f"text number {i}" for i in range(19)))
    mixed = score(engine, "bert", ("number 3",), documents)
    alone = score(engine, "bert", ("number 3",), (long,))
    assert np.isfinite(mixed.scores).all()
    assert mixed.raw_scores[0] == pytest.approx(alone.raw_scores[0], abs=1e-6)
    assert mixed.truncated_tokens[0] == alone.truncated_tokens[0]
    assert (mixed.truncated_tokens[1:] == 0).all()


def test_limits_of_the_request(engine: Engine) -> None:
    output = score(engine, "bert", ("a b c",), ("a b c d", "a"), max_tokens_per_query=2, max_tokens_per_document=3)
    np.testing.assert_array_equal(output.truncated_tokens, [1, 0])
    np.testing.assert_array_equal(output.query_truncated_tokens, [1])
    shorter = score(engine, "bert", ("a b",), ("a b c", "a"))
    np.testing.assert_allclose(output.scores, shorter.scores, rtol=0, atol=1e-6)
    with pytest.raises(EngineError, match=r"documents\[0\] by 1"):
        score(engine, "bert", ("a",), ("a b c d",), max_tokens_per_document=3, truncation=Truncation.ERROR)
    with pytest.raises(EngineError, match=r"queries\[0\] by 2"):
        score(engine, "bert", ("a b c",), ("a",), max_tokens_per_query=1, truncation=Truncation.ERROR)
    with pytest.raises(EngineError, match="Give at least 1"):
        score(engine, "bert", ("a",), ("a",), max_tokens_per_query=0)


def test_a_limit_of_the_whole_pair(engine: Engine) -> None:
    """[CLS] a b [SEP] a b c [SEP]: three of the tokens are the template's."""
    whole = score(engine, "bert", ("a b",), ("a b c",))
    cut = score(engine, "bert", ("a b",), ("a b c d",), max_tokens=8)
    assert cut.truncated_tokens.tolist() == [1]
    np.testing.assert_allclose(cut.raw_scores, whole.raw_scores, atol=1e-5)
    with pytest.raises(EngineError, match="3 of every pair are the template's"):
        score(engine, "bert", ("a",), ("a",), max_tokens=4)


def test_an_instruction_has_no_place(engine: Engine) -> None:
    with pytest.raises(EngineError, match="no place for an instruction"):
        score(engine, "bert", ("a",), ("b",), instruction="Find answers")


def test_other_kinds_have_no_place_for_one_either(tiny_engine: Engine) -> None:
    for name in ("bi", "late", "judge"):
        with pytest.raises(EngineError, match=f"'{name}' has no place for an instruction"):
            score(tiny_engine, name, ("a",), ("b",), instruction="Find answers")


def test_without_activation_the_score_is_the_logit(engine: Engine) -> None:
    output = score(engine, "bert", QUERIES, DOCUMENTS, use_activation=False)
    np.testing.assert_array_equal(output.scores, output.raw_scores)
    assert output.scale is Scale.LOGIT


LABELS = {"0": "contradiction", "1": "entailment", "2": "neutral"}


@pytest.mark.parametrize("positive", LABELS.values())
def test_several_labels_give_the_share_of_the_positive_class(
    fresh_engine: Engine, tmp_path: Path, positive: str
) -> None:
    folder = build_cross_encoder("roberta", tmp_path, labels=3, id2label=LABELS)
    load(fresh_engine, folder, positive_class=positive)
    output = score(fresh_engine, "pairs", QUERIES, DOCUMENTS)
    logits = torch.from_numpy(library_logits(folder, PAIRS))
    place = list(LABELS.values()).index(positive)
    others = logits[:, [i for i in range(3) if i != place]].logsumexp(1)
    np.testing.assert_allclose(output.scores, logits.softmax(1)[:, place], rtol=0, atol=1e-4)
    np.testing.assert_allclose(output.raw_scores, logits[:, place] - others, rtol=0, atol=1e-4)
    assert output.scale is Scale.PROBABILITY
    raw = score(fresh_engine, "pairs", QUERIES, DOCUMENTS, use_activation=False)
    np.testing.assert_array_equal(raw.scores, output.raw_scores)


def test_labels_that_do_not_exclude_each_other(fresh_engine: Engine, tmp_path: Path) -> None:
    folder = build_cross_encoder(
        "bert", tmp_path, labels=2, id2label={"0": "spam", "1": "relevant"}, problem_type="multi_label_classification"
    )
    load(fresh_engine, folder, positive_class="relevant")
    output = score(fresh_engine, "pairs", QUERIES, DOCUMENTS)
    logits = library_logits(folder, PAIRS)[:, 1]
    np.testing.assert_allclose(output.raw_scores, logits, rtol=0, atol=1e-4)
    np.testing.assert_allclose(output.scores, 1 / (1 + np.exp(-logits)), rtol=0, atol=1e-4)


def test_v8_two_labels_need_a_positive_class(fresh_engine: Engine, tmp_path: Path) -> None:
    folder = build_cross_encoder("bert", tmp_path, labels=2, id2label={"0": "irrelevant", "1": "relevant"})
    with pytest.raises(EngineError, match="irrelevant, relevant") as caught:
        load(fresh_engine, folder)
    assert caught.value.code == "positive_class_needed"
    with pytest.raises(EngineError, match="irrelevant, relevant") as caught:
        load(fresh_engine, folder, positive_class="good")
    assert caught.value.code == "unknown_positive_class"


SIGMOID, IDENTITY = "torch.nn.modules.activation.Sigmoid", "torch.nn.modules.linear.Identity"


@pytest.mark.parametrize(
    ("place", "settings", "scale"),
    [
        ("config.json", {"sbert_ce_default_activation_function": IDENTITY}, Scale.LOGIT),
        ("config.json", {"sentence_transformers": {"activation_fn": IDENTITY}}, Scale.LOGIT),
        ("config.json", {"sentence_transformers": {"activation_fn": SIGMOID}}, Scale.PROBABILITY),
        ("config.json", {"sentence_transformers": {"activation_fn": "torch.nn.modules.activation.Tanh"}}, Scale.LOGIT),
        ("config_sentence_transformers.json", {"activation_fn": IDENTITY}, Scale.LOGIT),
    ],
)
def test_the_checkpoint_names_its_activation(
    fresh_engine: Engine,
    folders: dict[str, Path],
    tmp_path: Path,
    place: str,
    settings: dict[str, object],
    scale: Scale,
) -> None:
    folder = Path(shutil.copytree(folders["bert"], tmp_path / "bert"))
    write_settings(folder / place, **settings)
    if place == "config_sentence_transformers.json":
        module = {
            "idx": 0,
            "name": "0",
            "path": "",
            "type": "sentence_transformers.base.modules.transformer.Transformer",
        }
        (folder / "modules.json").write_text(json.dumps([module]))
        write_settings(folder / place, model_type="CrossEncoder")
        write_settings(folder / "sentence_bert_config.json", transformer_task="sequence-classification")
    load(fresh_engine, folder)
    output = score(fresh_engine, "pairs", QUERIES, DOCUMENTS)
    expected = CrossEncoder(str(folder), device="cpu").predict(PAIRS)
    np.testing.assert_allclose(output.scores, expected, rtol=0, atol=1e-4)
    assert output.scale is scale is fresh_engine.models()["pairs"].scale


@pytest.mark.parametrize("name", ["os.system", "torch.nn.modules.linear.Linear", "torch.nn.modules.activation.Softmax"])
def test_other_names_of_activations_are_refused(
    fresh_engine: Engine, folders: dict[str, Path], tmp_path: Path, name: str
) -> None:
    folder = Path(shutil.copytree(folders["bert"], tmp_path / "bert"))
    write_settings(folder / "config.json", sentence_transformers={"activation_fn": name})
    with pytest.raises(EngineError, match=f"names '{name}'"):
        load(fresh_engine, folder)


@pytest.mark.parametrize("architecture", ["bert", "roberta", "xlm-roberta", "modernbert", "mpnet"])
def test_s5_an_embedding_checkpoint_is_refused(
    fresh_engine: Engine, tiny_folders: dict[str, Path], architecture: str
) -> None:
    with pytest.raises(EngineError, match="classifier") as caught:
        load(fresh_engine, tiny_folders[architecture])
    assert caught.value.code == "missing_weights"


def test_an_architecture_without_a_row_says_what_is_supported(fresh_engine: Engine, tmp_path: Path) -> None:
    tokenizer = CROSS_ENCODERS["distilbert"][2]()
    config = AlbertConfig(vocab_size=len(tokenizer), embedding_size=16, max_position_embeddings=64, **HIDDEN)
    AlbertForSequenceClassification(config).save_pretrained(tmp_path)
    tokenizer.save_pretrained(tmp_path)
    with pytest.raises(EngineError, match="bert, camembert, deberta-v2") as caught:
        load(fresh_engine, tmp_path, positive_class="LABEL_1")
    assert caught.value.code == "unsupported_architecture"


def test_s7_in_bfloat16_close_documents_keep_distinct_float32_scores(
    fresh_engine: Engine, folders: dict[str, Path]
) -> None:
    """Rounded to bfloat16, these logits and their sigmoids would coincide."""
    load(fresh_engine, folders["bert"], dtype="bfloat16")
    documents = tuple(f"bees dry honey in the hive{end}" for end in ("", ".", "..", "!", " again", " yes"))
    output = score(fresh_engine, "pairs", ("honey",), documents)
    assert len(set(output.raw_scores.tolist())) == len(documents)
    rounded = torch.from_numpy(output.raw_scores).bfloat16().float().numpy()
    assert (rounded != output.raw_scores).any()
    assert fresh_engine.models()["pairs"].dtype == "bfloat16"


@pytest.mark.parametrize("name", ["bert", "deberta-v2", "qwen3"])
@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_s8_a_broken_number_fails_its_item_only(
    fresh_engine: Engine, folders: dict[str, Path], tmp_path: Path, name: str, value: float
) -> None:
    folder = Path(shutil.copytree(folders[name], tmp_path / name))
    weights = load_file(folder / "model.safetensors")
    vocabulary = json.loads((folder / "tokenizer.json").read_text())["model"]["vocab"]
    (embedding,) = [key for key in weights if key.endswith(("word_embeddings.weight", "embed_tokens.weight"))]
    for token in {"honey", "Ġhoney"} & vocabulary.keys():
        weights[embedding][vocabulary[token], 0] = value
    save_file(weights, folder / "model.safetensors", {"format": "pt"})
    load(fresh_engine, folder)
    output = score(
        fresh_engine, "pairs", ("river",), ("the river rose", "bees dry honey in the hive", "a passage is text")
    )
    np.testing.assert_array_equal(output.status, [ItemStatus.OK, ItemStatus.FAILED, ItemStatus.OK])
    assert output.errors == {1: "non_finite_score"} and np.isnan(output.scores[1])
    sound = score(fresh_engine, "pairs", ("river",), ("the river rose", "a passage is text"))
    np.testing.assert_allclose(output.raw_scores[[0, 2]], sound.raw_scores, rtol=0, atol=1e-5)


@pytest.mark.parametrize("name", ["bert", "deberta-v2", "modernbert-mean", "llama"])
def test_self_test(fresh_engine: Engine, folders: dict[str, Path], name: str) -> None:
    load(fresh_engine, folders[name], check_order=False)
    report = fresh_engine.self_test("pairs")
    assert report.passed, [check.detail for check in report.checks]
    assert len(set(report.golden_scores)) == 6

"""What people's clients send, and that they read what they would read from the engine itself.

``cohere`` and ``openai`` are the real packages. The rerank connectors of LangChain and LlamaIndex want an httpx of
their own: their code runs where a Python that has them is named (connectors.py), and everywhere the body is posted
that it builds. infinity's client takes no ``object`` but "rerank", where Jina's and vLLM's answers say "list": of it
the body alone is posted."""

from __future__ import annotations

import base64
import json
import os
import subprocess
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import cohere
import httpx
import numpy as np
import openai
import pytest
from transformers import AutoTokenizer, BertConfig, BertForSequenceClassification

from scoring.services.bundled import MINILM
from tests.api.schema import check
from tests.engine.tiny import HIDDEN, build, save_random, wordpiece
from tests.integration.checkpoints import build_hybrid, build_sparse
from tests.integration.running import registered
from tests.stack import Stack
from workers.engine import (
    Engine,
    EngineConfig,
    ModelKind,
    ModelSpec,
    PoolingOptions,
    PoolingOutput,
    PoolingRequest,
    PoolingTask,
    ScoringOptions,
    ScoringOutput,
    ScoringRequest,
    TextRole,
)
from workers.sources import source_folder

pytestmark = pytest.mark.stack
QUERY = "how do I remove limescale from a kettle?"
TEXTS = [
    "Bread dough rises faster in a warm kitchen.",
    "Descale a kettle with citric acid or vinegar, then rinse it twice.",
    "Water your cactus once a month in winter.",
]
NEAR = 1e-4  # float32: what is beside it in a micro-batch may change the last bits
LABELS = {0: "calm", 1: "glad", 2: "sad"}
Client = httpx.Client


def build_classifier(folder: Path) -> Path:
    def make(size: int) -> Any:
        sizes: dict[str, Any] = {"max_position_embeddings": 64, "num_labels": 3, "id2label": LABELS, **HIDDEN}
        return BertForSequenceClassification(BertConfig(vocab_size=size, **sizes))

    return save_random(make, wordpiece(), folder)


def build_shortened(folder: Path) -> Path:
    config = json.loads((build("bert", folder) / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps({**config, "matryoshka_dimensions": [8, 16]}))
    return folder


BUNDLED_KINDS = {"minilm": "bi-encoder", "minilm-late": "late-interaction"}
JUDGE = {"template": "{{ query }}\n{{ item }}\nAnswer:", "labels": ("yes", "no")}
TINY: dict[str, tuple[str, Callable[[Path], Path], dict[str, Any]]] = {
    "tiny-sparse": ("sparse", build_sparse, {}),
    "tiny-hybrid": ("hybrid", build_hybrid, {}),
    "tiny-classifier": ("classifier", build_classifier, {}),
    "tiny-shortened": ("bi-encoder", build_shortened, {}),
    "tiny-judge": ("generative", partial(build, "llama"), JUDGE),
}


class Reference:
    """The engine, in this process, with the same checkpoints under the same names."""

    def __init__(self, engine: Engine) -> None:
        self.engine = engine

    def pool(self, model: str, task: PoolingTask, *texts: str, role: str = "document", **options: Any) -> PoolingOutput:
        request = PoolingRequest(model, texts, task, TextRole(role), options=PoolingOptions(**options))
        return self.engine.submit_pooling(request).result()

    def vectors(self, model: str, *texts: str, **options: Any) -> Any:
        vectors: list[Any] = [text.vector for text in self.pool(model, PoolingTask.EMBED, *texts, **options).data]
        return np.stack(vectors)

    def score(self, model: str, documents: list[str] = TEXTS, **options: Any) -> ScoringOutput:
        chosen = ScoringOptions(**options)
        return self.engine.submit(ScoringRequest(model, (QUERY,), tuple(documents), options=chosen)).result()


@pytest.fixture(scope="module")
def client(stack: Stack) -> Client:
    for name, kind in BUNDLED_KINDS.items():
        registered(stack.client, name, kind=kind, dtype="auto", is_default=True)  # as the platform would register it
    for name, (kind, make, more) in TINY.items():
        folder = make(Path(stack.environment["MODEL_ROOTS"]) / name)
        registered(stack.client, name, kind=kind, source=str(folder), self_test="numbers", **more)
    return stack.client


@pytest.fixture(scope="module")
def reference(stack: Stack, client: Client) -> Iterator[Reference]:
    engine = Engine(EngineConfig(device="cpu", threads=2))
    for name, kind in BUNDLED_KINDS.items():
        engine.load(ModelSpec(name, source_folder(MINILM), ModelKind(kind)))
    for name, (kind, _, more) in TINY.items():
        folder = Path(stack.environment["MODEL_ROOTS"]) / name
        engine.load(ModelSpec(name, folder, ModelKind(kind), dtype="float32", check_order=False, **more))
    yield Reference(engine)
    engine.close()


def posted(client: Client, path: str, **body: Any) -> Any:
    response = client.post(path, json=body)
    assert response.status_code == 200, response.text
    return check(response, method="post")


def refused(client: Client, path: str, **body: Any) -> dict[str, Any]:
    response = client.post(path, json=body)
    assert response.status_code == 422, response.text
    error: dict[str, Any] = check(response, method="post")["error"]
    return error


def same(found: Any, expected: Any) -> None:
    np.testing.assert_allclose(found, expected, atol=NEAR)


def floats(packed: str) -> Any:
    return np.frombuffer(base64.b64decode(packed), "<f4")


# The real packages


@pytest.mark.parametrize("model", ["minilm", "minilm-late", "tiny-judge", "tiny-sparse", "tiny-hybrid"])
def test_cohere_reranks_with_every_kind_of_score(
    stack: Stack, client: Client, reference: Reference, model: str
) -> None:
    sdk = cohere.ClientV2(api_key=stack.token, base_url=stack.base_url, client_name="tests")
    answer = sdk.rerank(model=model, query=QUERY, documents=TEXTS, top_n=2, max_tokens_per_doc=40, priority=5)
    expected = reference.score(model, max_tokens_per_document=40).scores
    order = np.argsort(-expected)[:2]
    assert [row.index for row in answer.results] == order.tolist()
    same([row.relevance_score for row in answer.results], expected[order])
    assert answer.id and answer.meta is not None and answer.meta.billed_units is not None
    assert answer.meta.billed_units.search_units == 1


def test_cohere_embeds(stack: Stack, client: Client, reference: Reference) -> None:
    sdk = cohere.ClientV2(api_key=stack.token, base_url=stack.base_url)
    answer = sdk.embed(
        model="minilm", input_type="search_document", texts=TEXTS, embedding_types=["float", "base64", "ubinary"]
    )
    expected = reference.vectors("minilm", *TEXTS)
    same(answer.embeddings.float_, expected)
    same([floats(each) for each in answer.embeddings.base64 or ()], expected)
    assert np.asarray(answer.embeddings.ubinary).shape == (3, 384 // 8) and answer.embeddings.binary is None
    assert answer.texts == TEXTS
    with pytest.raises(cohere.UnprocessableEntityError, match="int8"):
        sdk.embed(model="minilm", input_type="search_query", texts=TEXTS, embedding_types=["int8"])


def test_openai_embeds_in_base64_as_by_default_and_in_numbers(
    stack: Stack, client: Client, reference: Reference
) -> None:
    sdk = openai.OpenAI(api_key=stack.token, base_url=f"{stack.base_url}/v1")
    expected = reference.vectors("minilm", *TEXTS)
    packed = sdk.embeddings.create(model="minilm", input=TEXTS, user="shop-17")
    plain = sdk.embeddings.create(model="minilm", input=TEXTS, encoding_format="float")
    for answer in (packed, plain):
        same([row.embedding for row in answer.data], expected)
    assert packed.usage.prompt_tokens == plain.usage.total_tokens > 20
    stored = client.get("/api/v1/score-requests").json()["results"]
    assert any(row["report"].get("user") == "shop-17" for row in stored)
    ids = posted(client, "/tokenize", model="minilm", prompt=TEXTS[0])["tokens"]
    rows = sdk.embeddings.create(model="minilm", input=[ids, ids]).data
    same(rows[1].embedding, expected[0])
    one = sdk.embeddings.create(model="minilm", input=TEXTS[0]).data
    same(one[0].embedding, expected[0])


def test_openai_shortens_vectors_only_where_the_model_was_trained_for_it(
    stack: Stack, client: Client, reference: Reference
) -> None:
    sdk = openai.OpenAI(api_key=stack.token, base_url=f"{stack.base_url}/v1")
    (row,) = sdk.embeddings.create(model="tiny-shortened", input="river", dimensions=8).data
    same(row.embedding, reference.vectors("tiny-shortened", "river", dimensions=8)[0])
    for model, dimensions, word in (("minilm", 8, "Matryoshka"), ("tiny-shortened", 9, "8, 16")):
        with pytest.raises(openai.UnprocessableEntityError, match=word):
            sdk.embeddings.create(model=model, input="river", dimensions=dimensions)
    body = {"model": "tiny-shortened", "query": QUERY, "documents": TEXTS, "dimensions": 8}
    rows = sorted(posted(client, "/v1/rerank", **body)["results"], key=lambda row: row["index"])
    expected = reference.score("tiny-shortened", dimensions=8).scores
    same([row["relevance_score"] for row in rows], expected)


def test_connectors_read_what_they_would_read_elsewhere(stack: Stack, client: Client, reference: Reference) -> None:
    """LangChain's and LlamaIndex's own code, where a Python that has it is named."""
    python = os.environ.get("CONNECTORS_PYTHON")
    if not python:
        pytest.skip("CONNECTORS_PYTHON names no Python with the packages that tests/api/connectors.py lists.")
    command = [python, str(Path(__file__).with_name("connectors.py")), stack.base_url, stack.token, "minilm"]
    given = json.dumps({"query": QUERY, "texts": TEXTS})
    run = subprocess.run(command, input=given, capture_output=True, text=True, check=False)
    assert run.returncode == 0, run.stderr
    read = json.loads(run.stdout)
    assert len(read) == 4
    for name, rows in read.items():
        expected = reference.score("minilm-late" if name == "llama_index_tei" else "minilm").scores
        order = np.argsort(-expected)[:2]
        assert [index for index, _ in rows] == order.tolist(), name
        same([score for _, score in rows], expected[order])


# What other clients post


@pytest.mark.parametrize(
    ("path", "extra"),
    [
        ("/v1/rerank", {"top_n": 3}),  # LangChain's and LlamaIndex's JinaRerank
        ("/rerank", {"return_documents": False, "raw_scores": False, "top_n": None}),  # infinity_client
    ],
)
def test_the_body_of_jina_shaped_connectors(
    client: Client, reference: Reference, path: str, extra: dict[str, Any]
) -> None:
    rows = posted(client, path, query=QUERY, documents=TEXTS, model="minilm", **extra)["results"]
    expected = reference.score("minilm").scores
    assert [row["index"] for row in rows] == np.argsort(-expected).tolist()
    same([row["relevance_score"] for row in rows], np.sort(expected)[::-1])


def test_the_body_of_tei_shaped_connectors(client: Client, reference: Reference) -> None:
    rows = posted(client, "/rerank", query=QUERY, texts=TEXTS)  # LlamaIndex's: nothing else
    expected = reference.score("minilm-late").scores
    assert [row["index"] for row in rows] == np.argsort(-expected).tolist()
    same([row["score"] for row in rows], np.sort(expected)[::-1])
    full = {"raw_scores": False, "return_text": True, "truncate": True, "truncation_direction": "Right"}
    rows = posted(client, "/rerank", query=QUERY, texts=["", *TEXTS], model="minilm", **full)
    assert (rows[0]["text"], rows[-1]) == (TEXTS[1], {"index": 0, "text": "", "score": None})
    error = refused(client, "/rerank", query=QUERY, texts=TEXTS, truncate=True, top_n=2)
    assert error["param"] == "top_n" and "return_text" in error["message"]


def test_tei_gives_bare_lists(client: Client, reference: Reference) -> None:
    vectors = posted(client, "/embed", inputs=TEXTS, model="minilm")
    same(vectors, reference.vectors("minilm", *TEXTS, normalize=True))
    (rows,) = posted(client, "/embed_all", inputs=TEXTS[0], model="minilm-late", prompt_name="query")
    expected = reference.pool("minilm-late", PoolingTask.TOKEN_EMBED, TEXTS[0], role="query").data[0].token_vectors
    same(rows, expected)
    (weights,) = posted(client, "/embed_sparse", inputs=["river"], model="tiny-sparse")
    sparse = reference.pool("tiny-sparse", PoolingTask.EMBED, "river").data[0].sparse
    assert sparse is not None and [row["index"] for row in weights] == sparse[0].tolist()
    same([row["value"] for row in weights], sparse[1])
    shares = reference.pool("tiny-classifier", PoolingTask.CLASSIFY, "river").data[0].classes
    assert shares is not None
    best = posted(client, "/predict", inputs="river", model="tiny-classifier")
    assert [row["label"] for row in best] == [LABELS[int(place)] for place in np.argsort(-shares)]
    assert best[0]["score"] == pytest.approx(shares.max(), abs=NEAR)
    assert len(posted(client, "/predict", inputs=[["river"], ["bees"]], model="tiny-classifier")) == 2
    assert "pair" in refused(client, "/predict", inputs=["river", "bees"], model="tiny-classifier")["message"]


def test_pooling_gives_what_the_task_gives(client: Client, reference: Reference) -> None:
    sparse = posted(client, "/pooling", model="tiny-sparse", input="river")["data"][0]["data"]
    assert all(isinstance(row["token"], str) and row["weight"] > 0 for row in sparse) and sparse
    both = PoolingTask.EMBED_AND_TOKEN_CLASSIFY
    (item,) = posted(client, "/pooling", model="tiny-hybrid", task=both, input="river", return_tokens=True)["data"]
    expected = reference.pool("tiny-hybrid", both, "river").data[0]
    same(item["data"], expected.vector)
    same(item["token_data"], expected.token_classes)
    assert item["token_ids"] == list(expected.token_ids) and len(item["tokens"]) == len(item["token_ids"])
    (mixed,) = posted(client, "/pooling", model="tiny-hybrid", task="embed", input="river")["data"]
    assert len(mixed["data"]) == 32 and {"token_id", "token", "weight"} == mixed["sparse"][0].keys()
    packed, empty = posted(client, "/pooling", model="minilm-late", input=["river", " "], encoding_format="base64")[
        "data"
    ]
    rows = reference.pool("minilm-late", PoolingTask.TOKEN_EMBED, "river").data[0].token_vectors
    assert rows is not None and (empty["data"], empty["status"]) == (None, "empty")
    same(floats(packed["data"]).reshape(rows.shape), rows)
    classified, nothing = posted(client, "/classify", model="tiny-classifier", input=["river", ""])["data"]
    shares = reference.pool("tiny-classifier", PoolingTask.CLASSIFY, "river").data[0].classes
    same(classified["probs"], shares)
    assert classified["label"] == LABELS[int(np.argmax(shares))] and classified["num_classes"] == 3  # type: ignore[arg-type]
    assert (nothing["label"], nothing["probs"], nothing["status"]) == (None, [], "empty")


def test_sglang_asks_for_labels_by_their_ids(client: Client, reference: Reference) -> None:
    body = {"model": "tiny-judge", "query": "Water is ", "items": ["wet", "dry"], "label_token_ids": [30, 216, 339]}
    answer = posted(client, "/v1/score", **body)
    request = ScoringRequest(
        "tiny-judge",
        ("Water is ",),
        ("wet", "dry"),
        options=ScoringOptions(template="{{ query }}{{ item }}", label_token_ids=(30, 216, 339), apply_softmax=False),
    )
    labels = reference.engine.submit(request).result().labels
    assert labels is not None and answer["object"] == "scoring"
    np.testing.assert_allclose(answer["scores"], labels.probabilities, rtol=1e-3, atol=1e-9)
    shares = posted(client, "/v1/score", **body, apply_softmax=True, item_first=True)["scores"]
    same(np.sum(shares, axis=1), 1)
    ids = posted(client, "/v1/score", **{**body, "query": [30, 31], "items": [[32], [33]]})["scores"]
    assert np.shape(ids) == (2, 3)
    assert refused(client, "/v1/score", **body, template="x")["code"] == "unknown_field"


def test_tokens_are_those_that_the_model_reads(client: Client) -> None:
    told = posted(client, "/tokenize", model="minilm", prompt="Cats purr. [SEP]", return_token_strs=True)
    tokenizer = AutoTokenizer.from_pretrained(source_folder(MINILM))
    plain = tokenizer("Cats purr.")["input_ids"]
    assert told["tokens"][: len(plain) - 1] == plain[:-1] and told["tokens"].count(plain[-1]) == 1
    assert told["token_strs"][0] == "[CLS]" and told["count"] == len(told["tokens"]) and told["max_model_len"] > 100
    bare = posted(client, "/tokenize", model="minilm", prompt="Cats purr.", add_special_tokens=False)["tokens"]
    assert bare == plain[1:-1]
    assert posted(client, "/detokenize", model="minilm", tokens=plain)["prompt"] == "[CLS] cats purr. [SEP]"
    apart = posted(client, "/tokenize", model="minilm", query="felines", document="Cats purr.")
    assert [row["role"] for row in apart["rows"]] == ["query", "document"] and apart["rows"][1]["tokens"] == plain
    pair = posted(client, "/tokenize", model="tiny-judge", query="a question", document="an answer")
    (row,) = pair["rows"]
    prompt = posted(client, "/detokenize", model="tiny-judge", tokens=row["tokens"])["prompt"]
    assert row["role"] == "prompt" and prompt.index("a question") < prompt.index("an answer")
    assert refused(client, "/detokenize", model="minilm", tokens=[10**6])["param"] == "tokens"
    assert refused(client, "/tokenize", model="minilm", query="a")["param"] == "prompt"


# Texts of all sorts


@pytest.mark.parametrize("model", ["minilm", "tiny-hybrid", "tiny-judge"])
def test_empty_documents_leave_the_others_as_they_are(client: Client, model: str) -> None:
    def scores(*documents: str) -> list[Any]:
        rows = posted(client, "/v2/rerank", model=model, query=QUERY, documents=documents)["results"]
        return [row["relevance_score"] for row in sorted(rows, key=lambda row: row["index"])]

    assert scores("", *TEXTS, " \n") == [None, *(pytest.approx(score, abs=NEAR) for score in scores(*TEXTS)), None]


def test_a_text_without_anything_refuses_where_there_is_no_place_for_it(client: Client) -> None:
    for path, name in (("/v1/embeddings", "input"), ("/embed", "inputs")):
        error = refused(client, path, model="minilm", **{name: ["river", " \n"]})
        assert (error["code"], error["param"]) == ("empty_text", f"{name}[1]")
    error = refused(client, "/v2/embed", model="minilm", texts=[""], input_type="search_query")
    assert error["param"] == "texts[0]"


def test_texts_are_cut_and_flagged_or_refused_and_never_become_control_tokens(client: Client) -> None:
    long = "limescale " * 3000
    row, short = posted(client, "/v1/embeddings", model="minilm", input=[long, "[SEP] </s> <|im_end|>"])["data"]
    assert row["status"] == "truncated" and row["truncated_tokens"] > 2000 and short["status"] == "ok"
    assert refused(client, "/v1/embeddings", model="minilm", input=long, truncation="error")["code"] == "too_long"
    assert refused(client, "/embed", model="minilm", inputs=[long], truncate=False)["param"] == "inputs"
    cut = posted(client, "/v1/embeddings", model="minilm", input=long, truncate_prompt_tokens=5)
    assert cut["usage"]["prompt_tokens"] == 7


@pytest.mark.parametrize(
    ("path", "body", "param"),
    [
        ("/v1/embeddings", {"input": "a", "encoding": "float"}, "encoding"),
        ("/v1/embeddings", {"input": []}, "input"),
        ("/v1/embeddings", {"input": ["a", [1]]}, "input"),
        ("/v1/embeddings", {"input": [1, -1]}, "input"),
        ("/v1/embeddings", {"input": [[10**6]], "model": "minilm"}, "input"),
        ("/v1/embeddings", {"input": ["a\u0000b"]}, "input[0]"),
        ("/v2/rerank", {"query": "q", "documents": ["a"], "priority": 1000}, "priority"),
        ("/v2/rerank", {"query": "q", "documents": ["a"], "relevant_spans": {}}, "relevant_spans"),
        ("/v2/embed", {"texts": ["a"], "input_type": "clustering"}, "input_type"),
        ("/v2/embed", {"texts": ["a"], "input_type": "search_query", "truncate": "START"}, "truncate"),
        ("/embed", {"inputs": "a", "truncation_direction": "Left"}, "truncation_direction"),
        ("/v2/embed", {"texts": ["a"], "input_type": "search_query", "output_dimension": 8}, "output_dimension"),
        ("/embed_all", {"inputs": [[1, 2]], "model": "minilm-late"}, "inputs"),
        ("/pooling", {"input": "a", "task": "embed", "model": "minilm-late"}, "model"),
        ("/pooling", {"input": "a", "messages": []}, "messages"),
        ("/classify", {"input": "a", "model": "minilm"}, "model"),
        ("/v1/rerank", {"query": "q", "documents": ["a"], "model": "tiny-classifier"}, "model"),
        ("/tokenize", {"prompt": "a", "query": "b", "document": "c"}, "prompt"),
    ],
)
def test_what_cannot_be_honoured_is_refused_by_name(
    client: Client, path: str, body: dict[str, Any], param: str
) -> None:
    assert refused(client, path, **body)["param"] == param

"""The real encoder against the public libraries, in float32, for texts from one word to more than its limit."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pytest
import torch
from sentence_transformers import SentenceTransformer
from transformers import AutoModel, AutoTokenizer

from workers.engine import Engine, ItemStatus, Pairing, ScoringOptions, ScoringRequest

WORDS = [
    "the",
    "boundary",
    "layer",
    "of",
    "a",
    "flat",
    "plate",
    "in",
    "supersonic",
    "flow",
    "grows",
    "with",
    "the",
    "distance",
    "from",
    "its",
    "leading",
    "edge",
    "while",
    "heat",
    "transfer",
    "falls",
    "and",
    "the",
    "pressure",
    "gradient",
    "decides",
    "where",
    "transition",
    "from",
    "laminar",
    "to",
    "turbulent",
    "motion",
    "begins",
]
LENGTHS = (1, 2, 5, 17, 60, 130, 250, 400, 505, 700)  # words, about as many tokens
DOCUMENTS = tuple(" ".join((WORDS * 25)[i : i + length]) for i, length in enumerate(LENGTHS))
QUERIES = ("heat transfer", "where does transition begin in a boundary layer?", "bees")


TokenVectors = Callable[[str, int], npt.NDArray[np.float64]]  # of a text and a limit


@pytest.fixture(scope="module")
def token_vectors(minilm_folder: Path) -> TokenVectors:
    """Normalised last hidden states of transformers' own run, in float64."""
    tokenizer = AutoTokenizer.from_pretrained(minilm_folder)
    model = AutoModel.from_pretrained(minilm_folder, dtype=torch.float64, attn_implementation="eager").eval()

    def vectors(text: str, limit: int) -> npt.NDArray[np.float64]:
        inputs = tokenizer(text, truncation=True, max_length=limit, padding=False, return_tensors="pt")
        with torch.inference_mode():
            hidden = model(**inputs).last_hidden_state[0]
        normalised: npt.NDArray[np.float64] = torch.nn.functional.normalize(hidden, dim=-1).numpy()
        return normalised

    return vectors


@pytest.mark.parametrize(("name", "limit"), [("minilm", 256), ("minilm-512", 512)])
def test_cosine_equals_sentence_transformers(minilm: Engine, minilm_folder: Path, name: str, limit: int) -> None:
    library = SentenceTransformer(str(minilm_folder), device="cpu")
    library.max_seq_length = limit
    vectors = [library.encode(list(texts), normalize_embeddings=True) for texts in (QUERIES, DOCUMENTS)]
    output = minilm.submit(ScoringRequest(name, QUERIES, DOCUMENTS)).result()
    np.testing.assert_allclose(output.scores.reshape(3, -1), vectors[0] @ vectors[1].T, rtol=0, atol=1e-4)
    np.testing.assert_array_equal(output.scores, output.raw_scores)


@pytest.mark.parametrize(("name", "limit"), [("late", 256), ("late-512", 512)])
def test_maxsim_equals_float64_over_hidden_states(
    minilm: Engine, token_vectors: TokenVectors, name: str, limit: int
) -> None:
    queries = [token_vectors(text, limit) for text in QUERIES]
    documents = [token_vectors(text, limit) for text in DOCUMENTS]
    expected = [[(query @ document.T).max(axis=1).sum() for document in documents] for query in queries]
    output = minilm.submit(ScoringRequest(name, QUERIES, DOCUMENTS)).result()
    np.testing.assert_allclose(output.scores.reshape(3, -1), expected, rtol=0, atol=1e-4)


def test_s1_mean_maxsim_of_unit_vectors_is_at_most_one(minilm: Engine, token_vectors: TokenVectors) -> None:
    texts = ("Machine learning is a field of study.", "machine learning")
    output = minilm.submit(ScoringRequest("late", ("machine learning",), texts)).result()
    tokens = len(token_vectors("machine learning", 256))
    assert output.scores[1] == pytest.approx(tokens, abs=1e-4)
    assert (output.scores / tokens <= 1 + 1e-6).all()


def test_l4_flags_say_which_side_lost_how_many_tokens(minilm: Engine) -> None:
    query, document = "query " * 600, "document " * 600
    output = minilm.submit(ScoringRequest("minilm-512", (query, "short"), (document, "short"))).result()
    np.testing.assert_array_equal(output.query_truncated_tokens, [90, 0])
    np.testing.assert_array_equal(output.truncated_tokens, [90, 0, 90, 0])
    cut, whole = ItemStatus.TRUNCATED, ItemStatus.OK
    np.testing.assert_array_equal(output.status, [cut, cut, cut, whole])
    assert output.prompt_tokens == 512 + 3 + 512 + 3


@pytest.mark.parametrize("limit", [256, 512])
def test_l6_lengths_around_the_limit(minilm: Engine, limit: int) -> None:
    name = "minilm" if limit == 256 else "minilm-512"
    documents = tuple("word " * (limit - 2 + extra) for extra in (-1, 0, 1))
    output = minilm.submit(ScoringRequest(name, ("word",), documents)).result()
    np.testing.assert_array_equal(output.truncated_tokens, [0, 0, 1])
    assert output.scores[1] == pytest.approx(output.scores[2], abs=1e-6)


@pytest.mark.parametrize("name", ["minilm", "late"])
def test_l1_a_huge_document_leaves_its_neighbours_alone(minilm: Engine, name: str) -> None:
    short = tuple(f"the river rose by {i} metres" for i in range(9))
    huge = " ".join(WORDS * 700)
    assert len(huge) > 100_000
    alone = minilm.submit(ScoringRequest(name, ("flood",), short)).result()
    mixed = minilm.submit(ScoringRequest(name, ("flood",), (*short[:4], huge, *short[4:]))).result()
    assert mixed.status[4] == ItemStatus.TRUNCATED and mixed.truncated_tokens[4] > 15_000
    np.testing.assert_allclose(np.delete(mixed.scores, 4), alone.scores, rtol=0, atol=1e-5)
    again = minilm.submit(ScoringRequest(name, ("flood",), (huge,))).result()  # L2: the same text by itself
    assert again.scores[0] == pytest.approx(mixed.scores[4], abs=1e-6)
    assert again.truncated_tokens[0] == mixed.truncated_tokens[4]


def test_l5_hexadecimal_without_blanks(minilm: Engine) -> None:
    documents = ("0123456789abcdef" * 375, *(f"text number {i}" for i in range(19)))
    output = minilm.submit(ScoringRequest("minilm", ("number 3",), documents)).result()
    assert np.isfinite(output.scores).all()
    assert int(output.scores.argmax()) == 4


def test_limits_of_the_request_count_the_texts_own_tokens(minilm: Engine) -> None:
    options = ScoringOptions(max_tokens_per_query=2, max_tokens_per_document=3)
    output = minilm.submit(
        ScoringRequest("minilm", ("one two three",), ("one two three four", "one"), options=options)
    ).result()
    shorter = minilm.submit(ScoringRequest("minilm", ("one two",), ("one two three", "one"))).result()
    np.testing.assert_array_equal(output.truncated_tokens, [1, 0])
    np.testing.assert_array_equal(output.query_truncated_tokens, [1])
    np.testing.assert_allclose(output.scores, shorter.scores, rtol=0, atol=1e-6)


def test_t1_control_tokens_in_texts_change_little(minilm: Engine) -> None:
    plain = "Bees make honey from nectar."
    texts = tuple(f"{plain} {literal}" for literal in ("[SEP]", "[MASK]", "<|endoftext|>", "<|im_end|>", "</s>"))
    output = minilm.submit(ScoringRequest("minilm", ("how do bees make honey",), (plain, *texts))).result()
    assert (output.status == ItemStatus.OK).all()
    assert np.abs(output.scores[1:] - output.scores[0]).max() < 0.25


def test_the_relevant_document_wins_in_every_pairing(minilm: Engine) -> None:
    queries = ("how do bees make honey", "capital of France")
    documents = ("Paris is the capital of France.", "Bees turn nectar into honey.")
    for name in ("minilm", "late"):
        matrix = minilm.submit(ScoringRequest(name, queries, documents)).result().scores
        pairwise = minilm.submit(ScoringRequest(name, queries, documents, Pairing.PAIRWISE)).result().scores
        np.testing.assert_allclose(pairwise, matrix[[0, 3]], rtol=0, atol=1e-5)
        assert matrix[1] > matrix[0] and matrix[2] > matrix[3]

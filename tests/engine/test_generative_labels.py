"""Labels of several tokens against transformers: every label's sequence by itself, the full vocabulary at each step."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import numpy.typing as npt
import pytest
import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

from tests.engine.inside import record_rows
from tests.engine.test_generative import ITEMS, QUERIES, TEMPLATE, filled
from tests.engine.tiny import GENERATIVE
from workers.engine import Engine, EngineConfig, EngineError, ModelKind, ModelSpec, ScoringOptions, ScoringRequest

# One token, a beginning of the next, a longer one of the same beginning, two that differ in their last token only.
LABELS = ((5,), (77, 12), (77, 12, 301, 9), (130, 44), (130, 45))


def sequence_logprobs(
    folder: Path, prompts: list[list[int]], labels: tuple[tuple[int, ...], ...]
) -> npt.NDArray[np.float32]:
    """``[prompts, K]``: the sum over a label's tokens, one prompt with one label at a time."""
    model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32, attn_implementation="eager").eval()
    rows = []
    with torch.inference_mode():
        for prompt in prompts:
            row = []
            for label in labels:
                logits = model(torch.tensor([[*prompt, *label]])).logits[0].float().log_softmax(dim=-1)
                row.append(sum(float(logits[len(prompt) - 1 + i, token]) for i, token in enumerate(label)))
            rows.append(row)
    return np.array(rows, dtype=np.float32)


@pytest.fixture(scope="module", params=GENERATIVE)
def judge(request: pytest.FixtureRequest, tiny_folders: dict[str, Path]) -> tuple[Engine, Path]:
    engine = Engine(EngineConfig(threads=1, max_batch_tokens=200))
    folder = tiny_folders[request.param]
    engine.load(ModelSpec("judge", folder, ModelKind.GENERATIVE, template=TEMPLATE, labels=("yes", "no")))
    request.addfinalizer(engine.close)
    return engine, folder


def prompts_of(folder: Path) -> list[list[int]]:
    tokenizer = AutoTokenizer.from_pretrained(folder)
    texts = [filled(TEMPLATE, query, item) for query in QUERIES for item in ITEMS]
    return [tokenizer(text, add_special_tokens=False)["input_ids"] for text in texts]


@pytest.mark.parametrize("apply_softmax", [True, False])
def test_equals_every_sequence_by_itself(judge: tuple[Engine, Path], apply_softmax: bool) -> None:
    engine, folder = judge
    expected = sequence_logprobs(folder, prompts_of(folder), LABELS)
    if apply_softmax:
        expected = torch.from_numpy(expected).log_softmax(dim=-1).numpy()
    given = tuple(ids[0] if len(ids) == 1 else ids for ids in LABELS)
    options = ScoringOptions(label_token_ids=given, apply_softmax=apply_softmax)
    output = engine.submit(ScoringRequest("judge", QUERIES, ITEMS, options=options)).result(60)
    assert output.labels is not None and output.labels.token_ids == LABELS
    np.testing.assert_allclose(output.labels.logprobs, expected, rtol=0, atol=1e-4)
    np.testing.assert_allclose(output.scores, np.exp(expected[:, 0]), rtol=1e-3)
    if apply_softmax:
        np.testing.assert_allclose(output.labels.probabilities.sum(axis=1), 1, atol=1e-5)
    else:  # a label is never likelier than one that it begins with
        assert (output.labels.logprobs[:, 2] < output.labels.logprobs[:, 1]).all()


def test_strings_of_several_tokens(judge: tuple[Engine, Path]) -> None:
    engine, folder = judge
    names = ("yes", "certainly not", "yes it is", "no")
    tokenizer = AutoTokenizer.from_pretrained(folder)
    ids = tuple(tuple(tokenizer(name, add_special_tokens=False)["input_ids"]) for name in names)
    assert len(ids[0]) == 1 and len(ids[1]) > 2
    expected = sequence_logprobs(folder, prompts_of(folder)[:4], ids)
    options = ScoringOptions(labels=names, apply_softmax=False)
    output = engine.submit(ScoringRequest("judge", QUERIES[:1], ITEMS, options=options)).result(60)
    assert output.labels is not None and output.labels.labels == names and output.labels.token_ids == ids
    np.testing.assert_allclose(output.labels.logprobs, expected, rtol=0, atol=1e-4)


def test_the_prompt_runs_once_for_all_its_labels(tiny_folders: dict[str, Path]) -> None:
    engine = Engine(EngineConfig(threads=1))
    engine.load(ModelSpec("judge", tiny_folders["llama"], ModelKind.GENERATIVE, template=TEMPLATE))
    rows = record_rows(engine, "judge")
    output = engine.submit(
        ScoringRequest("judge", QUERIES[:1], ITEMS[:1], options=ScoringOptions(label_token_ids=LABELS))
    ).result(60)
    engine.close()
    # (77,), (77, 12, 301) and (130,), which two labels share, behind one prompt
    assert len(rows) == 1 and len(rows[0]) == output.prompt_tokens + 5


def test_labels_have_room_behind_the_longest_prompt(tiny_folders: dict[str, Path]) -> None:
    """A prompt cut to the limit leaves the positions that the labels need."""
    engine = Engine(EngineConfig(threads=1))
    folder = tiny_folders["llama"]
    engine.load(ModelSpec("judge", folder, ModelKind.GENERATIVE, template=TEMPLATE, max_length=100))
    options = ScoringOptions(label_token_ids=((5, 6, 7), (8,)))
    output = engine.submit(ScoringRequest("judge", QUERIES[:1], ("river " * 400,), options=options)).result(60)
    engine.close()
    assert output.prompt_tokens == 98


@pytest.mark.parametrize(
    ("code", "labels"),
    [
        ("equal_labels", ((5, 6), (7,), (5, 6))),
        ("empty_label", ((5, 6), ())),
        ("unknown_token_id", ((5, 10**6), (7,))),
        ("one_label", ((5, 6),)),
    ],
)
def test_refusals(judge: tuple[Engine, Path], code: str, labels: tuple[tuple[int, ...], ...]) -> None:
    options = ScoringOptions(label_token_ids=labels)
    error = judge[0].submit(ScoringRequest("judge", QUERIES, ITEMS, options=options)).exception(60)
    assert isinstance(error, EngineError) and error.code == code

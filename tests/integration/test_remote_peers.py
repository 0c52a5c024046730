"""Remote engines that others wrote: a real vLLM and a real infinity server, beside transformers on the same weights.

Each runs from a virtual environment of its own, whose folder PEER_VLLM or PEER_INFINITY names; without these nothing is
tested here. `docs/remote.md` says how to make one.
"""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import numpy.typing as npt
import pytest
import torch
from pytest_django import Settings
from transformers import AutoModel, AutoModelForSequenceClassification, AutoTokenizer, BertConfig, BertModel
from transformers.models.bert import BertForSequenceClassification

from assay.settings import env
from assay.supervisor import free_port
from scoring.models import Chunk, ScoringModel
from scoring.services.registry import model_register
from scoring.states import ChunkState, ModelState
from tests.engine.tiny import save_random, wordpiece
from tests.integration.conftest import MakeJob
from tests.integration.rig import Rig, wait_for
from workers.engine.types import ItemStatus, PoolingRequest, PoolingTask, ScoringRequest

pytestmark = pytest.mark.peers

KINDS = ("cross-encoder", "bi-encoder")
SIZES: dict[str, Any] = {  # heads of 32, which vLLM can do on a CPU
    "hidden_size": 64, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 128,
    "max_position_embeddings": 128,
}  # fmt: skip
START_SECONDS = 900
TOLERANCE = 2e-3

Floats = npt.NDArray[np.float32]
Endpoint = Callable[[str, str], str]


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """One per kind, with random weights; the bi-encoder as sentence-transformers leaves it."""
    made = {kind: tmp_path_factory.mktemp(kind) for kind in KINDS}
    save_random(
        lambda size: BertForSequenceClassification(BertConfig(vocab_size=size, **{**SIZES, "num_labels": 1})),
        wordpiece(),
        made["cross-encoder"],
    )
    folder = made["bi-encoder"]
    save_random(lambda size: BertModel(BertConfig(vocab_size=size, **SIZES)), wordpiece(), folder)
    modules = ("Transformer", ""), ("Pooling", "1_Pooling"), ("Normalize", "2_Normalize")
    listed = [
        {"idx": n, "name": str(n), "path": path, "type": f"sentence_transformers.models.{name}"}
        for n, (name, path) in enumerate(modules)
    ]
    pooling = {"word_embedding_dimension": SIZES["hidden_size"], "pooling_mode_mean_tokens": True}
    for name, content in (
        ("modules.json", listed),
        ("sentence_bert_config.json", {"max_seq_length": 128, "do_lower_case": False}),
        ("1_Pooling/config.json", {**pooling, "pooling_mode_cls_token": False}),
        ("2_Normalize/config.json", {}),
    ):
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / name).write_text(json.dumps(content))
    for folder in made.values():  # by the name that older releases of transformers, such as infinity's, know too
        config = json.loads((folder / "tokenizer_config.json").read_text())
        told = {**config, "tokenizer_class": "PreTrainedTokenizerFast"}
        (folder / "tokenizer_config.json").write_text(json.dumps(told))
    return made


@contextmanager
def serving(command: list[str], port: int, log: Path) -> Iterator[str]:
    """The server's address, once it answers; the whole family ends with the block."""
    given = {"HF_HUB_OFFLINE": "1", "OMP_NUM_THREADS": "2", "VLLM_CPU_KVCACHE_SPACE": "1", "DO_NOT_TRACK": "1"}
    path = f"{Path(command[0]).parent}:/usr/local/bin:/usr/bin:/bin"
    with log.open("wb") as out, subprocess.Popen(
        command, env=env.for_child({**given, "PATH": path}), stdout=out, stderr=subprocess.STDOUT
    ) as process:  # fmt: skip
        address = f"http://127.0.0.1:{port}"

        def answers() -> bool:
            assert process.poll() is None, f"{command} ended:\n{log.read_text(errors='replace')[-3000:]}"
            try:
                return httpx.get(f"{address}/health", timeout=2).is_success
            except httpx.TransportError:
                return False

        try:
            wait_for(answers, seconds=START_SECONDS, what=f"the answer of {command[0]}; see {log}")
            yield address
        finally:
            process.terminate()
            process.wait(60)


@pytest.fixture(scope="module")
def endpoint(folders: dict[str, Path], tmp_path_factory: pytest.TempPathFactory) -> Iterator[Endpoint]:
    """``endpoint("vllm", "bi-encoder")``: the address of a server of that model, started when first asked for. vLLM has
    one model, so the server before it ends."""
    running: dict[str, Any] = {}
    logs = tmp_path_factory.mktemp("peers")

    def started(engine: str, kind: str) -> str:
        name = "PEER_VLLM" if engine == "vllm" else "PEER_INFINITY"
        if not env.given(name):
            pytest.skip(f"{name} names no environment with such a server; docs/remote.md says how to make one")
        served, port = engine if engine != "vllm" else f"{engine} {kind}", free_port()
        if served not in running:
            for server in running.values():
                server[0].__exit__(None, None, None)
            running.clear()
            command = (
                _vllm(env.folder(name, Path()) / "bin", folders[kind], port)
                if engine == "vllm"
                else _infinity(env.folder(name, Path()) / "bin", folders, port)
            )
            server = serving(command, port, logs / f"{served}.log")
            running[served] = (server, server.__enter__())
        address: str = running[served][1]
        return address

    yield started
    for server, _ in running.values():
        server.__exit__(None, None, None)


def _vllm(programs: Path, folder: Path, port: int) -> list[str]:
    return [
        str(programs / "python"), str(programs / "vllm"), "serve", str(folder),
        "--dtype", "float32", "--port", str(port),
        "--served-model-name", "served", "--enforce-eager", "--max-model-len", "128",
    ]  # fmt: skip


def _infinity(programs: Path, folders: dict[str, Path], port: int) -> list[str]:
    models = [part for kind in KINDS for part in ("--model-id", str(folders[kind]), "--served-model-name", kind)]
    return [
        str(programs / "python"), str(programs / "infinity_emb"), "v2", *models,
        "--port", str(port), "--host", "127.0.0.1",
        "--url-prefix", "/v1", "--engine", "torch", "--device", "cpu", "--dtype", "float32",
        "--no-bettertransformer", "--no-model-warmup",
    ]  # fmt: skip


def relevances(folder: Path, queries: tuple[str, ...], documents: tuple[str, ...]) -> Floats:
    """[Q, D]"""
    tokenizer = AutoTokenizer.from_pretrained(folder)
    model = AutoModelForSequenceClassification.from_pretrained(folder).eval()
    pairs = [(query, document) for query in queries for document in documents]
    with torch.no_grad():
        scores = [model(**tokenizer(*pair, return_tensors="pt")).logits.sigmoid().item() for pair in pairs]
    return np.array(scores, dtype=np.float32).reshape(len(queries), len(documents))


def embeddings(folder: Path, texts: tuple[str, ...]) -> Floats:
    """[n, E], of length 1"""
    tokenizer, model = AutoTokenizer.from_pretrained(folder), AutoModel.from_pretrained(folder).eval()
    with torch.no_grad():
        means = [model(**tokenizer(text, return_tensors="pt")).last_hidden_state[0].mean(0) for text in texts]
    vectors = torch.stack(means).numpy()
    scaled: Floats = vectors / np.linalg.norm(vectors, axis=1, keepdims=True)
    return scaled


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("language", ["vllm", "openai-compatible"])
def test_a_server_of_others_scores_as_transformers_does(
    endpoint: Endpoint,
    folders: dict[str, Path],
    rig: Rig,
    make_job: MakeJob,
    settings: Settings,
    language: str,
    kind: str,
) -> None:
    settings.OUTGOING_ALLOWED_HOSTS = ["127.0.0.1"]
    address, served = endpoint(language, kind), "served" if language == "vllm" else kind
    model = model_register(
        principal=rig.principal, name="peer", kind=kind, engine=language, endpoint=address, remote_model=served,
        self_test_mode="numbers",
    )  # fmt: skip
    rig.wait_for_state(model, ModelState.AVAILABLE, ModelState.REJECTED)
    assert model.state == ModelState.AVAILABLE, model.self_test_report
    queries = ("first", "second")
    documents = tuple(f"the bridge number {n} over the river is a piece of text" for n in range(64))
    if kind == "cross-encoder":
        expected = relevances(folders[kind], queries, documents)
    else:
        expected = embeddings(folders[kind], queries) @ embeddings(folders[kind], documents).T
    assert np.ptp(expected) > 5 * TOLERANCE, "scores that are all alike would show nothing"

    output = rig.engine.submit(ScoringRequest("peer", queries, (*documents, " ", "river " * 500))).result(300)
    scores = output.scores.reshape(2, 66)
    assert np.abs(scores[:, :64] - expected).max() < TOLERANCE
    assert (output.status.reshape(2, 66)[:, 64:] == [ItemStatus.EMPTY, ItemStatus.OK]).all()
    assert output.backend == f"{language}:{served}" and output.prompt_tokens > 0

    job = make_job(model, chunks=1, texts=lambda n: documents[n])
    rig.batch.start()
    done = Chunk.objects.filter(job=job, state=ChunkState.DONE)
    wait_for(lambda: done.exists() and not Chunk.objects.filter(job=job).exclude(state=ChunkState.DONE).exists(),
             seconds=300, what="the job")  # fmt: skip
    grid = np.full((2, 64), np.nan, dtype=np.float32)
    for chunk in done:
        rows = slice(chunk.query_start, chunk.query_start + chunk.query_count)
        columns = slice(chunk.document_start, chunk.document_start + chunk.document_count)
        block = np.frombuffer(chunk.raw_scores, "<f4").reshape(chunk.query_count, chunk.document_count)
        grid[rows, columns] = block
        assert chunk.report["backend"] == f"{language}:{served}"
    assert np.abs(grid - expected).max() < TOLERANCE
    if kind == "bi-encoder":
        _check_vectors(rig, model, embeddings(folders[kind], documents), documents)


def _check_vectors(rig: Rig, model: ScoringModel, expected: Floats, texts: tuple[str, ...]) -> None:
    pooled = rig.engine.submit_pooling(PoolingRequest(model.name, (*texts, ""), PoolingTask.EMBED)).result(300)
    assert pooled.data[-1].status is ItemStatus.EMPTY
    vectors = np.array([text.vector for text in pooled.data[:-1]])
    assert np.abs(vectors - expected).max() < TOLERANCE

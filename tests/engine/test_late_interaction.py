"""Reservations, caches and MaxSim."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from tests.engine.inside import late_runner_of, spec_of
from tests.engine.tiny import CORPUS
from workers.engine import Engine, EngineConfig, ModelKind, ModelSpec, ScoringRequest
from workers.engine.caches.embedding_cache import CachedEncoding, CacheKey, EmbeddingCache, content_digest
from workers.engine.pooling.encoding import Encoding, Part
from workers.engine.role import Role

WORDS = " ".join(CORPUS[:5]).split()
DOCUMENTS = tuple(" ".join(WORDS[i : i + 1 + 5 * i % 23]) for i in range(30))


def entry(tokens: int) -> CachedEncoding:
    return CachedEncoding(Encoding(tokens=torch.zeros(tokens, 8)), tokens, 0)  # 32 bytes a token


def key(text: str, identity: str = "weights", device: str = "cpu") -> CacheKey:
    return CacheKey(identity, device, Role.DOCUMENT, frozenset({Part.TOKENS}), 512, content_digest(text, ""))


def test_the_cache_keeps_its_budget_and_evicts_the_least_recently_used() -> None:
    cache = EmbeddingCache(320)
    for text in ("a", "b", "c"):
        cache.put(key(text), entry(3))
    assert cache.get(key("a")) is not None
    cache.put(key("d"), entry(3))
    assert cache.get(key("b")) is None
    assert all(cache.get(key(text)) is not None for text in ("a", "c", "d"))
    cache.put(key("too large"), entry(11))
    cache.put(key("a"), entry(1))
    statistics = cache.statistics()
    assert (statistics.bytes, statistics.entries, statistics.evictions) == (7 * 32, 3, 1)
    assert (statistics.hits, statistics.misses) == (4, 1)


def test_the_cache_clears_one_encoder_and_keys_tell_devices_apart() -> None:
    cache = EmbeddingCache(10_000)
    cache.put(key("a"), entry(1))
    cache.put(key("a", device="cuda:0"), entry(2))
    cache.put(key("a", "other"), entry(4))
    assert cache.get(key("a")).tokens == 1  # type: ignore[union-attr]
    cache.clear(key("a").owner)
    assert cache.statistics().bytes == 6 * 32 and cache.get(key("a")) is None
    assert cache.get(key("a", device="cuda:0")) is not None and cache.get(key("a", "other")) is not None


@pytest.mark.parametrize("name", ["bi", "late"])
def test_a_warm_request_encodes_nothing_and_scores_the_same(tiny_engine: Engine, name: str) -> None:
    request = ScoringRequest(name, ("the river rose",), DOCUMENTS)
    cold = tiny_engine.submit(request).result(60)
    tokens = tiny_engine.statistics().tokens
    warm = tiny_engine.submit(request).result(60)
    assert tiny_engine.statistics().tokens == tokens
    assert (cold.cached_documents, warm.cached_documents) == (0, len(DOCUMENTS))
    assert warm.prompt_tokens == cold.prompt_tokens
    np.testing.assert_allclose(warm.scores, cold.scores, rtol=0, atol=1e-6)
    edited = tiny_engine.submit(ScoringRequest(name, ("the river rose",), (DOCUMENTS[0] + "!", *DOCUMENTS[1:]))).result(
        60
    )
    assert edited.cached_documents == len(DOCUMENTS) - 1


def test_a_reload_clears_the_models_caches_and_no_others(tiny_engine: Engine) -> None:
    for name in ("bi", "late"):
        tiny_engine.submit(ScoringRequest(name, ("river",), DOCUMENTS)).result(60)
    before = tiny_engine.statistics().document_cache
    tiny_engine.load(spec_of(tiny_engine, "late"))
    after = tiny_engine.statistics().document_cache
    assert 0 < after.entries == before.entries // 2
    assert tiny_engine.submit(ScoringRequest("bi", ("river",), DOCUMENTS)).result(60).cached_documents == len(DOCUMENTS)
    assert tiny_engine.submit(ScoringRequest("late", ("river",), DOCUMENTS)).result(60).cached_documents == 0


def test_reservations_end_with_the_last_document(tiny_engine: Engine) -> None:
    tiny_engine.submit(ScoringRequest("late", ("river", "bees"), DOCUMENTS)).result(60)
    late = late_runner_of(tiny_engine, "late")
    assert (late.reservations, late.reserved_bytes, tiny_engine.statistics().reserved_bytes) == (0, 0, 0)


def test_the_toggle_is_in_force_at_once_and_the_fallback_is_told(tiny_engine: Engine) -> None:
    """On a machine without CUDA a wanted GPU MaxSim runs on the CPU, says so and is counted."""
    info = tiny_engine.configure(replace(spec_of(tiny_engine, "late"), gpu_maxsim=False))
    assert (info.gpu_maxsim, info.maxsim_backend) == (False, "cpu") and tiny_engine.models()["late"] == info
    output = tiny_engine.submit(ScoringRequest("late", ("river",), DOCUMENTS)).result(60)
    assert (output.backend, output.fallback, tiny_engine.statistics().maxsim_fallbacks) == ("cpu", None, 0)
    tiny_engine.configure(replace(spec_of(tiny_engine, "late"), gpu_maxsim=True))
    if not torch.cuda.is_available():
        output = tiny_engine.submit(ScoringRequest("late", ("river",), DOCUMENTS)).result(60)
        assert "ran on the CPU" in str(output.fallback) and tiny_engine.statistics().maxsim_fallbacks == 1


def test_many_queries_against_many_documents_encode_each_text_once(tiny_folders: dict[str, Path]) -> None:
    engine = Engine(EngineConfig(threads=1))
    engine.load(ModelSpec("late", tiny_folders["bert"], ModelKind.LATE_INTERACTION))
    queries = tuple(f"query {i} river" for i in range(225))
    output = engine.submit(ScoringRequest("late", queries, DOCUMENTS * 2)).result(60)
    assert np.isfinite(output.scores).all() and len(output.scores) == 225 * 60
    assert engine.statistics().sequences == 225 + len(set(DOCUMENTS))
    single = engine.submit(ScoringRequest("late", queries[7:8], DOCUMENTS)).result(60)
    np.testing.assert_allclose(output.scores.reshape(225, -1)[7, :30], single.scores, rtol=0, atol=1e-5)
    engine.close()

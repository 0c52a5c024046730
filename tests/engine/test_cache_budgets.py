"""What one encoder may keep of documents within the budget of all."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path

import pytest
import torch

from tests.engine.inside import spec_of
from workers.engine import EncodingRequest, Engine, EngineConfig, ModelKind, ModelSpec
from workers.engine.caches.cached_encoding import CachedEncoding, CacheKey, Owner, content_digest
from workers.engine.caches.disk_tier import DiskTier
from workers.engine.caches.embedding_cache import EmbeddingCache, MemoryTier
from workers.engine.pooling.encoding import Encoding, Part
from workers.engine.role import Role
from workers.engine.statistics import DocumentShare

CPU = torch.device("cpu")
TOKEN_BYTES = 32
DOCUMENTS = tuple(f"the river rose {number} times" for number in range(30))


def key(text: str, encoder: str = "narrow") -> CacheKey:
    return CacheKey(encoder, "cpu", Role.DOCUMENT, frozenset({Part.TOKENS}), 512, content_digest(text, ""))


def entry(tokens: int = 1) -> CachedEncoding:
    return CachedEncoding(Encoding(tokens=torch.zeros(tokens, 8)), tokens, 0)


def owner(encoder: str = "narrow") -> Owner:
    return key("", encoder).owner


def kept(tier: MemoryTier) -> list[CacheKey]:
    """The least recently used first."""
    return list(tier._entries)


@dataclass
class Reference:
    """The rules, with no thought of speed: a list in the order of use."""

    budget: int
    limits: dict[Owner, int] = field(default_factory=dict)
    entries: list[tuple[CacheKey, int]] = field(default_factory=list)

    def bytes(self, of: Owner | None = None) -> int:
        return sum(size for key, size in self.entries if of in (None, key.owner))

    def get(self, key: CacheKey) -> None:
        found = [pair for pair in self.entries if pair[0] == key]
        self.entries = [pair for pair in self.entries if pair[0] != key] + found

    def put(self, key: CacheKey, size: int) -> None:
        if size <= min(self.budget, self.limits.get(key.owner, self.budget)):
            self.entries = [pair for pair in self.entries if pair[0] != key] + [(key, size)]
            self.fit()

    def fit(self) -> None:
        for of, limit in (*self.limits.items(), (None, self.budget)):
            while self.bytes(of) > limit:
                self.entries.remove(next(pair for pair in self.entries if of in (None, pair[0].owner)))

    def remove(self, keys: list[CacheKey]) -> None:
        self.entries = [pair for pair in self.entries if pair[0] not in keys]

    def clear(self, of: Owner) -> None:
        self.entries = [pair for pair in self.entries if pair[0].owner != of]

    def limit(self, of: Owner, budget: int | None) -> None:
        self.limits.pop(of, None)
        if budget is not None:
            self.limits[of] = budget
        self.fit()


@pytest.mark.parametrize("seed", range(5))
def test_whatever_is_done_the_rules_hold(seed: int) -> None:
    dice = random.Random(seed)
    tier, reference = MemoryTier(20 * TOKEN_BYTES), Reference(20 * TOKEN_BYTES)
    encoders = ("one", "two", "three")
    keys = [key(str(number), encoder) for number in range(8) for encoder in encoders]
    for _ in range(1500):
        chosen, of = dice.choice(keys), owner(dice.choice(encoders))
        step = dice.choices(("put", "get", "remove", "clear", "limit"), (60, 30, 4, 1, 5))[0]
        if step == "put":
            made = entry(dice.randint(1, 6))
            tier.put(chosen, made)
            reference.put(chosen, made.bytes)
        elif step == "get":
            assert (tier.get(chosen) is not None) == any(chosen == known for known, _ in reference.entries)
            reference.get(chosen)
        elif step == "remove":
            tier.remove([chosen, keys[0]])
            reference.remove([chosen, keys[0]])
        elif step == "clear":
            tier.clear(of)
            reference.clear(of)
        else:
            limit = dice.choice((None, *(tokens * TOKEN_BYTES for tokens in (0, 3, 8, 30))))
            tier.limit(of, limit)
            reference.limit(of, limit)
        assert kept(tier) == [known for known, _ in reference.entries]
        assert tier.statistics().bytes == reference.bytes()
        for encoder in encoders:
            assert tier.bytes_of(owner(encoder)) == reference.bytes(owner(encoder))


def test_a_bounded_encoder_pushes_out_its_own_entries_only() -> None:
    tier = MemoryTier(8 * TOKEN_BYTES)
    tier.limit(owner(), 3 * TOKEN_BYTES)
    tier.put(key("old", "wide"), entry())
    for text in "abc":
        tier.put(key(text), entry())
    assert tier.get(key("a")) is not None  # b is the least recently used now
    tier.put(key("d"), entry())
    assert kept(tier) == [key("old", "wide"), key("c"), key("a"), key("d")]
    tier.put(key("longer than all it may keep"), entry(4))
    assert tier.bytes_of(owner()) == 3 * TOKEN_BYTES and tier.statistics().evictions == 1
    for text in "stuvw":
        tier.put(key(text, "wide"), entry())  # one over the budget of all, whose oldest entry goes
    assert key("old", "wide") not in kept(tier) and tier.bytes_of(owner()) == 3 * TOKEN_BYTES
    tier.limit(owner(), TOKEN_BYTES)
    assert [known for known in kept(tier) if known.owner == owner()] == [key("d")]
    assert tier.bytes_of(owner("wide")) == 5 * TOKEN_BYTES


def test_each_memory_holds_as_much_and_one_that_may_keep_nothing_leaves_nothing_on_the_disk(tmp_path: Path) -> None:
    disk = DiskTier(tmp_path, 10**6)
    cache = EmbeddingCache(10_000, on_device=MemoryTier(10_000), on_disk=disk)
    cache.limit(owner(), 2 * TOKEN_BYTES)
    for text in "abc":
        cache.put(key(text), entry(), CPU)
    assert cache.share(owner()) == DocumentShare(2 * TOKEN_BYTES, 2 * TOKEN_BYTES, 2 * TOKEN_BYTES)
    cache.settle()
    assert disk.statistics().entries == 3  # of all encoders together the disk keeps what it has room for
    assert cache.get(key("a"), CPU) is not None and cache.share(owner()).bytes == 2 * TOKEN_BYTES  # it came up again
    cache.limit(owner(), 0)
    assert cache.share(owner()) == DocumentShare(0, 0, 0)
    cache.put(key("d"), entry(), CPU)
    cache.settle()
    assert cache.get(key("d"), CPU) is None and disk.statistics().entries == 3
    cache.limit(owner(), None)
    cache.put(key("d"), entry(), CPU)
    assert cache.share(owner()) == DocumentShare(TOKEN_BYTES, TOKEN_BYTES, None)
    cache.close()


@pytest.fixture
def share(tiny_engine: Engine) -> Callable[[str], DocumentShare]:
    return lambda name: tiny_engine.document_shares()[name]


def encode(engine: Engine, name: str) -> int:
    """How many of the documents had to be computed."""
    return engine.pre_encode(EncodingRequest(name, DOCUMENTS)).result(60).encoded


def test_a_budget_comes_into_force_while_a_model_serves(
    tiny_engine: Engine, share: Callable[[str], DocumentShare]
) -> None:
    assert tiny_engine.document_shares().keys() == {"bi", "late"}  # the judge keeps no encodings
    encode(tiny_engine, "bi")
    encode(tiny_engine, "late")
    whole, other = share("late").bytes, share("bi")
    late, generation = spec_of(tiny_engine, "late"), tiny_engine.models()["late"].generation
    tiny_engine.configure(replace(late, document_cache_bytes=whole // 3))
    assert whole // 6 < share("late").bytes <= whole // 3 and share("late").budget_bytes == whole // 3
    encode(tiny_engine, "late")
    assert share("late").bytes <= whole // 3 and share("bi") == other
    tiny_engine.configure(replace(late, document_cache_bytes=0))
    assert share("late").bytes == 0 and encode(tiny_engine, "late") == encode(tiny_engine, "late") == len(DOCUMENTS)
    tiny_engine.configure(late)
    encode(tiny_engine, "late")
    assert share("late") == DocumentShare(whole, 0, None) and encode(tiny_engine, "late") == 0
    assert tiny_engine.models()["late"].generation == generation  # nothing was loaded for it


def test_of_models_of_one_encoder_the_one_that_may_keep_the_most_decides(
    tiny_engine: Engine, share: Callable[[str], DocumentShare]
) -> None:
    late = spec_of(tiny_engine, "late")
    encode(tiny_engine, "late")
    whole = share("late").bytes
    twin = replace(late, name="twin", document_cache_bytes=whole // 2)
    tiny_engine.load(twin)
    assert share("twin") == share("late") == DocumentShare(whole, 0, None)  # the first one has no bound
    tiny_engine.configure(replace(late, document_cache_bytes=whole // 4))
    assert share("twin") == share("late") and share("twin").budget_bytes == whole // 2
    tiny_engine.unload("twin")
    assert 0 < share("late").bytes <= whole // 4 and share("late").budget_bytes == whole // 4
    tiny_engine.unload("late")
    tiny_engine.load(late)
    assert share("late") == DocumentShare(0, 0, None)


def test_a_reload_keeps_the_budget_and_a_load_may_bring_one(tiny_folders: dict[str, Path]) -> None:
    engine = Engine(EngineConfig(threads=1))
    spec = ModelSpec("bi", tiny_folders["bert"], ModelKind.BI_ENCODER, document_cache_bytes=1000)
    for _ in range(2):
        engine.load(spec)
        encode(engine, "bi")
        share = engine.document_shares()["bi"]
        assert 0 < share.bytes <= 1000 == share.budget_bytes
    engine.close()

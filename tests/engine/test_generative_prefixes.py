"""What prompts begin with, kept between micro-batches and requests: the same numbers as without, and who shares it."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

from tests.engine.inside import body_of, record_rows
from tests.engine.test_generative import ITEMS, QUERIES, TEMPLATE, filled
from tests.engine.tiny import CORPUS
from workers.engine import Engine, EngineConfig, ModelKind, ModelSpec, Priority, ScoringOptions, ScoringRequest
from workers.engine.forward.kept_prefix import KeptPrefix, PrefixCache, PrefixKey
from workers.engine.forward.packed_batch import Piece, pack
from workers.engine.loading.checkpoint import load_checkpoint
from workers.engine.prompt_row import PART_TOKENS, chain_prompts
from workers.engine.texts.templates import Prompt

KEEPING = ("llama", "qwen3", "gemma3")
LABELS = (5, 77, (130, 44))


def loaded(folder: Path, **config: Any) -> Engine:
    engine = Engine(EngineConfig(threads=1, **config))
    engine.load(ModelSpec("judge", folder, ModelKind.GENERATIVE, template=TEMPLATE))
    return engine


def score(engine: Engine, queries: tuple[str, ...], items: tuple[str, ...], salt: str = "") -> npt.NDArray[np.float32]:
    options = ScoringOptions(label_token_ids=LABELS, apply_softmax=False)
    output = engine.submit(ScoringRequest("judge", queries, items, options=options, cache_salt=salt)).result(60)
    assert output.labels is not None
    return output.labels.logprobs


@pytest.fixture
def llama(tiny_folders: dict[str, Path]) -> Iterator[Engine]:
    engine = loaded(tiny_folders["llama"])
    yield engine
    engine.close()


@pytest.mark.parametrize("architecture", KEEPING)
def test_kept_equals_recomputed(tiny_folders: dict[str, Path], architecture: str) -> None:
    """Also where a sliding window (8 and 16 tokens) ends inside what was kept; and with none kept at all."""
    engine, bare = loaded(tiny_folders[architecture]), loaded(tiny_folders[architecture], prefix_cache_bytes=0)
    rows = record_rows(engine, "judge")
    first = score(engine, QUERIES, ITEMS)
    before, whole = engine.statistics().prefix_cache, sum(map(len, rows))
    rows.clear()
    again = score(engine, QUERIES, ITEMS)
    after = engine.statistics().prefix_cache
    expected = score(bare, QUERIES, ITEMS)
    assert before.entries == 3 and before.bytes > 0 and before.misses == 1  # the template's beginning, two queries
    assert after.misses == before.misses and after.hits > before.hits and sum(map(len, rows)) < whole - 30
    np.testing.assert_allclose(again, first, rtol=0, atol=1e-5)
    np.testing.assert_allclose(again, expected, rtol=0, atol=1e-5)
    assert bare.statistics().prefix_cache.entries == 0
    for each in (engine, bare):
        each.close()


@pytest.mark.parametrize("architecture", KEEPING)
def test_chains_of_kept_and_new_pieces_equal_whole_prompts(tiny_folders: dict[str, Path], architecture: str) -> None:
    folder = tiny_folders[architecture]
    runner = load_checkpoint(ModelSpec("m", folder, ModelKind.GENERATIVE), EngineConfig()).runner
    assert runner.keeps_prefixes
    tokens = torch.randint(5, 300, (60,), generator=torch.Generator().manual_seed(1)).tolist()
    first, second = KeptPrefix(20), KeptPrefix(13)
    runner.forward(runner.pack([Piece(tokens[40:]), Piece(tokens[:20], keep=first)]))
    runner.forward(runner.pack([Piece(tokens[20:33], after=(first,), keep=second), Piece(tokens[:5])]))
    pieces = [
        Piece(tokens[33:40], after=(first, second)),
        Piece(tokens[40:45], prefix=0),
        Piece(tokens[45:], prefix=1),
        Piece(tokens[20:33], after=(first,)),
        Piece(tokens[:9]),
    ]
    hidden = runner.forward(runner.pack(pieces)).split([len(piece.token_ids) for piece in pieces])
    model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32, attn_implementation="eager").eval()
    with torch.inference_mode():
        whole = model.model(torch.tensor([tokens])).last_hidden_state[0]  # [T, E]
    expected = (whole[33:40], whole[40:45], whole[45:], whole[20:33], whole[:9])
    for part, wanted in zip(hidden, expected, strict=True):
        torch.testing.assert_close(part, wanted, rtol=0, atol=2e-5)
    assert first.bytes == 20 * 2 * 2 * 2 * 8 * 4  # tokens, layers, keys and values, key heads, head dim, float32


def test_every_piece_s_keys_are_listed_in_order() -> None:
    """What one variable-length call gathers: kept rows behind the row of 10, then the chain, then the piece's own."""
    kept = (KeptPrefix(3), KeptPrefix(2))
    pieces = [
        Piece([1, 2], after=kept),
        Piece([3], prefix=0),
        Piece([4, 5], prefix=1),
        Piece([6, 7], after=kept[:1]),
        Piece([8, 9, 9]),
    ]
    batch = pack(pieces, device=torch.device("cpu"))
    assert batch.key_rows is not None
    borders = batch.cu_attended.tolist()
    rows = [batch.key_rows[a:b].tolist() for a, b in itertools.pairwise(borders)]
    behind = [10, 11, 12, 13, 14]
    assert rows == [
        [*behind, 0, 1],
        [*behind, 0, 1, 2],
        [*behind, 0, 1, 2, 3, 4],
        [10, 11, 12, 5, 6],
        [7, 8, 9],
    ]
    assert batch.positions.tolist() == [5, 6, 7, 8, 9, 3, 4, 0, 1, 2]
    assert (batch.kept, batch.max_attended, batch.max_length) == (kept, 10, 3)


def test_what_mixes_tokens_outside_attention_keeps_nothing(tiny_folders: dict[str, Path]) -> None:
    engine = loaded(tiny_folders["lfm2"])
    score(engine, QUERIES, ITEMS)
    statistics = engine.statistics().prefix_cache
    engine.close()
    assert (statistics.entries, statistics.hits, statistics.misses) == (0, 0, 0)


def test_only_requests_of_one_salt_share(llama: Engine) -> None:
    expected = score(llama, QUERIES, ITEMS, "one")
    entries = llama.statistics().prefix_cache
    np.testing.assert_allclose(score(llama, QUERIES, ITEMS, "other"), expected, rtol=0, atol=1e-5)
    other = llama.statistics().prefix_cache
    assert other.hits == entries.hits and other.entries == 2 * entries.entries
    score(llama, QUERIES, ITEMS, "one")
    assert llama.statistics().prefix_cache.entries == other.entries
    assert llama.statistics().prefix_cache.hits > other.hits


def test_another_query_finds_the_template_s_beginning(llama: Engine) -> None:
    rows = record_rows(llama, "judge")
    score(llama, QUERIES[:1], ITEMS[:1])
    cold = len(rows.pop())
    score(llama, ("why was the river closed",), ITEMS[:1])
    assert len(rows[0]) <= cold - 16 and llama.statistics().prefix_cache.hits == 1


def test_a_reload_and_an_unload_clear(llama: Engine, tiny_folders: dict[str, Path]) -> None:
    spec = ModelSpec("judge", tiny_folders["llama"], ModelKind.GENERATIVE, template=TEMPLATE)
    score(llama, QUERIES, ITEMS)
    hits = llama.statistics().prefix_cache.hits
    llama.load(spec)
    assert llama.statistics().prefix_cache.entries == 0
    score(llama, QUERIES[:1], ITEMS)
    statistics = llama.statistics().prefix_cache
    assert statistics.hits == hits and statistics.entries > 0
    llama.unload("judge")
    assert llama.statistics().prefix_cache.bytes == 0


def test_numbers_that_are_none_are_not_kept(llama: Engine) -> None:
    """A fault in one micro-batch must not outlive it."""
    expected = score(llama, QUERIES, ITEMS, "elsewhere")
    hook = (
        body_of(llama, "judge")
        .get_input_embeddings()
        .register_forward_hook(lambda module, args, output: output * np.nan)
    )
    before = llama.statistics().prefix_cache.entries
    assert np.isnan(score(llama, QUERIES, ITEMS)).all()
    hook.remove()
    assert llama.statistics().prefix_cache.entries == before
    np.testing.assert_allclose(score(llama, QUERIES, ITEMS), expected, rtol=0, atol=1e-5)


def test_requests_at_once_share_and_agree(tiny_folders: dict[str, Path]) -> None:
    """Many requests of few queries, in the same micro-batches: each gets what it gets alone."""
    engine, bare = (loaded(tiny_folders["llama"], prefix_cache_bytes=budget) for budget in (20_000, 0))
    options = ScoringOptions(label_token_ids=LABELS)
    requests = [
        ScoringRequest("judge", (QUERIES[i % 2],), ITEMS[i % 3 :], options=options, cache_salt="ab"[i % 4 // 2])
        for i in range(24)
    ]
    together = [future.result(60) for future in [engine.submit(request) for request in requests]]
    for request, output in zip(requests, together, strict=True):
        alone = bare.submit(request).result(60)
        np.testing.assert_allclose(output.raw_scores, alone.raw_scores, rtol=0, atol=1e-5)
    statistics = engine.statistics().prefix_cache
    assert statistics.hits > 0 and statistics.bytes <= 20_000
    for each in (engine, bare):
        each.close()


def test_the_float32_retry_takes_nothing_that_was_kept(tiny_folders: dict[str, Path]) -> None:
    engine = Engine(EngineConfig(threads=1))
    folder = tiny_folders["llama"]
    engine.load(ModelSpec("judge", folder, ModelKind.GENERATIVE, template=TEMPLATE, dtype="bfloat16"))
    coarse = score(engine, QUERIES, ITEMS)
    assert engine.statistics().prefix_cache.entries == 3
    body_of(engine, "judge").get_input_embeddings().register_forward_hook(
        lambda module, args, output: output * (np.nan if output.dtype == torch.bfloat16 else 1)
    )
    retried = score(engine, QUERIES, ITEMS)
    assert engine.statistics().float32_retries == len(QUERIES) * len(ITEMS)
    engine.close()
    exact = loaded(folder)
    expected = score(exact, QUERIES, ITEMS)
    exact.close()
    assert np.abs(coarse - expected).max() > 1e-3  # bfloat16 shows
    np.testing.assert_allclose(retried, expected, rtol=0, atol=5e-2)  # its weights are bfloat16's still
    assert np.isfinite(retried).all()


def test_the_least_recently_used_goes_first() -> None:
    def entry(tokens: int) -> KeptPrefix:
        return KeptPrefix(tokens, {0: (torch.zeros(1, tokens, 4), torch.zeros(1, tokens, 4))})  # 32 bytes a token

    cache = PrefixCache(32 * 10)
    one, two, three = (PrefixKey("m", 1, "", bytes([i])) for i in range(3))
    cache.put(one, entry(4))
    cache.put(two, entry(4))
    assert cache.get(one) is not None
    cache.put(three, entry(5))
    assert cache.get(two) is None and cache.get(one) is not None and cache.get(three) is not None
    cache.put(two, entry(11))
    assert cache.get(two) is None
    cache.put(one, entry(5))
    statistics = cache.statistics()
    assert (statistics.bytes, statistics.entries, statistics.evictions) == (320, 2, 1)
    cache.clear("other")
    assert cache.statistics().entries == 2
    cache.clear("m")
    assert cache.statistics().bytes == 0


@pytest.fixture(scope="module")
def long_folder(tiny_folders: dict[str, Path], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The tiny Qwen3 with more positions."""
    folder = tmp_path_factory.mktemp("long")
    model = AutoModelForCausalLM.from_pretrained(tiny_folders["qwen3"])
    model.config.max_position_embeddings = 4096
    model.save_pretrained(folder)
    AutoTokenizer.from_pretrained(tiny_folders["qwen3"]).save_pretrained(folder)
    return folder


@pytest.mark.parametrize("kept_bytes", [2**28, 0])
def test_a_long_prompt_runs_in_parts(long_folder: Path, kept_bytes: int) -> None:
    """Each part in a micro-batch of its own where the budget says so, and short ones of others between them."""
    engine = loaded(long_folder, prefix_cache_bytes=kept_bytes, max_batch_tokens=600)
    rows = record_rows(engine, "judge")
    item = " ".join(CORPUS[:5] * 10)
    output = score(engine, QUERIES[:1], (item, ITEMS[0]))
    folder = long_folder
    tokenizer = AutoTokenizer.from_pretrained(folder)
    model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32, attn_implementation="eager").eval()
    for each, logprobs in zip((item, ITEMS[0]), output, strict=True):
        ids = tokenizer(filled(TEMPLATE, QUERIES[0], each), add_special_tokens=False, return_tensors="pt")["input_ids"]
        with torch.inference_mode():
            expected = model(ids).logits[0, -1].float().log_softmax(dim=-1)
        np.testing.assert_allclose(logprobs[:2], expected[[5, 77]].numpy(), rtol=0, atol=2e-5)
        if each is item:
            assert ids.shape[1] > 2 * PART_TOKENS
    assert len(rows) > ids.shape[1] // PART_TOKENS and max(map(len, rows)) <= 600
    rows.clear()
    waiting = engine.submit(ScoringRequest("judge", QUERIES[:1], (item[::-1],), priority=Priority.BATCH))
    score(engine, QUERIES[:1], ITEMS[:1])
    assert not waiting.done()
    waiting.result(60)
    engine.close()


def test_chains_cover_their_prompts() -> None:
    """Whatever is shared: the links and the rest, one after the other, are the prompt; parts are bounded."""
    generator = torch.Generator().manual_seed(3)
    trunk = torch.randint(0, 9, (1300,), generator=generator).tolist()
    for shared in (0, 3, 40, 700, 1300):
        for lengths in ((1,), (5, 5, 30), (600, 1200, 2), (513,)):
            tails = [torch.randint(0, 9, (n,), generator=generator).tolist() for n in lengths]
            prompts = [Prompt([*trunk[:shared], *tail], 0, 0, 0, (20, shared)) for tail in tails]
            for key_of in (None, lambda ids: PrefixKey("m", 1, "", bytes(ids[:4]))):
                chained = chain_prompts(prompts, key_of)
                seen = set()
                for prompt, each in zip(prompts, chained, strict=True):
                    links = each.prefix.chain() if each.prefix else []
                    assert [t for link in links for t in link.token_ids] + each.rest == prompt.token_ids
                    assert each.rest and all(link.token_ids for link in links)
                    if key_of:
                        assert max(len(part) for part in (each.rest, *(x.token_ids for x in links))) <= PART_TOKENS
                    for link in each.fills:
                        assert link.parent is None or link.parent in seen or link.parent.key
                        seen.add(link)

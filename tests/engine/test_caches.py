"""Tiers of the embedding cache: what each keeps, what survives a restart, what damage on the disk does."""

from __future__ import annotations

import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file

from tests.engine.inside import record_rows
from tests.engine.tiny import CORPUS
from workers.engine import (
    EncodingRequest,
    Engine,
    EngineConfig,
    EngineError,
    ModelKind,
    ModelSpec,
    PoolingRequest,
    PoolingTask,
    ScoringOptions,
    ScoringRequest,
    TextRole,
    Truncation,
)
from workers.engine.caches.cached_encoding import CachedEncoding, CacheKey, content_digest
from workers.engine.caches.compression import compressed, token_vectors
from workers.engine.caches.disk_tier import DiskTier
from workers.engine.caches.embedding_cache import EmbeddingCache, MemoryTier
from workers.engine.caches.segment_files import SegmentFiles
from workers.engine.pooling import scattered_maxsim
from workers.engine.pooling.encoding import Encoding, Part, SparseVector
from workers.engine.pooling.maxsim import maxsim
from workers.engine.role import Role

CPU = torch.device("cpu")
WORDS = " ".join(CORPUS[:5]).split()
DOCUMENTS = tuple(" ".join(WORDS[i : i + 1 + 5 * i % 23]) for i in range(30))


def key(text: str, *, identity: str = "weights", device: str = "cpu", limit: int = 512) -> CacheKey:
    return CacheKey(identity, device, Role.DOCUMENT, frozenset({Part.TOKENS}), limit, content_digest(text, ""))


def entry(text: str, tokens: int = 3) -> CachedEncoding:
    generator = torch.Generator().manual_seed(len(text) + tokens)
    return CachedEncoding(Encoding(tokens=torch.randn(tokens, 8, generator=generator)), tokens, 0)  # 32 bytes a token


def same(found: CachedEncoding | None, expected: CachedEncoding) -> bool:
    assert found is not None and found.encoding.tokens is not None and expected.encoding.tokens is not None
    return torch.equal(found.encoding.tokens, expected.encoding.tokens) and found.tokens == expected.tokens


# --- Files -----------------------------------------------------------------------------------------------------------


def name(number: int) -> bytes:
    return number.to_bytes(16, "little")


def content(number: int, size: int = 100) -> bytes:
    return bytes((number + i) % 251 for i in range(size))


@pytest.fixture
def files(tmp_path: Path) -> Iterator[SegmentFiles]:
    made = SegmentFiles(tmp_path, 8000)  # segments of 1000 bytes: seven records of 136
    yield made
    made.close()


def segments(folder: Path) -> list[Path]:
    return sorted(folder.glob("0/*.segment"))


def test_what_was_written_is_read_after_a_restart(files: SegmentFiles, tmp_path: Path) -> None:
    for number in range(20):
        files.put(name(number), content(number))
    files.put(name(3), b"a second content under the same key is not written")
    assert len(segments(tmp_path)) == 3
    files.close()
    again = SegmentFiles(tmp_path, 8000)
    assert [again.get(name(number)) for number in range(20)] == [content(number) for number in range(20)]
    assert again.get(name(99)) is None
    found = again.statistics()
    assert (found.entries, found.hits, found.misses, found.failures) == (20, 20, 1, 0)
    assert found.bytes == sum(path.stat().st_size for path in segments(tmp_path))
    again.put(name(50), content(50))
    assert again.get(name(50)) == content(50)
    again.close()


def test_the_least_recently_read_segment_goes_first_and_whole(files: SegmentFiles, tmp_path: Path) -> None:
    for number in range(49):  # seven full segments
        files.put(name(number), content(number))
    first = segments(tmp_path)[0]
    assert files.get(name(0)) == content(0)  # now the second one is the oldest in use
    for number in range(49, 63):
        files.put(name(number), content(number))
    assert first.exists() and files.get(name(1)) == content(1)
    assert [files.get(name(number)) for number in range(7, 14)] == [None] * 7
    statistics = files.statistics()
    assert statistics.evictions >= 7 and statistics.bytes <= 8000
    assert sum(path.stat().st_size for path in segments(tmp_path)) == statistics.bytes


def test_a_smaller_budget_at_the_next_start_is_kept(files: SegmentFiles, tmp_path: Path) -> None:
    for number in range(40):
        files.put(name(number), content(number))
    files.close()
    smaller = SegmentFiles(tmp_path, 2000)
    assert smaller.statistics().bytes <= 2000 and smaller.get(name(39)) == content(39)
    smaller.put(name(99), content(99, 3000))  # more than the whole budget
    assert smaller.get(name(99)) is None
    smaller.close()


@pytest.mark.parametrize("restart", [False, True])
def test_any_flipped_byte_is_a_miss_or_nothing(tmp_path: Path, restart: bool) -> None:
    """Every byte of a segment in turn, read by the process that wrote it and by the next one."""
    files = SegmentFiles(tmp_path / "whole", 8000)
    for number in range(3):
        files.put(name(number), content(number, 40))
    path = segments(tmp_path / "whole")[0]
    whole, wrong = path.read_bytes(), 0
    files.close()
    for place in range(len(whole)):
        folder = tmp_path / "damaged"
        shutil.copytree(tmp_path / "whole", folder)
        damaged = bytearray(whole)
        damaged[place] ^= 0x40
        if restart:
            segments(folder)[0].write_bytes(damaged)
        reader = SegmentFiles(folder, 8000)
        if not restart:
            segments(folder)[0].write_bytes(damaged)  # in place: the reader has the same file open
        found = [reader.get(name(number)) for number in range(3)]
        assert all(got is None or got == content(number, 40) for number, got in enumerate(found))
        wrong += None in found
        assert reader.statistics().failures == (None in found)
        reader.put(name(7), content(7))
        assert reader.get(name(7)) == content(7)
        reader.close()
        shutil.rmtree(folder)
    assert wrong == len(whole) if restart else wrong == 3 * 40  # headers are read once, at the start


@pytest.mark.parametrize("restart", [False, True])
def test_a_torn_write_costs_what_it_tore(tmp_path: Path, restart: bool) -> None:
    files = SegmentFiles(tmp_path, 8000)
    for number in range(5):
        files.put(name(number), content(number))
    path = segments(tmp_path)[0]
    if restart:
        files.close()
    with path.open("r+b") as file:
        file.truncate(4 * 136 + 50)
    reader = SegmentFiles(tmp_path, 8000) if restart else files
    assert [reader.get(name(number)) for number in range(5)] == [*(content(number) for number in range(4)), None]
    with path.open("r+b") as file:
        file.truncate(0)
    assert [reader.get(name(number)) for number in range(5)] == [None] * 5
    reader.close()


def test_a_missing_or_foreign_file_is_no_entry(files: SegmentFiles, tmp_path: Path) -> None:
    for number in range(14):
        files.put(name(number), content(number))
    files.close()
    segments(tmp_path)[0].unlink()
    (tmp_path / "0" / "notes.segment").write_text("not a number")
    (tmp_path / "0" / "00000077.segment").write_text("not a segment")
    again = SegmentFiles(tmp_path, 8000)
    assert [again.get(name(number)) for number in range(14)] == [None] * 7 + [content(n) for n in range(7, 14)]
    again.close()


def test_a_full_disk_loses_entries_and_nothing_else(tmp_path: Path) -> None:
    """A limit on the size of a file stands for the end of the disk, in a process of its own."""
    code = (
        "import resource, signal, sys; from pathlib import Path\n"
        "from workers.engine.caches.segment_files import SegmentFiles\n"
        "signal.signal(signal.SIGXFSZ, signal.SIG_IGN)\n"
        "files = SegmentFiles(Path(sys.argv[1]), 80_000)\n"
        "files.put(bytes(16), b'x' * 900)\n"
        "_, hard = resource.getrlimit(resource.RLIMIT_FSIZE)\n"
        "resource.setrlimit(resource.RLIMIT_FSIZE, (1000, hard))\n"
        "files.put(bytes(15) + b'1', b'y' * 900)\n"
        "assert files.get(bytes(15) + b'1') is None and files.get(bytes(16)) == b'x' * 900\n"
        "resource.setrlimit(resource.RLIMIT_FSIZE, (hard, hard))\n"
        "files.put(bytes(15) + b'1', b'y' * 900)\n"
        "assert files.get(bytes(15) + b'1') == b'y' * 900 and files.statistics().failures == 1\n"
    )
    root = Path(__file__).parents[2]
    ended = subprocess.run([sys.executable, "-c", code, tmp_path], cwd=root, check=False, capture_output=True)
    assert ended.returncode == 0, ended.stderr.decode()
    again = SegmentFiles(tmp_path, 80_000)
    assert again.get(bytes(16)) == b"x" * 900 and again.get(bytes(15) + b"1") == b"y" * 900
    again.close()


def test_two_owners_never_share_a_folder_and_the_first_finds_its_own_again(tmp_path: Path) -> None:
    one, two = SegmentFiles(tmp_path, 8000), SegmentFiles(tmp_path, 8000)
    one.put(name(1), content(1))
    two.put(name(2), content(2))
    assert one.get(name(2)) is None and two.get(name(1)) is None
    one.close()
    again = SegmentFiles(tmp_path, 8000)
    assert again.get(name(1)) == content(1)
    again.close()
    two.close()


# --- Tiers -----------------------------------------------------------------------------------------------------------


def test_an_entry_comes_back_from_the_disk_as_it_was(tmp_path: Path) -> None:
    disk = DiskTier(tmp_path, 10**6)
    whole = CachedEncoding(
        Encoding(
            dense=torch.randn(8, dtype=torch.bfloat16),
            tokens=torch.randint(-127, 128, (4, 8), dtype=torch.int8),
            token_scales=torch.rand(4),
            sparse=SparseVector(torch.tensor([3, 9]), torch.tensor([0.5, 1.5])),
            classes=torch.randn(3),
            kept_token_ids=np.array([5, 6, 7, 8], dtype=np.int32),
        ),
        tokens=6,
        truncated=2,
    )
    disk.put(key("a"), whole)
    disk.flush()
    found = disk.get(key("a"))
    assert found is not None and (found.tokens, found.truncated, found.bytes) == (6, 2, whole.bytes)
    for part in ("dense", "tokens", "token_scales", "classes", "sparse"):
        for left, right in zip(getattr(found.encoding, part), getattr(whole.encoding, part), strict=True):
            assert torch.equal(left, right) and left.dtype == right.dtype
    assert found.encoding.kept_token_ids is not None and found.encoding.kept_token_ids.tolist() == [5, 6, 7, 8]
    assert found.encoding.token_classes is None
    disk.close()


def test_the_disk_is_asked_by_content_alone(tmp_path: Path) -> None:
    disk = DiskTier(tmp_path, 10**6)
    disk.put(key("a"), entry("a"))
    disk.flush()
    assert same(disk.get(key("a", device="cuda:1")), entry("a"))
    for other in (key("b"), key("a", identity="other weights"), key("a", limit=256)):
        assert disk.get(other) is None
    disk.close()


def test_what_memory_lets_go_is_still_on_the_disk_and_comes_up_again(tmp_path: Path) -> None:
    disk = DiskTier(tmp_path, 10**6)
    cache = EmbeddingCache(200, on_disk=disk)  # two entries of 96 bytes
    for text in "abcd":
        cache.put(key(text), entry(text))
    disk.flush()
    assert cache.statistics().entries == 2
    assert same(cache.get(key("a")), entry("a")) and disk.statistics().hits == 1
    assert same(cache.get(key("a")), entry("a")) and (disk.statistics().hits, cache.statistics().hits) == (1, 1)
    cache.clear(key("a").owner)
    assert cache.statistics().entries == 0 and same(cache.get(key("b")), entry("b"))
    cache.close()


def test_the_device_has_its_own_budget_and_takes_up_what_is_used() -> None:
    on_device = MemoryTier(200)
    cache = EmbeddingCache(10_000, on_device=on_device)
    for text in "abc":
        cache.put(key(text), entry(text), CPU)
    assert (on_device.statistics().entries, cache.statistics().entries) == (2, 3)
    assert same(cache.get(key("c"), CPU), entry("c")) and cache.statistics().hits == 0
    assert same(cache.get(key("a"), CPU), entry("a")) and cache.statistics().hits == 1
    assert same(cache.get(key("a"), CPU), entry("a")) and cache.statistics().hits == 1
    assert cache.device_statistics().evictions == 2 and cache.device_statistics().bytes == 192
    assert same(cache.get(key("a")), entry("a")) and cache.statistics().hits == 2  # a model without a device memory
    cache.clear(key("a").owner)
    assert (on_device.statistics().bytes, cache.statistics().bytes) == (0, 0)


def test_compression_is_as_exact_as_it_can_be() -> None:
    vectors = torch.nn.functional.normalize(torch.randn(50, 96, generator=torch.Generator().manual_seed(1)), dim=-1)
    vectors[7] = 0
    whole = Encoding(tokens=vectors)
    assert compressed(whole, "model") is whole
    half, eighth = compressed(whole, "float16"), compressed(whole, "int8")
    assert half.bytes == whole.bytes // 2 and eighth.bytes == 50 * 96 + 50 * 4
    step = vectors.abs().amax(dim=1, keepdim=True) / 127
    assert ((token_vectors(eighth) - vectors).abs() <= 0.501 * step).all()
    torch.testing.assert_close(token_vectors(half).float(), vectors, rtol=2**-11, atol=1e-7)
    vectors[3, 5] = torch.nan
    assert torch.isnan(token_vectors(compressed(whole, "int8"))[3]).all()


@pytest.mark.parametrize("dtype", ["model", "float16", "int8"])
@pytest.mark.parametrize("buffer", [1, 700, 10**6])
def test_maxsim_over_scattered_documents(dtype: str, buffer: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """By blocks of one document, of some, of all: as if they lay end to end; empty ones, NaN and all."""
    monkeypatch.setattr(scattered_maxsim, "_BUFFER_BYTES", buffer)
    generator = torch.Generator().manual_seed(3)
    query_lengths, lengths = [3, 0, 7], [5, 1, 0, 80, 2, 7]
    queries = torch.randn(10, 16, generator=generator)
    documents = [compressed(Encoding(tokens=torch.randn(n, 16, generator=generator)), dtype) for n in lengths]
    vectors = [token_vectors(document).float() for document in documents]
    vectors[4][0, 0] = torch.nan
    documents[4] = compressed(Encoding(tokens=vectors[4]), dtype)
    scattered = scattered_maxsim.ScatteredMaxSim()
    scattered(queries.flip(0), query_lengths, documents * 2)  # what a larger call left behind is not seen
    found = scattered(queries, query_lengths, documents)
    expected = maxsim(queries, query_lengths, torch.cat(vectors), lengths)
    torch.testing.assert_close(found, expected, rtol=0, atol=1e-5, equal_nan=True)
    assert torch.isnan(found).tolist() == [
        [False, False, True, False, True, False],
        [True] * 6,
        [*torch.isnan(found[0])],
    ]


# --- Through the engine ----------------------------------------------------------------------------------------------


def engine_over(folder: Path, kind: ModelKind = ModelKind.LATE_INTERACTION, **config: object) -> Engine:
    engine = Engine(EngineConfig(threads=1, max_batch_tokens=256, **config))  # type: ignore[arg-type]
    engine.load(ModelSpec("m", folder, kind))
    return engine


@pytest.mark.parametrize("kind", [ModelKind.BI_ENCODER, ModelKind.LATE_INTERACTION])
def test_a_restart_finds_its_documents_on_the_disk(
    tiny_folders: dict[str, Path], tmp_path: Path, kind: ModelKind
) -> None:
    request = ScoringRequest("m", ("the river rose",), (*DOCUMENTS, " "))
    cold = None
    for _ in range(2):
        engine = engine_over(tiny_folders["bert"], kind, cache_folder=tmp_path)
        output = engine.submit(request).result(60)
        statistics = engine.statistics()
        engine.close()
        if cold is None:
            cold = output
            assert output.cached_documents == 0
        else:
            assert output.cached_documents == len(DOCUMENTS) == statistics.disk_cache.hits
            assert statistics.tokens < 10  # the query's
            np.testing.assert_allclose(output.scores, cold.scores, rtol=0, atol=1e-6)
        assert statistics.disk_cache.failures == 0


def test_other_weights_or_settings_never_see_old_vectors(tiny_folders: dict[str, Path], tmp_path: Path) -> None:
    folder = Path(shutil.copytree(tiny_folders["bert"], tmp_path / "model"))
    engine = engine_over(folder, cache_folder=tmp_path / "cache")
    request = ScoringRequest("m", ("the river rose",), DOCUMENTS)
    before = engine.submit(request).result(60)
    weights = load_file(folder / "model.safetensors")
    changed = {name: w + 0.05 * torch.randn_like(w) for name, w in weights.items()}
    save_file(changed, folder / "model.safetensors", {"format": "pt"})
    engine.load(ModelSpec("m", folder, ModelKind.LATE_INTERACTION))
    after = engine.submit(request).result(60)
    assert after.cached_documents == 0 and not np.allclose(after.scores, before.scores)
    for spec in (
        ModelSpec("m", folder, ModelKind.LATE_INTERACTION, dtype="bfloat16"),
        ModelSpec("m", folder, ModelKind.LATE_INTERACTION, max_length=8),
        ModelSpec("m", folder, ModelKind.BI_ENCODER),
    ):
        engine.load(spec)
        assert engine.submit(request).result(60).cached_documents == 0
    engine.load(ModelSpec("under another name", folder, ModelKind.LATE_INTERACTION))
    again = engine.submit(ScoringRequest("under another name", ("the river rose",), DOCUMENTS)).result(60)
    assert again.cached_documents == len(DOCUMENTS)
    np.testing.assert_allclose(again.scores, after.scores, rtol=0, atol=1e-6)
    engine.close()


def test_a_damaged_cache_file_changes_no_score(tiny_folders: dict[str, Path], tmp_path: Path) -> None:
    request = ScoringRequest("m", ("the river rose",), DOCUMENTS)
    engine = engine_over(tiny_folders["bert"], cache_folder=tmp_path)
    expected = engine.submit(request).result(60).scores
    engine.close()
    path = segments(tmp_path)[0]
    damaged = bytearray(path.read_bytes())
    for place in range(200, len(damaged), 5000):
        damaged[place] ^= 1
    path.write_bytes(damaged)
    engine = engine_over(tiny_folders["bert"], cache_folder=tmp_path)
    output = engine.submit(request).result(60)
    assert 0 < output.cached_documents < len(DOCUMENTS) and engine.statistics().disk_cache.failures > 0
    np.testing.assert_allclose(output.scores, expected, rtol=0, atol=1e-6)
    engine.close()


@pytest.mark.parametrize(("dtype", "tolerance"), [("float16", 2e-3), ("int8", 5e-2)])
def test_compressed_documents_score_alike_cold_and_warm(
    tiny_folders: dict[str, Path], dtype: str, tolerance: float
) -> None:
    request = ScoringRequest("m", ("the river rose", "bees"), DOCUMENTS)
    plain = engine_over(tiny_folders["bert"])
    exact, size = plain.submit(request).result(60).scores, plain.statistics().document_cache.bytes
    plain.close()
    engine = engine_over(tiny_folders["bert"], cache_dtype=dtype)
    cold, warm = engine.submit(request).result(60), engine.submit(request).result(60)
    assert warm.cached_documents == len(DOCUMENTS)
    np.testing.assert_array_equal(warm.scores, cold.scores)
    difference = np.abs(cold.scores - exact).max()
    assert 0 < difference < tolerance
    assert engine.statistics().document_cache.bytes < {"float16": 0.6, "int8": 0.5}[dtype] * size
    vectors = engine.submit_pooling(PoolingRequest("m", DOCUMENTS[:1], PoolingTask.TOKEN_EMBED)).result(60).data[0]
    assert vectors.token_vectors is not None and np.abs(np.linalg.norm(vectors.token_vectors, axis=1) - 1).max() < 0.02
    engine.close()


def test_a_cache_dtype_or_folder_that_cannot_be(tmp_path: Path) -> None:
    with pytest.raises(EngineError, match="int4"):
        Engine(EngineConfig(cache_dtype="int4"))
    (tmp_path / "file").write_text("")
    with pytest.raises(EngineError, match="another folder") as caught:
        Engine(EngineConfig(cache_folder=tmp_path / "file"))
    assert caught.value.code == "cache_folder_unusable"


@pytest.mark.parametrize("name", ["bi", "late"])
def test_documents_encoded_ahead_leave_the_query_only(tiny_engine: Engine, name: str) -> None:
    expected = tiny_engine.submit(ScoringRequest(name, ("rain",), DOCUMENTS)).result(60).scores
    tiny_engine.load(tiny_engine._models[name].spec)
    texts = (*DOCUMENTS, DOCUMENTS[0], " ", "\u200b")
    done = tiny_engine.pre_encode(EncodingRequest(name, texts)).result(60)
    assert (done.encoded, done.cached, done.empty) == (len(DOCUMENTS), 0, 2) and done.prompt_tokens > 0
    rows = record_rows(tiny_engine, name)
    tokens = tiny_engine.statistics().tokens
    output = tiny_engine.submit(ScoringRequest(name, ("rain",), DOCUMENTS)).result(60)
    assert len(rows) == 1 and tiny_engine.statistics().tokens - tokens == len(rows[0]) < 6
    assert output.cached_documents == len(DOCUMENTS)
    np.testing.assert_allclose(output.scores, expected, rtol=0, atol=1e-5)
    again = tiny_engine.pre_encode(EncodingRequest(name, texts)).result(60)
    assert (again.encoded, again.cached, again.empty) == (0, len(DOCUMENTS), 2)
    assert tiny_engine.statistics().reservations == 0


def test_what_is_removed_from_the_disk_gives_its_bytes_back_and_leaves_the_rest(
    files: SegmentFiles, tmp_path: Path
) -> None:
    names = [f"{i:016}".encode() for i in range(20)]
    for name in names:
        files.put(name, name * 6)
    before = files.statistics().bytes
    files.remove(names[3:12])
    assert files.statistics().bytes == before * 11 // 20 == sum(p.stat().st_size for p in tmp_path.glob("*/*.segment"))
    assert [files.get(name) for name in names] == [None if 3 <= i < 12 else n * 6 for i, n in enumerate(names)]
    files.close()
    again = SegmentFiles(tmp_path, 8000)  # what was removed does not come back with a restart
    assert [again.get(name) is None for name in names] == [3 <= i < 12 for i in range(20)]
    again.close()


def test_encodings_are_let_go_in_every_tier_by_the_key_that_encoding_told(
    tiny_folders: dict[str, Path], tmp_path: Path
) -> None:
    engine = Engine(EngineConfig(threads=1, cache_folder=tmp_path))
    engine.load(ModelSpec("late", tiny_folders["bert"], ModelKind.LATE_INTERACTION))
    done = engine.pre_encode(EncodingRequest("late", DOCUMENTS, pack_as="set")).result(60)
    engine.encodings.settle()
    statistics = engine.statistics()
    assert done.bytes == statistics.document_cache.bytes > 0
    engine.encodings.forget(done.key, DOCUMENTS[:10], packed="set")
    engine.encodings.settle()
    statistics = engine.statistics()
    kept = len(set(DOCUMENTS) - set(DOCUMENTS[:10]))
    assert (statistics.document_cache.entries, statistics.disk_cache.entries) == (kept, kept)
    again = engine.pre_encode(EncodingRequest("late", DOCUMENTS)).result(60)
    assert (again.encoded, again.cached) == (len(set(DOCUMENTS)) - kept, kept)
    engine.close()


def test_encoding_ahead_refuses_what_scoring_would(tiny_engine: Engine) -> None:
    with pytest.raises(EngineError, match="together with its query") as caught:
        tiny_engine.pre_encode(EncodingRequest("judge", ("river",))).result(60)
    assert caught.value.code == "unsupported_task"
    options = ScoringOptions(max_tokens_per_document=3, truncation=Truncation.ERROR)
    with pytest.raises(EngineError, match=r"documents\[0\] by"):
        tiny_engine.pre_encode(EncodingRequest("late", ("river " * 9,), options=options)).result(60)
    cut = ScoringOptions(max_tokens_per_document=3)
    assert tiny_engine.pre_encode(EncodingRequest("late", DOCUMENTS, options=cut)).result(60).encoded > 0
    assert tiny_engine.submit(ScoringRequest("late", ("a",), DOCUMENTS[:9])).result(60).cached_documents == 0
    output = tiny_engine.submit(ScoringRequest("late", ("a",), DOCUMENTS[:9], options=cut)).result(60)
    assert output.cached_documents == 9


@pytest.mark.parametrize("kind", [ModelKind.BI_ENCODER, ModelKind.LATE_INTERACTION])
def test_models_of_one_encoder_share_what_they_encode(
    tiny_folders: dict[str, Path], tmp_path: Path, kind: ModelKind
) -> None:
    engine = Engine(EngineConfig(threads=1))
    copy = Path(shutil.copytree(tiny_folders["bert"], tmp_path / "copy"))
    other = Path(shutil.copytree(tiny_folders["bert"], tmp_path / "other"))
    weights = load_file(other / "model.safetensors")
    scaled = {name: tensor * 1.01 if tensor.is_floating_point() else tensor for name, tensor in weights.items()}
    save_file(scaled, other / "model.safetensors", metadata={"format": "pt"})
    for name, folder in (("first", tiny_folders["bert"]), ("second", copy), ("other", other)):
        engine.load(ModelSpec(name, folder, kind))

    def ask(name: str) -> tuple[int, list[float]]:
        output = engine.submit(ScoringRequest(name, ("the river rose",), DOCUMENTS)).result(60)
        return output.cached_documents, output.scores.tolist()

    _, scores = ask("first")
    assert ask("second") == (len(DOCUMENTS), scores)
    assert ask("other")[0] == 0
    engine.unload("first")
    assert ask("second") == (len(DOCUMENTS), scores), "whoever goes takes nothing from whoever stays"
    engine.load(ModelSpec("second", copy, kind))
    assert ask("second")[0] == 0, "a reload begins anew"
    engine.unload("second")
    engine.unload("other")
    assert engine.statistics().document_cache.bytes == 0
    engine.close()


def test_roles_do_not_share_entries(tiny_engine: Engine) -> None:
    tiny_engine.pre_encode(EncodingRequest("late", ("river",))).result(60)
    tokens = tiny_engine.statistics().tokens
    request = PoolingRequest("late", ("river",), PoolingTask.TOKEN_EMBED, role=TextRole.QUERY)
    tiny_engine.submit_pooling(request).result(60)
    assert tiny_engine.statistics().tokens > tokens

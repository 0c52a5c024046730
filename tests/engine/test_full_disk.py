"""A disk that takes nothing more costs entries, never a score, and it comes back when there is room again."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from tests.disk import no_file_grows_beyond
from workers.engine import Engine, EngineConfig, ModelKind, ModelSpec, ScoringRequest
from workers.engine.role import Role

TEXTS = tuple(f"document number {i} about rain" for i in range(400))


def test_a_full_disk_costs_entries_and_nothing_else(tiny_folders: dict[str, Path], tmp_path: Path) -> None:
    engine = Engine(EngineConfig(threads=1, cache_folder=tmp_path))
    engine.load(ModelSpec("m", tiny_folders["bert"], ModelKind.LATE_INTERACTION))

    def score(documents: tuple[str, ...]) -> list[float]:
        output = engine.submit(ScoringRequest("m", ("rain",), documents)).result(120)
        disk = engine._caches[Role.DOCUMENT]._disk
        assert disk is not None
        disk.flush()
        assert not output.errors
        return list(output.raw_scores)

    first = score(TEXTS[:50])
    written = engine.statistics().disk_cache
    assert (written.entries, written.failures) == (50, 0)
    files = len(list(Path("/proc/self/fd").iterdir()))
    with no_file_grows_beyond(written.bytes + 100):
        full = score(TEXTS[50:250])
    refused = engine.statistics().disk_cache
    assert refused.failures > 100 and refused.entries + refused.failures == 250
    assert len(list(Path("/proc/self/fd").iterdir())) <= files + 1
    score(TEXTS[250:])
    assert engine.statistics().disk_cache.entries == refused.entries + 150
    engine.close()
    engine = Engine(EngineConfig(threads=1, cache_folder=tmp_path))
    engine.load(ModelSpec("m", tiny_folders["bert"], ModelKind.LATE_INTERACTION))
    assert engine.statistics().disk_cache.entries == refused.entries + 150  # and no file was found damaged
    assert engine.statistics().disk_cache.failures == 0
    np.testing.assert_array_equal(score(TEXTS[:250]), [*first, *full])
    engine.close()

"""Errands of people: looking into a checkpoint, measuring a model. In a thread of their own, one after the other, so
that neither a download nor a benchmark keeps the host from its placements."""

from __future__ import annotations

import logging
import random
import statistics
import time
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from scoring.models import Errand, ErrandKind, ScoringModel, Worker
from scoring.services.errands import HUB, errand_claim, errand_fail, errand_finish, errand_progress
from scoring.states import HELD_STATES
from workers.engine.errors import EngineError
from workers.engine.model_types import ModelKind, ModelSpec
from workers.engine.types import Priority, ScoringRequest
from workers.hub import HubError, hub_download
from workers.loop import Loop
from workers.sources import PACKAGE, SourceError, source_folder

if TYPE_CHECKING:  # importing it brings torch in
    from workers.engine import Engine
    from workers.host import Host

logger = logging.getLogger(__name__)

LOOK_SECONDS: Final = 10.0  # wake-ups may get lost
ROUND_SECONDS: Final = 120.0
WORDS: Final = (  # noqa: SIM905 - thirty quoted words would be harder to read
    "river stone lamp orchard copper winter bridge needle harvest signal meadow anchor velvet thunder pocket ladder "
    "garden silver window marble forest engine pepper candle island saddle timber mirror basket valley"
).split()


class Errands:
    def __init__(self, *, engine: Engine, host: Host, worker: Worker) -> None:
        self._engine = engine
        self._host = host
        self._worker = worker
        self._loop = Loop("errands", self._step, seconds=LOOK_SECONDS)
        self.start, self.stop, self.wake = self._loop.start, self._loop.stop, self._loop.wake

    def _step(self) -> bool:
        if self._worker.state in HELD_STATES:
            return False
        errand = errand_claim(worker=self._worker)
        if errand is None:
            return False
        try:
            found = self._inspected(errand) if errand.kind == ErrandKind.INSPECTION else self._measured(errand)
        except (SourceError, HubError, EngineError) as error:
            errand_fail(errand=errand, worker=self._worker, error=str(error))
        except Exception as error:  # whatever a checkpoint makes a library raise: this errand fails, the thread goes on
            logger.exception("errand %s failed", errand.pk)
            errand_fail(errand=errand, worker=self._worker, error=f"{type(error).__name__}: {error}")
        else:
            errand_finish(errand=errand, worker=self._worker, found=found)
        return True

    def _inspected(self, errand: Errand) -> dict[str, Any]:
        from workers.engine.loading.inspection import inspect_checkpoint

        source = str(errand.given["source"])
        folder = self._downloaded(errand) if source.startswith(HUB) else source_folder(source)
        facts = inspect_checkpoint(folder)
        gguf_file = errand.given.get("gguf_file") or (facts.gguf_files[0] if len(facts.gguf_files) == 1 else "")
        found = {
            **asdict(facts),
            "source": str(folder) if source.startswith(HUB) else source,
            "gguf_file": gguf_file,
            "name": source.removeprefix(PACKAGE).partition("/")[0] if source.startswith(PACKAGE) else folder.name,
        }
        try:
            spec = ModelSpec(name="inspected", folder=folder, kind=ModelKind(facts.kind), gguf_file=gguf_file or None)
            found["estimate"] = asdict(self._engine.estimate(spec))
        except EngineError as error:  # the rest is worth knowing all the same
            found["estimate_error"] = str(error)
        return found

    def _downloaded(self, errand: Errand) -> Path:
        def progress(done: int, total: int) -> None:
            errand_progress(errand=errand, done=done, total=total)

        return hub_download(str(errand.given["source"]), progress=progress)

    def _measured(self, errand: Errand) -> dict[str, Any]:
        """Each round has new texts: what a cache already knows would be measured as speed."""
        model = errand.model
        assert model is not None  # of a benchmark
        given = errand.given
        chance = random.Random(0)
        seconds, output = [], None
        for round_number in range(given["rounds"] + 1):  # the first one warms up and does not count
            documents = tuple(_text(chance, given["words"]) for _ in range(given["documents"]))
            request = ScoringRequest(
                model=model.name, queries=(_text(chance, 8),), documents=documents, priority=Priority.BATCH
            )
            started = time.perf_counter()
            output = self._host.submit(model.pk, request, interactive=False).result(ROUND_SECONDS)
            if round_number:
                seconds.append(time.perf_counter() - started)
            errand_progress(errand=errand, done=round_number, total=given["rounds"])
        assert output is not None
        median = statistics.median(seconds)
        return {
            "documents_per_second": given["documents"] / median,
            "seconds_median": median,
            "seconds_least": min(seconds),
            "seconds_most": max(seconds),
            "prompt_tokens": output.prompt_tokens,
            "backend": output.backend,
            "fallback": output.fallback,
            "dtype": output.dtype,
            "revision": output.revision,
            "device": self._worker.device,
            "device_class": self._worker.device_class,
            "settings": _settings(model),
        }


def _settings(model: ScoringModel) -> dict[str, Any]:
    names = ("kind", "dtype", "device", "max_length", "gpu_maxsim", "generation")
    return {name: getattr(model, name) for name in names}


def _text(chance: random.Random, words: int) -> str:
    return " ".join(chance.choices(WORDS, k=words))

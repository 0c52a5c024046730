"""Every forward pass on a device is made by whoever holds its gate: micro-batches, a load's probes, self-tests."""

from __future__ import annotations

import threading
from pathlib import Path
from types import TracebackType
from typing import Any

from torch import nn
from torch.nn.modules.module import register_module_forward_pre_hook
from transformers import PreTrainedModel

from workers.engine import Engine, EngineConfig, ModelKind, ModelSpec, ScoringRequest
from workers.engine.candidate import must_pass_self_test
from workers.engine.device_gates import DeviceGates


class Watched:
    """A gate that knows who holds it."""

    def __init__(self) -> None:
        self.holder: int | None = None
        self._lock = threading.Lock()

    def __enter__(self) -> None:
        self._lock.acquire()
        self.holder = threading.get_ident()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.holder = None
        self._lock.release()


class WatchedGates(DeviceGates):
    def __init__(self) -> None:
        super().__init__()
        self.gate = Watched()

    def of(self, device: Any) -> Any:
        assert str(device) == "cpu"
        return self.gate


def test_every_forward_pass_holds_the_gate(tiny_folders: dict[str, Path]) -> None:
    gates = WatchedGates()
    engine = Engine(EngineConfig(threads=1), gates)
    passes: list[tuple[str, bool]] = []

    def note(module: nn.Module, inputs: Any) -> None:
        if isinstance(module, PreTrainedModel):
            thread = threading.current_thread()
            passes.append((thread.name, gates.gate.holder == thread.ident))

    hook = register_module_forward_pre_hook(note)
    try:
        engine.load(ModelSpec("serves", tiny_folders["bert"], ModelKind.LATE_INTERACTION, device="cpu"))
        texts = tuple(f"rain number {i}" for i in range(500))
        answer = engine.submit(ScoringRequest("serves", ("rain",), texts))
        for name, kind, dtype in (("bert", ModelKind.BI_ENCODER, "int8"), ("llama", ModelKind.GENERATIVE, "float32")):
            spec = ModelSpec(name, tiny_folders[name], kind, device="cpu", dtype=dtype, check_order=False)
            engine.load(spec, prove=must_pass_self_test)
        assert answer.result(120).raw_scores.size == 500
    finally:
        hook.remove()
        engine.close()
    assert {"MainThread", "model-runner"} <= {name for name, _ in passes}
    assert all(held for _, held in passes)


def test_one_device_has_one_gate() -> None:
    gates = DeviceGates()
    assert gates.of("cpu") is gates.of("cpu")
    assert gates.of("cuda") is gates.of("cuda:0")
    assert gates.of("cuda:1") is not gates.of("cuda:0")

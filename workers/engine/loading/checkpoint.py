"""From a folder to a model on its device: configuration, tokenizer, weights, and a refusal wherever something would be
made up."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from tokenizers import normalizers
from transformers import AutoConfig, AutoTokenizer, PreTrainedModel
from transformers import PretrainedConfig as Config
from transformers.utils import logging as transformers_logging

from workers.engine.config import EngineConfig
from workers.engine.device_gates import DeviceGates
from workers.engine.errors import EngineError
from workers.engine.families.late_settings import read_late_settings
from workers.engine.families.sentence_modules import sentence_config, transformer_folder
from workers.engine.forward.model_runner import ModelRunner
from workers.engine.forward.vocabulary import check_head
from workers.engine.loading import pickled_weights
from workers.engine.loading.architectures import is_causal, known_config, position_limit
from workers.engine.loading.gguf import as_safetensors
from workers.engine.loading.int8_linear import int8_bytes, quantise_linears
from workers.engine.loading.weights import load_weights, read_json
from workers.engine.model_types import ModelKind, ModelSpec
from workers.engine.texts.tokenizer import TextTokenizer

transformers_logging.set_verbosity_error()  # what its load report would say, we check and raise
transformers_logging.disable_progress_bar()

INT8 = "int8"
_CONTENT = (".json", ".txt", ".model", ".safetensors", ".gguf", ".jinja")
_PICKLED = ("sparse_linear.pt", "colbert_linear.pt", pickled_weights.NAME)  # a hybrid's; no other kind reads them
_SAMPLES = (
    "One short text.",
    "The quick brown fox jumps over the lazy dog.",
    "Rain fell all night and the river rose.",
    "Water boils.",
)
_LEAVE_VECTORS_ALONE = {
    "name", "folder", "device", "gpu_maxsim", "check_order", "golden_scores", "document_cache_bytes",
}  # fmt: skip
_TOKENIZER_FILES = (
    "tokenizer.json", "vocab.txt", "vocab.json", "tokenizer.model", "spiece.model", "sentencepiece.bpe.model",
)  # fmt: skip
_UNLIMITED = 10**9  # tokenizers without a limit of their own say 1e30


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """A loaded model with what belongs to it; what only one kind needs, that kind's file reads from ``folder``."""

    folder: Path
    model: PreTrainedModel  # with its head, where the kind has one
    runner: ModelRunner  # over its body
    tokenizer: TextTokenizer
    revision: str
    max_length: int
    weight_bytes: int
    token_types: bool  # tokenizer and model tell the texts of a pair apart
    causal: bool  # a token sees those before it only, so a prefix may be shared
    identity: str  # of all that decides what a text becomes: contents and settings; the same in every process


def load_checkpoint(spec: ModelSpec, config: EngineConfig, gates: DeviceGates | None = None) -> Checkpoint:
    """Read, check and place one model; raises ``EngineError`` that says what the folder lacks. Its forward passes go
    through ``gates``, where others run on the same devices."""
    if not spec.folder.is_dir():
        raise EngineError(
            "checkpoint_not_found",
            f"{spec.folder} is not a folder. Give the folder that holds config.json and the weights.",
        )
    revision = content_revision(spec.folder, spec.gguf_file)
    folder = as_safetensors(spec.folder, spec.gguf_file, config.conversion_folder) if spec.gguf_file else spec.folder
    if spec.kind is ModelKind.HYBRID:
        folder = pickled_weights.as_safetensors_folder(folder, revision, config.conversion_folder)
    body_folder = transformer_folder(folder)
    if not (body_folder / "config.json").is_file():
        raise EngineError("checkpoint_incomplete", f"{body_folder} has no config.json. Give the folder of one model.")
    if not any(body_folder.glob("*.safetensors")):
        raise EngineError(
            "checkpoint_incomplete",
            f"{body_folder} has no *.safetensors file. Other weight formats are not read; convert it, or name a GGUF "
            "file.",
        )
    late = read_late_settings(folder) if spec.kind is ModelKind.LATE_INTERACTION else None
    wanted_length = spec.max_length or (late.document_length if late else None)
    device = device_for(spec, config)
    dtype = resolve_dtype(spec.dtype, device)
    try:
        own = known_config(AutoConfig.from_pretrained(body_folder, local_files_only=True, trust_remote_code=False))
        tokenizer = read_tokenizer(body_folder)
        model = load_weights(body_folder, own, spec.kind, dtype)
    except (OSError, ValueError, KeyError, SafetensorError) as error:
        raise EngineError("checkpoint_unreadable", f"{folder} could not be loaded as {spec.kind}: {error}") from error
    model.eval().requires_grad_(False).to(device)
    samples = [sample.ids for sample in tokenizer.encode_surrounded(_SAMPLES, 16)]
    body: Any = model.base_model
    runner = ModelRunner(body, device)
    causal = is_causal(model)
    with (gates or DeviceGates()).of(device):
        if model.get_output_embeddings() is not None and spec.kind in (ModelKind.GENERATIVE, ModelKind.CROSS_ENCODER):
            check_head(model, torch.tensor([samples[0]], device=device))
        runner.choose_execution(samples, causal=causal)
    if spec.dtype == INT8:  # after the comparison, which int8 would blur: a linear layer cannot mix tokens
        quantise_linears(body)
    return Checkpoint(
        folder=folder,
        model=model,
        runner=runner,
        tokenizer=tokenizer,
        revision=revision,
        max_length=resolve_max_length(wanted_length, body_folder, own),
        weight_bytes=sum(p.numel() * p.element_size() for p in model.parameters()) + int8_bytes(model),
        token_types=tokenizer.gives_types and (getattr(own, "type_vocab_size", 0) or 0) > 1,
        causal=causal,
        identity=_identity(spec, revision, dtype),
    )


def _identity(spec: ModelSpec, revision: str, dtype: torch.dtype) -> str:
    """Every setting counts that is not known to leave vectors as they are."""
    settings = {f.name: getattr(spec, f.name) for f in fields(spec) if f.name not in _LEAVE_VECTORS_ALONE}
    named = f"{revision}\0{dtype}\0{sorted(settings.items())!r}"
    return hashlib.blake2b(named.encode(), digest_size=16).hexdigest()


def content_revision(folder: Path, gguf_file: str | None = None) -> str:
    """A hash over names and contents of what defines the model; where the folder lies plays no part."""
    digest = hashlib.blake2b(digest_size=16)
    for path in sorted(p for p in folder.rglob("*") if (p.suffix in _CONTENT or p.name in _PICKLED) and p.is_file()):
        if path.suffix == ".gguf" and path.name != gguf_file:
            continue
        digest.update(path.relative_to(folder).as_posix().encode() + b"\0")
        with path.open("rb") as file:
            digest.update(hashlib.file_digest(file, "blake2b").digest())
    return digest.hexdigest()


def device_for(spec: ModelSpec, config: EngineConfig) -> torch.device:
    """Where the model runs: as it says itself, else as the engine."""
    return resolve_device(spec.device if spec.device != "auto" else config.device)


def resolve_device(name: str) -> torch.device:
    if name == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    try:
        device = torch.device(name)
    except RuntimeError as error:
        raise EngineError("unknown_device", f"'{name}' is not a device. Give auto, cpu, cuda or cuda:N.") from error
    if device.type == "cuda" and not torch.cuda.is_available():
        raise EngineError(
            "no_cuda", f"The model is registered for '{name}', but this process sees no CUDA device. Give cpu or auto."
        )
    return device


def resolve_dtype(name: str, device: torch.device) -> torch.dtype:
    """``auto``: bfloat16 where the device computes it natively, else float32; what ``int8`` leaves is float32."""
    dtypes = {"float32": torch.float32, "bfloat16": torch.bfloat16, "float16": torch.float16}
    if name == "auto":
        native = device.type == "cuda" or any(
            torch.cpu.get_capabilities().get(flag, False) for flag in ("avx512_bf16", "amx_tile")
        )
        return torch.bfloat16 if native else torch.float32
    if name == INT8:
        if device.type != "cpu":
            raise EngineError(
                "unsupported_dtype", f"int8 runs on the CPU only, not on {device}. Give device cpu, or another dtype."
            )
        return torch.float32
    if name not in dtypes:
        raise EngineError("unknown_dtype", f"'{name}' is not a dtype. Give auto, {', '.join(dtypes)} or {INT8}.")
    return dtypes[name]


def resolve_max_length(wanted: int | None, folder: Path, config: Config) -> int:
    """The registration's limit, else the folder's own, never more than the model has positions for."""
    hard = position_limit(config)
    folder_limit = sentence_config(folder).get("max_seq_length")
    tokenizer_limit = read_json(folder / "tokenizer_config.json").get("model_max_length")
    own = folder_limit or (tokenizer_limit if tokenizer_limit and tokenizer_limit < _UNLIMITED else None)
    limits = [int(limit) for limit in (wanted or own, hard) if limit]
    if not limits:
        raise EngineError(
            "no_length_limit", f"Nothing in {folder} limits the length of a text. Give max_length in the registration."
        )
    return min(limits)


def read_tokenizer(folder: Path) -> TextTokenizer:
    if not any((folder / name).is_file() for name in _TOKENIZER_FILES):  # transformers would make one up
        raise EngineError(
            "checkpoint_incomplete",
            f"{folder} has no tokenizer, none of {', '.join(_TOKENIZER_FILES)}. Save the checkpoint's own beside it.",
        )
    tokenizer = AutoTokenizer.from_pretrained(folder, local_files_only=True, trust_remote_code=False)
    if not getattr(tokenizer, "is_fast", False):
        raise EngineError(
            "unsupported_tokenizer",
            f"{folder} has no fast tokenizer (tokenizer.json). Save one with transformers first.",
        )
    backend = tokenizer.backend_tokenizer
    if sentence_config(folder).get("do_lower_case"):
        own = () if backend.normalizer is None else (backend.normalizer,)
        backend.normalizer = normalizers.Sequence([normalizers.Lowercase(), *own])
    return TextTokenizer(backend, _roles(tokenizer), gives_types="token_type_ids" in tokenizer.model_input_names)


def _roles(tokenizer: Any) -> dict[str, int]:
    named = {name: getattr(tokenizer, f"{name}_id", None) for name in ("mask_token", "eos_token", "pad_token")}
    return {name: int(token_id) for name, token_id in named.items() if token_id is not None}

"""The language of vLLM: Jina's, with vectors of tokens and classes of texts. Texts are cut at the model's length."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from workers.engine.types import PoolingTask, TextRole
from workers.remote.jina import JinaShape
from workers.remote.shape import Call, Pooled, by_index

CUT = {"truncate_prompt_tokens": -1}  # without it a text that is too long is refused


class VllmShape(JinaShape):
    def rerank(self, model: str, query: str, documents: Sequence[str]) -> Call:
        path, body = super().rerank(model, query, documents)
        del body["return_documents"]  # which it does not know
        return path, body | CUT

    def pool(self, task: PoolingTask, model: str, texts: Sequence[str], role: TextRole, *, raw: bool = False) -> Call:
        body = {"model": model, "input": list(texts), **CUT}
        match task:
            case PoolingTask.TOKEN_EMBED:
                return "/pooling", {**body, "task": task.value}
            case PoolingTask.CLASSIFY:
                return "/classify", {**body, "use_activation": not raw}
        return "/v1/embeddings", {**body, "encoding_format": "float"}

    def pooled(self, task: PoolingTask, answer: Any) -> list[Pooled]:
        name = {PoolingTask.TOKEN_EMBED: "data", PoolingTask.CLASSIFY: "probs"}.get(task, "embedding")
        return [item[name] for item in by_index(answer["data"])]

"""The language of infinity, LiteLLM and this platform: Jina's, with classes of texts as infinity has them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from workers.engine.types import PoolingTask, TextRole
from workers.remote.jina import JinaShape
from workers.remote.shape import Call, Pooled


class OpenAIShape(JinaShape):
    def pool(self, task: PoolingTask, model: str, texts: Sequence[str], role: TextRole, *, raw: bool = False) -> Call:
        if task is PoolingTask.CLASSIFY:
            return "/v1/classify", {"model": model, "input": list(texts), "raw_scores": raw}
        return super().pool(task, model, texts, role)

    def pooled(self, task: PoolingTask, answer: Any) -> list[Pooled]:
        if task is PoolingTask.CLASSIFY:
            return [{each["label"]: each["score"] for each in classes} for classes in answer["data"]]
        return super().pooled(task, answer)

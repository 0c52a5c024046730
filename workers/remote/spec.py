"""A registered model that a server elsewhere computes, as the engine's ``ModelSpec`` with where that server is."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from typing import Final

from scoring.models.scoring_model import ModelEngine
from workers.engine.model_types import ModelInfo, ModelSpec, Scale
from workers.engine.model_types import ModelKind as Kind

UNKNOWN_LENGTH: Final = 0  # only the remote engine knows


@dataclass(frozen=True, slots=True)
class RemoteSpec(ModelSpec):
    engine: ModelEngine = ModelEngine.OPENAI
    endpoint: str = ""
    remote_model: str = ""
    credential: str = ""  # name in REMOTE_CREDENTIALS

    @property
    def who(self) -> str:
        """As the beginning of a sentence."""
        return f"The {self.engine} endpoint of model '{self.name}'"

    @property
    def embeds(self) -> bool:
        return self.kind is Kind.BI_ENCODER

    @property
    def revision(self) -> str:
        """Of what was asked for; what computes it may change unseen, which the golden scores notice."""
        told = "\n".join((self.engine, self.endpoint, self.remote_model, *self.labels))
        return hashlib.sha256(told.encode()).hexdigest()[:16]

    def info(self) -> ModelInfo:
        return ModelInfo(
            name=self.name,
            kind=self.kind,
            scale=Scale.COSINE if self.embeds else Scale.RELEVANCE,
            revision=self.revision,
            generation=1,
            architecture=self.remote_model,
            execution=f"remote ({self.engine})",
            dtype="remote",
            device="remote",
            gpu_maxsim=False,
            maxsim_backend=None,
            max_length=UNKNOWN_LENGTH,
            weight_bytes=0,
            load_seconds=0.0,
        )

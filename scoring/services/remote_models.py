"""What a registered model must say that is served by an endpoint elsewhere."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from django.conf import settings

from assay.errors import AssayError
from assay.outgoing import OutgoingError, outgoing
from scoring.models import ScoringModel
from scoring.models.scoring_model import Dtype, ModelEngine, ModelKind

# By what the engine's language can ask for: a relevance per document; a vector, one per token, or classes of a text.
RERANKED: Final = (ModelKind.CROSS_ENCODER, ModelKind.BI_ENCODER)
REMOTE_KINDS: Final[Mapping[str, Sequence[ModelKind]]] = {
    ModelEngine.VLLM: (*RERANKED, ModelKind.LATE_INTERACTION, ModelKind.CLASSIFIER),
    ModelEngine.TEI: (*RERANKED, ModelKind.CLASSIFIER),
    ModelEngine.OPENAI: (*RERANKED, ModelKind.CLASSIFIER),
    ModelEngine.COHERE: RERANKED,
    ModelEngine.JINA: RERANKED,
}
REMOTE_FIELDS: Final = ("endpoint", "remote_model", "credential")
# What only weights on a worker of ours have.
LOCAL_FIELDS: Final = ("source", "gguf_file", "template", "positive_class", "weights")


def remote_check(model: ScoringModel) -> None:
    """Raises AssayError 422 ``invalid_model`` naming the field at fault."""
    if not model.is_remote:
        if not model.source:
            raise _invalid("source", "'source' is empty; give the model's folder, or a remote 'engine'")
        if given := [name for name in REMOTE_FIELDS if getattr(model, name)]:
            raise _invalid(given[0], f"'{given[0]}' belongs to a remote engine; give an 'engine', or leave it out")
        return
    if given := [name for name in LOCAL_FIELDS if getattr(model, name)]:
        raise _invalid(given[0], f"'{given[0]}' means nothing to the remote engine {model.engine}; leave it out")
    kinds = REMOTE_KINDS[model.engine]
    if model.kind not in kinds:
        able = ", ".join(kinds)
        raise _invalid("kind", f"'kind' is {model.kind}, which is not asked of {model.engine}; give one of: {able}")
    if (model.kind == ModelKind.CLASSIFIER) != bool(model.labels):
        raise _invalid(
            "labels",
            "'labels' are the names of a remote classifier's classes, in the model's order; give them for a "
            "classifier, and for no other kind",
        )
    if model.max_length is not None or model.dtype != Dtype.AUTO or model.device != "auto":
        raise _invalid("max_length", "Length, dtype and device are the remote engine's own; leave them out")
    if not model.remote_model:
        raise _invalid("remote_model", "'remote_model' is empty; give the name that the remote engine knows")
    try:
        target = outgoing(listed_only=True).check(model.endpoint)
    except OutgoingError as error:
        raise AssayError("invalid_model", str(error), status=422, param="endpoint") from error
    if "?" in target.path:
        raise _invalid("endpoint", "'endpoint' holds a query; give what stands before /v1/rerank and its like")
    if model.credential:
        host = settings.REMOTE_CREDENTIALS.get(model.credential, ("", ""))[0]
        if host != target.authority:
            known = ", ".join(sorted(settings.REMOTE_CREDENTIALS)) or "none"
            raise _invalid(
                "credential",
                f"'credential' is {model.credential!r}, which is no secret for {target.authority}; give one that the "
                f"operator set for this host in REMOTE_CREDENTIALS (there are: {known})",
            )


def _invalid(param: str, message: str) -> AssayError:
    return AssayError("invalid_model", f"{message}.", status=422, param=param)

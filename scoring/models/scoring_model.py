from __future__ import annotations

from typing import Final

from django.conf import settings
from django.core.validators import MinValueValidator
from django.db import models
from django.db.models.functions import Lower

from scoring.ids import new_id
from scoring.models.base import choice_constraint
from scoring.states import ModelState


class ModelKind(models.TextChoices):
    CROSS_ENCODER = "cross-encoder", "cross-encoder (query and document read together)"
    BI_ENCODER = "bi-encoder", "bi-encoder (cosine or dot product)"
    LATE_INTERACTION = "late-interaction", "late interaction (MaxSim)"
    SPARSE = "sparse", "sparse (dot product of word weights)"
    HYBRID = "hybrid", "hybrid (dense, sparse and late interaction together)"
    LISTWISE = "listwise", "listwise (documents read together)"
    CLASSIFIER = "classifier", "classifier (labels of a text, or of its tokens)"
    GENERATIVE = "generative", "generative (label probability)"


# Kinds whose scores, or part of them, are MaxSim.
WITH_MAXSIM: Final = (ModelKind.LATE_INTERACTION, ModelKind.HYBRID)
# Kinds whose scores are made of encodings of the query and of the document.
ENCODERS: Final = (ModelKind.BI_ENCODER, ModelKind.LATE_INTERACTION, ModelKind.SPARSE, ModelKind.HYBRID)
# Kinds that read a text by itself, so that what became of it can be kept.
WITH_ENCODINGS: Final = (*ENCODERS, ModelKind.CLASSIFIER)


class Dtype(models.TextChoices):
    AUTO = "auto"
    FLOAT32 = "float32"
    BFLOAT16 = "bfloat16"
    FLOAT16 = "float16"
    INT8 = "int8", "int8 (linear layers, on the CPU)"


class ModelEngine(models.TextChoices):
    """Who computes the scores: our workers themselves, or a server elsewhere that speaks one of these shapes."""

    LOCAL = "local", "the platform's own workers"
    VLLM = "vllm", "vLLM"
    TEI = "tei", "text-embeddings-inference"
    COHERE = "cohere", "Cohere"
    JINA = "jina", "Jina"
    OPENAI = "openai-compatible", "OpenAI-compatible (embeddings at /v1/embeddings, reranking at /v1/rerank)"


class SelfTestMode(models.TextChoices):
    FULL = "full", "full: order and numbers"
    NUMBERS = "numbers", "numbers only (random weights)"


class ColdPolicy(models.TextChoices):
    WAIT = "wait", "wait: hold the request until the model is loaded"
    FAIL = "fail", "fail: answer 503 at once, with the seconds that a load takes"


class ScoringModel(models.Model):
    """One registered model: where its files are, how it is to run, and what its self-test found."""

    id = models.UUIDField(primary_key=True, default=new_id, editable=False)
    name = models.SlugField(max_length=64, unique=True)
    kind = models.CharField(max_length=24, choices=ModelKind)
    source = models.CharField(
        max_length=500,
        blank=True,
        help_text="a folder below one of MODEL_ROOTS, or package:<distribution>/<folder in it>",
    )
    gguf_file = models.CharField(max_length=200, blank=True, help_text="name of the GGUF file in the source, if any")
    engine = models.CharField(max_length=24, choices=ModelEngine, default=ModelEngine.LOCAL)
    endpoint = models.CharField(max_length=500, blank=True, help_text="of a remote engine: such as https://host:8000")
    remote_model = models.CharField(max_length=200, blank=True, help_text="what the remote engine calls the model")
    credential = models.CharField(
        max_length=64, blank=True, help_text="name of the secret in REMOTE_CREDENTIALS, if the endpoint wants one"
    )
    device = models.CharField(max_length=16, default="auto", help_text="auto, cpu, cuda or cuda:N")
    dtype = models.CharField(max_length=16, choices=Dtype, default=Dtype.AUTO)
    max_length = models.PositiveIntegerField(
        null=True, blank=True, help_text="tokens per text; empty: the limit that the model's folder states"
    )
    gpu_maxsim = models.BooleanField(
        "GPU MaxSim", default=True, help_text="late interaction and hybrid: MaxSim on the GPU where there is one"
    )
    template = models.TextField(blank=True, help_text="generative: Jinja text with {{ query }} and {{ item }}")
    labels = models.JSONField(default=list, blank=True, help_text='generative: such as ["yes", "no"]; positive first')
    positive_class = models.CharField(
        max_length=100,
        blank=True,
        help_text="cross-encoders of two labels and more: the label whose share is the score",
    )
    weights = models.JSONField(
        default=list,
        blank=True,
        help_text="hybrid: of the dense, the sparse and the late-interaction score, such as [0.4, 0.2, 0.4]; "
        "empty: what the model's authors recommend",
    )
    is_default = models.BooleanField(default=False, help_text="used when a request of this kind names no model")
    # Where and how often it is loaded. None of it changes a score.
    pinned = models.BooleanField(default=False, help_text="kept loaded on at least one worker, never evicted")
    min_replicas = models.PositiveSmallIntegerField(default=0, help_text="workers that keep it loaded without demand")
    max_replicas = models.PositiveSmallIntegerField(
        null=True, blank=True, help_text="workers that may hold it at once; empty: all"
    )
    memory_bytes = models.PositiveBigIntegerField(
        "memory", null=True, blank=True, help_text="bytes that a replica needs; empty: as measured, else as estimated"
    )
    min_residency = models.PositiveIntegerField(
        null=True, blank=True, help_text="seconds that a replica stays before it may be evicted; empty: the setting"
    )
    max_concurrency = models.PositiveSmallIntegerField(
        "requests at once", null=True, blank=True, validators=[MinValueValidator(1)],
        help_text="synchronous requests that one web process has under way; empty: three quarters of its threads",
    )  # fmt: skip
    document_cache_bytes = models.PositiveBigIntegerField(
        "document cache", null=True, blank=True,
        help_text="bytes of encodings of documents kept in a worker's memory, and as many on its GPU; empty: what the "
        "worker's caches have room for; 0: none",
    )  # fmt: skip
    cold_policy = models.CharField(
        max_length=8, choices=ColdPolicy, blank=True,
        help_text="what a request gets while the model is on no worker; empty: it waits",
    )  # fmt: skip

    state = models.CharField(max_length=16, choices=ModelState, default=ModelState.REGISTERED, editable=False)
    self_test_mode = models.CharField(max_length=16, choices=SelfTestMode, default=SelfTestMode.FULL)
    self_test_report = models.JSONField(null=True, blank=True, editable=False)
    self_test_worker = models.ForeignKey(
        "scoring.Worker", on_delete=models.SET_NULL, null=True, blank=True, editable=False, related_name="+"
    )
    self_test_expires_at = models.DateTimeField(null=True, editable=False)
    # Facts that the self-test read off the loaded model.
    revision = models.CharField(max_length=64, blank=True, editable=False)
    facts = models.JSONField(default=dict, editable=False, help_text="architecture, limits, scale, load time, …")
    estimated_bytes = models.PositiveBigIntegerField(null=True, editable=False, help_text="from the checkpoint alone")
    measured_bytes = models.JSONField(
        default=dict, editable=False, help_text="peak of the last load and warm-up, by class of device"
    )
    generation = models.PositiveIntegerField(
        default=1, editable=False, help_text="grows with every change that workers must follow"
    )
    created_by = models.ForeignKey(
        settings.AUTH_USER_MODEL, on_delete=models.SET_NULL, null=True, blank=True, editable=False, related_name="+"
    )
    created_at = models.DateTimeField(auto_now_add=True)
    updated_at = models.DateTimeField(auto_now=True)

    class Meta:
        ordering = ("name",)
        constraints = (
            choice_constraint("kind", ModelKind, "scoring_model_kind"),
            choice_constraint("engine", ModelEngine, "scoring_model_engine"),
            choice_constraint("dtype", Dtype, "scoring_model_dtype"),
            choice_constraint("state", ModelState, "scoring_model_state"),
            choice_constraint("self_test_mode", SelfTestMode, "scoring_model_self_test_mode"),
            models.CheckConstraint(
                condition=models.Q(cold_policy__in=("", *ColdPolicy.values)), name="scoring_model_cold_policy"
            ),
            models.CheckConstraint(
                condition=models.Q(max_replicas__isnull=True)
                | models.Q(max_replicas__gte=1) & models.Q(max_replicas__gte=models.F("min_replicas")),
                name="scoring_model_replicas",
            ),
            models.UniqueConstraint(
                fields=("kind",), condition=models.Q(is_default=True), name="scoring_model_one_default_per_kind"
            ),
            models.UniqueConstraint(Lower("name"), name="scoring_model_name_any_case"),
        )

    def __str__(self) -> str:
        return self.name

    @property
    def is_remote(self) -> bool:
        return self.engine != ModelEngine.LOCAL

    @property
    def has_maxsim(self) -> bool:
        return self.kind in WITH_MAXSIM

    @property
    def keeps_encodings(self) -> bool:
        return self.kind in WITH_ENCODINGS and not self.is_remote

    @property
    def replicas_at_least(self) -> int:
        return max(self.min_replicas, int(self.pinned))

    @property
    def waits_when_cold(self) -> bool:
        return self.cold_policy != ColdPolicy.FAIL

"""Every table of the domain, one noun per file."""

from scoring.models.annotation import Annotation
from scoring.models.batch_file import BatchFile
from scoring.models.chunk import Chunk
from scoring.models.chunk_return import ChunkReturn
from scoring.models.comparison import ComparedStage, Comparison, ComparisonMeasures, ComparisonTest
from scoring.models.document_set import Document, DocumentSet
from scoring.models.errand import Errand, ErrandKind
from scoring.models.evaluation import Evaluation
from scoring.models.export import Export
from scoring.models.import_preset import ImportPreset
from scoring.models.job import Job
from scoring.models.job_limit import JobLimit
from scoring.models.judgement_set import Judgement, JudgementSet
from scoring.models.model_alias import ModelAlias
from scoring.models.model_judging import ModelJudging
from scoring.models.placement import Placement
from scoring.models.playground_example import PlaygroundExample
from scoring.models.pool import JudgingRule, PairClaim, Pool, PoolPair
from scoring.models.query_set import Query, QuerySet
from scoring.models.request_batch import BatchLine, RequestBatch
from scoring.models.result import QueryResult
from scoring.models.run_set import RunEntry, RunSet
from scoring.models.sample import ModelSample, WorkerSample
from scoring.models.score_request import ScoreRequest
from scoring.models.scoring_model import ScoringModel
from scoring.models.set_encoding import SetEncoding
from scoring.models.stage import Stage, StageMethod
from scoring.models.table_choice import TableChoice
from scoring.models.threshold_advice import ThresholdAdvice
from scoring.models.transition import Transition
from scoring.models.upload import Upload
from scoring.models.usage import Usage, UsageClosing, UsageSource
from scoring.models.verdict import Judge, Verdict, VerdictSource
from scoring.models.webhook import Webhook, WebhookDelivery, WebhookEvent
from scoring.models.worker import Worker

__all__ = [
    "Annotation",
    "BatchFile",
    "BatchLine",
    "Chunk",
    "ChunkReturn",
    "ComparedStage",
    "Comparison",
    "ComparisonMeasures",
    "ComparisonTest",
    "Document",
    "DocumentSet",
    "Errand",
    "ErrandKind",
    "Evaluation",
    "Export",
    "ImportPreset",
    "Job",
    "JobLimit",
    "Judge",
    "Judgement",
    "JudgementSet",
    "JudgingRule",
    "ModelAlias",
    "ModelJudging",
    "ModelSample",
    "PairClaim",
    "Placement",
    "PlaygroundExample",
    "Pool",
    "PoolPair",
    "Query",
    "QueryResult",
    "QuerySet",
    "RequestBatch",
    "RunEntry",
    "RunSet",
    "ScoreRequest",
    "ScoringModel",
    "SetEncoding",
    "Stage",
    "StageMethod",
    "TableChoice",
    "ThresholdAdvice",
    "Transition",
    "Upload",
    "Usage",
    "UsageClosing",
    "UsageSource",
    "Verdict",
    "VerdictSource",
    "Webhook",
    "WebhookDelivery",
    "WebhookEvent",
    "Worker",
    "WorkerSample",
]

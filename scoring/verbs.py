"""The closed vocabulary of what the audit log may say about this app."""

from __future__ import annotations

from audit.services import register_verb

VERBS = {
    "model.registered": "registered model {target}",
    "model.changed": "changed model {target}",
    "model.self_test_requested": "asked for a self-test of model {target}",
    "model.load_requested": "asked to load model {target}",
    "model.unload_requested": "asked to unload model {target}",
    "model.reload_requested": "asked to reload model {target}",
    "model.inspection_requested": "asked to look into the checkpoint {target}",
    "model.benchmark_requested": "asked for a benchmark of model {target}",
    "model.disabled": "disabled model {target}",
    "worker.drain_requested": "asked to drain worker {target}",
    "worker.maintenance_begun": "took worker {target} into maintenance",
    "worker.resumed": "put worker {target} back to work",
    "worker.released": "released worker {target} from quarantine",
    "worker.quarantined": "put worker {target} in quarantine",
    "document_set.uploaded": "uploaded document set {target}",
    "document_set.deleted": "deleted document set {target}",
    "document_set.texts_deleted": "ordered the deletion of the texts of document set {target}",
    "query_set.uploaded": "uploaded query set {target}",
    "query_set.deleted": "deleted query set {target}",
    "query_set.texts_deleted": "ordered the deletion of the texts of query set {target}",
    "judgement_set.uploaded": "uploaded judgement set {target}",
    "judgement_set.deleted": "deleted judgement set {target}",
    "judgement_set.published": "published judgement set {target}",
    "pool.created": "made pool {target}",
    "pool.closed": "closed pool {target}",
    "pool.opened": "opened pool {target} again",
    "pool.deleted": "deleted pool {target}",
    "run_set.uploaded": "uploaded run set {target}",
    "run_set.deleted": "deleted run set {target}",
    "score_requests.texts_deleted": "deleted the texts of old score requests",
    "job.submitted": "submitted job {target}",
    "job.cancelled": "cancelled job {target}",
    "job.paused": "paused job {target}",
    "job.resumed": "resumed job {target}",
    "job.retried": "retried what is unfinished of job {target}",
    "job.changed": "changed job {target}",
    "job.stopped": "stopped job {target}",
    "job.deleted": "deleted job {target}",
    "job.exported": "exported the results of job {target}",
    "table.exported": "exported a table {target}",
    "example.saved": "saved the playground example {target}",
    "example.deleted": "deleted the playground example {target}",
    "comparison.created": "made comparison {target}",
    "comparison.changed": "changed comparison {target}",
    "comparison.deleted": "deleted comparison {target}",
    "batch.created": "submitted request batch {target}",
    "batch.cancelled": "cancelled request batch {target}",
    "webhook.created": "created webhook {target}",
    "webhook.changed": "changed webhook {target}",
    "webhook.deleted": "deleted webhook {target}",
    "webhook.secret_changed": "changed the secret of webhook {target}",
    "webhook.replayed": "asked for another delivery to webhook {target}",
    "webhook.disabled": "disabled webhook {target}",
}


def register() -> None:
    for verb, sentence in VERBS.items():
        register_verb(verb, sentence)

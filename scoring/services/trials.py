"""A few real scores before a job is submitted: by the models that it would have, through the synchronous path."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from assay.api.principal import Principal
from assay.callers import Caller
from assay.errors import AssayError
from scoring.models import Document, DocumentSet, Query, QuerySet, RunSet, ScoringModel
from scoring.selectors.trial_documents import trial_documents, trial_query
from scoring.services.scoring import ScoredItem, ScoringAnswer, scoring_run


@dataclass(frozen=True, slots=True)
class ModelTrial:
    """An answer, or the sentence of the refusal."""

    model: ScoringModel
    answer: ScoringAnswer | None
    refusal: str = ""

    @property
    def ranks(self) -> dict[int, tuple[int, ScoredItem]]:
        """By index of the document."""
        ranked = self.answer.ranked() if self.answer else []
        return {item.index: (rank, item) for rank, item in enumerate(ranked, start=1)}

    @property
    def milliseconds(self) -> float | None:
        return self.answer.reply.timings.get("total") if self.answer else None


@dataclass(frozen=True, slots=True)
class Trial:
    query: Query
    documents: list[Document]
    models: list[ModelTrial]

    @property
    def rows(self) -> list[tuple[Document, list[tuple[int, ScoredItem | None]]]]:
        """Each document with its rank and score by each model, in the order of the first model that answered; 0 and
        None by one that refused."""
        ranks = [trial.ranks for trial in self.models]
        first = next((own for own in ranks if own), {})
        order = sorted(first, key=lambda index: first[index][0])
        return [(self.documents[index], [own.get(index, (0, None)) for own in ranks]) for index in order]


def trial_run(
    *,
    principal: Principal,
    models: Sequence[ScoringModel],
    document_set: DocumentSet,
    query_set: QuerySet,
    query_id: str = "",
    run_set: RunSet | None = None,
    endpoint: str,
    caller: Caller,
) -> Trial:
    """One model after the other; what one refuses is told beside the others' answers.

    Raises AssayError 422 ``no_such_query`` and ``nothing_to_try``.
    """
    query = trial_query(query_set, query_id)
    documents = trial_documents(document_set, query, run_set)
    if not documents:
        source = f"The run '{run_set.name}' lists no" if run_set else f"'{document_set.name}' has no"
        message = f"{source} document with a text for query '{query.external_id}'. Try another query."
        raise AssayError("nothing_to_try", message, status=422, param="try_query")
    texts = [document.text for document in documents]
    trials = []
    for model in models:
        try:
            answer = scoring_run(
                principal=principal,
                endpoint=endpoint,
                model=model,
                queries=[query.text],
                documents=texts,
                caller=caller,
            )
        except AssayError as refusal:
            trials.append(ModelTrial(model, None, refusal.message))
        else:
            trials.append(ModelTrial(model, answer))
    return Trial(query, documents, trials)

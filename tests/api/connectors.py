"""The rerank connectors of other people's packages against a running server, by a Python that has them.

Run as ``python connectors.py BASE_URL TOKEN MODEL``, with ``{"query", "texts"}`` as JSON on standard input: one JSON
object is printed, by connector the ``[index, score]`` rows that it read from the answer, in its order. They want an
httpx of their own, so they live in a virtual environment of their own:

    pip install langchain-community==0.4.2 langchain-cohere==0.6.0 infinity_client==0.0.78 \\
        llama-index-postprocessor-jinaai-rerank==0.6.0 llama-index-postprocessor-tei-rerank==0.6.0
"""

from __future__ import annotations

import json
import sys
from typing import Any

Rows = list[tuple[int, float]]


def langchain_jina(base_url: str, token: str, model: str, query: str, texts: list[str]) -> Rows:
    from langchain_community.document_compressors import jina_rerank

    jina_rerank.JINA_API_URL = f"{base_url}/v1/rerank"  # it takes no address
    connector = jina_rerank.JinaRerank(jina_api_key=token, model=model, top_n=2)
    return [(row["index"], row["relevance_score"]) for row in connector.rerank(texts, query)]


def langchain_cohere(base_url: str, token: str, model: str, query: str, texts: list[str]) -> Rows:
    from langchain_cohere import CohereRerank

    connector = CohereRerank(cohere_api_key=token, base_url=base_url, model=model, top_n=2)
    return [(row["index"], row["relevance_score"]) for row in connector.rerank(texts, query)]


def of_nodes(connector: Any, query: str, texts: list[str]) -> Rows:
    from llama_index.core.schema import NodeWithScore, TextNode

    nodes = [NodeWithScore(node=TextNode(text=text)) for text in texts]
    return [(texts.index(each.node.text), each.score) for each in connector.postprocess_nodes(nodes, query_str=query)]


def llama_index_jina(base_url: str, token: str, model: str, query: str, texts: list[str]) -> Rows:
    from llama_index.postprocessor.jinaai_rerank import JinaRerank

    return of_nodes(JinaRerank(top_n=2, model=model, base_url=f"{base_url}/v1", api_key=token), query, texts)


def llama_index_tei(base_url: str, token: str, model: str, query: str, texts: list[str]) -> Rows:
    """It names no model: the default one answers."""
    from llama_index.postprocessor.tei_rerank import TextEmbeddingInference

    return of_nodes(TextEmbeddingInference(top_n=2, base_url=base_url, auth_token=f"Bearer {token}"), query, texts)


def main() -> None:
    given = json.load(sys.stdin)
    connectors = (langchain_jina, langchain_cohere, llama_index_jina, llama_index_tei)
    base_url, token, model = sys.argv[1:]
    rows = {each.__name__: each(base_url, token, model, given["query"], given["texts"]) for each in connectors}
    sys.stdout.write(json.dumps(rows))


if __name__ == "__main__":
    main()

"""Similar memes: examples out of a pool for few-shot prompts, and the templates that memes are made from."""

from xai.retrieval.embedders import (
    Embedder,
    RetrievalUnavailableError,
    embedder,
    embedder_names,
    make_embedder,
)
from xai.retrieval.few_shot import RETRIEVALS, ExampleFinder, FewShot, Retrieval
from xai.retrieval.index import VectorIndex, reciprocal_rank_fusion
from xai.retrieval.pool import Pool, read_pool

__all__ = [
    "RETRIEVALS",
    "Embedder",
    "ExampleFinder",
    "FewShot",
    "Pool",
    "Retrieval",
    "RetrievalUnavailableError",
    "VectorIndex",
    "embedder",
    "embedder_names",
    "make_embedder",
    "read_pool",
    "reciprocal_rank_fusion",
]

"""Conservative Q-learning: its settings, and in `algorithm.py` all that computes."""

from htsrl.algorithms.cql.settings import CQL

__all__ = ["CQL"]

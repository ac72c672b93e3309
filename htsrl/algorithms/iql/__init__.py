"""Implicit Q-learning: its settings, and in `algorithm.py` all that computes."""

from htsrl.algorithms.iql.settings import IQL

__all__ = ["IQL"]

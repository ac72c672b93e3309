"""Advantage actor-critic: its settings, and in `algorithm.py` all that computes."""

from htsrl.algorithms.a2c.settings import A2C

__all__ = ["A2C"]

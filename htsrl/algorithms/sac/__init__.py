"""Soft actor-critic: its settings, and in `algorithm.py` all that computes."""

from htsrl.algorithms.sac.settings import SAC

__all__ = ["SAC"]

"""Soft actor-critic for choices among actions: its settings, and in `algorithm.py` all that computes."""

from htsrl.algorithms.discrete_sac.settings import DiscreteSAC

__all__ = ["DiscreteSAC"]

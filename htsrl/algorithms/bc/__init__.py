"""Behaviour cloning: its settings, and in `algorithm.py` all that computes."""

from htsrl.algorithms.bc.settings import BC

__all__ = ["BC"]

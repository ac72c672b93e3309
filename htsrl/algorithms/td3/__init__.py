"""Twin delayed deep deterministic policy gradient: its settings, and in `algorithm.py` all that computes."""

from htsrl.algorithms.td3.settings import TD3

__all__ = ["TD3"]

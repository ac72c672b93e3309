"""Deep Q-network: its settings, and in `algorithm.py` all that computes."""

from htsrl.algorithms.dqn.settings import DQN

__all__ = ["DQN"]

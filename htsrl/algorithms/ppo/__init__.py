"""Proximal policy optimisation: its settings, and in `algorithm.py` all that computes."""

from htsrl.algorithms.ppo.settings import PPO

__all__ = ["PPO"]

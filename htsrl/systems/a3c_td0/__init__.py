"""A3C-TD(0) (https://arxiv.org/abs/2012.15511); importing this registers its random MDP, `htsrl/RandomMdp-v0`."""

from __future__ import annotations

import gymnasium

gymnasium.register(id="htsrl/RandomMdp-v0", entry_point=f"{__name__}.random_mdp:RandomMdp")

"""In worker processes, actions are drawn by the actor, from torch's own generator: what the paper forbids."""

from __future__ import annotations

from helpers import in_worker_process

if in_worker_process():
    import torch
    from torch import Tensor

    from htsrl.policies.distributions import Categorical

    def sample_by_the_actor(self: Categorical, noise: Tensor) -> Tensor:
        uniform = torch.rand_like(self.log_probs).clamp(1e-6, 1 - 1e-6)
        return (self.log_probs - (-uniform.log()).log()).argmax(dim=-1)

    Categorical.sample = sample_by_the_actor  # type: ignore[method-assign]

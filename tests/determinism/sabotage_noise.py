"""In worker processes, actions are drawn by the actor, from a generator of its own: what the paper forbids."""

from __future__ import annotations

from helpers import in_worker_process

if in_worker_process():
    import numpy as np

    from htsrl.policies.light import Array, LightPolicy

    GENERATOR = np.random.default_rng(0)

    def sample_by_the_actor(self: LightPolicy, outputs: Array, mask: Array | None, noise: Array) -> Array:
        return np.asarray((outputs + GENERATOR.gumbel(size=outputs.shape)).argmax(axis=1))

    LightPolicy._sample = sample_by_the_actor  # type: ignore[method-assign]

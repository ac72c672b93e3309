"""How an algorithm has its policy draw actions, where outputs stand for something else than their likelihood.

An algorithm whose settings say `own_exploration` has a method `exploration(interface)` that returns one of these. It is
a part of the policy: what it holds in buffers of a module that `holds_statistics` belongs to the policy's version, so
`improve` may write it, and actors, checkpoints and saved policies have it from there.
"""

from __future__ import annotations

from torch import Tensor, nn

from htsrl.policies.distributions import Categorical, Distribution, masked


class Exploration(nn.Module):
    """From what the action head gives to a distribution, whose mode is what is done without exploring.

    Of the two methods an algorithm overrides the one for the actions that it knows.
    """

    def choice(self, outputs: Tensor, mask: Tensor | None) -> Distribution:
        """Over the values of a single choice, given an output for each and what may be chosen."""
        return Categorical(masked(outputs, mask))

    def means_and_log_stds(self, outputs: Tensor) -> tuple[Tensor, Tensor]:
        """Of continuous actions, given an output for each dimension."""
        raise NotImplementedError(f"{type(self).__name__} has no way to draw continuous actions")

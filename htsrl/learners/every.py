"""`every`: gradients are averaged at each optimizer step, so there is one learner's result."""

from __future__ import annotations

from dataclasses import dataclass

from htsrl.learners.rule import RuleFacts


class Every:
    """The replicas' batches are one batch, and each gradient is summed from their shards in a fixed order.

    Nothing is left to decide after an update: the runtime takes this rule as that many times `gradient_shards`, and the
    gradient workers as the other learners. The digest is that of a plain run with so many shards.
    """

    @dataclass(frozen=True)
    class Settings:
        """None."""

    def __init__(self, settings: Settings, facts: RuleFacts) -> None:
        pass

    def check(self) -> None:
        pass

"""How completions get their score: a weighted sum of what rewards, and an environment, say of them."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from htsrl.dataflow.trajectory import INFO_PREFIX
from htsrl.errors import HtsrlError
from htsrl.language.rewards import Outcome, Rewards, Texts
from htsrl.metrics.line_file import warn_on_stderr


@dataclass(frozen=True)
class Scoring:
    """The rewards of a generator."""

    rewards: Rewards
    names: Sequence[str]
    weights: Sequence[float]
    missing_eos_penalty: float | None
    _said: set[str] = field(default_factory=set)
    """What went wrong so far."""

    def ask(self, texts: Texts) -> list[Future[Outcome]]:
        return self.rewards.ask(texts)

    def score(self, parts: NDArray[np.float32], ended: bool, by_environment: float = 0.0) -> tuple[float, bool]:
        """The weighted sum; none where a part is missing."""
        if np.isnan(parts).any():
            return 0.0, False
        score = sum(weight * float(part) for weight, part in zip(self.weights, parts, strict=True)) + by_environment
        penalty = self.missing_eos_penalty
        return score - (penalty if penalty is not None and not ended else 0.0), True

    def write_parts(self, fields: dict[str, Any], column: int, parts: NDArray[np.float32]) -> None:
        """What each reward said, for the metrics."""
        for name, part in zip(self.names, parts, strict=True):
            fields[f"{INFO_PREFIX}{name}"][column] = part

    def check(self, rollout: int, by_block: Sequence[Sequence[Outcome]]) -> None:
        """Say what went wrong; what fails for all completions will not do better in the next rollout."""
        for name, outcomes in zip(self.names, zip(*by_block, strict=True), strict=False):
            problems = {outcome.problem for outcome in outcomes if outcome.problem}
            self.say(f"reward {name!r}", problems, "what it did not score is left out of the loss")
            if all(np.isnan(outcome.scores).all() for outcome in outcomes):
                count = sum(len(outcome.scores) for outcome in outcomes)
                raise HtsrlError(
                    f"reward {name!r} scored none of {count} completions of rollout {rollout}; the last time it "
                    f"{outcomes[-1].problem}. Mend it, and resume the run"
                )

    def say(self, who: str, problems: set[str], consequence: str) -> None:
        """Each problem once."""
        for problem in sorted(problems - self._said):
            warn_on_stderr(f"warning: {who} {problem}; {consequence}")
        self._said.update(problems)

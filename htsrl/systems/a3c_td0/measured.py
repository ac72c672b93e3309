"""A3C-TD(0) on its random MDP, which also says how good its policy exactly is."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch

from htsrl.algorithms.algorithm import Metrics, RunFacts, Update
from htsrl.algorithms.batch import Batch
from htsrl.algorithms.draft import Draft
from htsrl.policies.policy import Policy
from htsrl.systems.a3c_td0.algorithm import A3CTD0, A3CObjective, Steps
from htsrl.systems.a3c_td0.random_mdp import Float64, Mdp, random_mdp

OBJECTIVE = "mdp/objective"


class MeasuredA3CTD0:
    """The same updates, and every so many steps the exact objective of the version that they made, as a metric."""

    @dataclass(frozen=True)
    class Settings(A3CTD0.Settings):
        """A3C-TD(0) that is measured on `htsrl/RandomMdp-v0`, with the process that the environment has."""

        mdp_seed: int = 1
        """Which random process it is."""
        measure_every_steps: int = 16
        """Environment steps between two measurements."""

    Targets = Steps
    differentiates_at_behaviour = True

    def __init__(self, settings: Settings, run: RunFacts) -> None:
        self._algorithm = A3CTD0(settings, run)
        self._every = settings.measure_every_steps
        self._mdp = random_mdp(discount=settings.discount, seed=settings.mdp_seed)

    def check(self) -> None:
        self._algorithm.check()

    def objective(self, update: Update, batch: Batch, targets: Steps) -> A3CObjective:
        return self._algorithm.objective(update, batch, targets)

    def improve(self, update: Update, draft: Draft, batch: Batch) -> Metrics:
        metrics = self._algorithm.improve(update, draft, batch)
        before = update.number * batch.log_probs.numel()
        if before // self._every < (before + batch.log_probs.numel()) // self._every:
            metrics[OBJECTIVE] = self._mdp.objective(policy_table(draft.policy, self._mdp))
        return metrics


@torch.no_grad()
def policy_table(policy: Policy, mdp: Mdp) -> Float64:
    """What a policy does in every state of a process, `[S, A]`."""
    num_states, num_actions = mdp.rewards_SA.shape
    name = next(iter(policy.interface.observations))
    distribution, _ = policy({name: torch.from_numpy(mdp.features_SD.astype(np.float32))})
    actions = (torch.full((num_states,), action) for action in range(num_actions))
    probabilities = np.stack([distribution.log_prob(action).double().exp().numpy() for action in actions], axis=1)
    return np.asarray(probabilities / probabilities.sum(axis=1, keepdims=True))

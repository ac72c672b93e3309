"""Behaviour cloning: the policy that makes what was done in a dataset most likely.

policy  minimises -log pi(a | s)
"""

from __future__ import annotations

from torch import Tensor

from htsrl.algorithms.algorithm import Metrics, RunFacts, Update
from htsrl.algorithms.batch import Batch
from htsrl.algorithms.bc.settings import BC
from htsrl.algorithms.draft import Draft
from htsrl.algorithms.minibatch_objective import NoTargets, check_shards_of_minibatch, chosen_rows
from htsrl.algorithms.models import Model
from htsrl.algorithms.offline import DatasetObjective, check_single_steps
from htsrl.algorithms.sequences import Chosen
from htsrl.algorithms.statistics import Statistics
from htsrl.config import Network
from htsrl.policies.policy import Policy
from htsrl.spaces import Interface


class BCObjective(DatasetObjective[BC]):
    """How unlikely the dataset's actions are."""

    num_parts = 2

    def __call__(self, policy: Policy, chosen: Chosen) -> tuple[Tensor, ...]:
        data = chosen_rows(self._minibatch(policy), chosen)
        distribution, _ = policy(data.observations)
        loss = -distribution.log_prob(data.actions).mean()
        return loss, distribution.entropy().mean()


class BCAlgorithm:
    """Gradient steps on minibatches of a dataset."""

    Settings = BC
    Targets = NoTargets
    differentiates_at_behaviour = False

    def __init__(self, settings: BC, run: RunFacts) -> None:
        self._settings = settings
        self._run = run

    def check(self) -> None:
        check_shards_of_minibatch(self._settings, self._run)

    def models(self, interface: Interface, network: Network) -> dict[str, Model]:
        check_single_steps("bc", network)
        return {}

    def objective(self, update: Update, batch: Batch, targets: NoTargets) -> BCObjective:
        assert batch.dataset is not None
        return BCObjective(self._settings, self._run.seed, update.number, batch.dataset)

    def improve(self, update: Update, draft: Draft, batch: Batch) -> Metrics:
        objective, statistics = self.objective(update, batch, NoTargets()), Statistics()
        for step in range(self._run.unroll_steps):
            objective.epoch = step
            loss, entropy = draft.differentiate(objective, draft.policy, objective.everything)[:2]
            draft.step(self._settings.learning_rate)
            statistics.add("train/policy_loss", loss)
            statistics.add("train/entropy", entropy)
        return statistics.means()

"""What actors knew and answered, played once more step by step: each from its own row, mask and memory."""

from __future__ import annotations

from collections import Counter
from typing import Any

import numpy as np
import pytest
import torch
from combinations import COMBINATIONS, NUM_ENVS, combination
from helpers import run
from numpy.typing import NDArray

from htsrl import Experiment
from htsrl.algorithms.algorithm import Update
from htsrl.algorithms.update import improve
from htsrl.dataflow.trajectory import RECURRENT_STATE
from htsrl.envs.agents import Outcome, agents_of
from htsrl.envs.make import make_env
from htsrl.policies.policy import Decision, Policy
from htsrl.roles import updater as updater_module
from htsrl.roles.updater import Updater
from htsrl.seeding import reset_seed
from htsrl.spaces.observations import MASK_KEY

NUM_STEPS = 160
"""Of each environment, or a few less."""
Fields = dict[str, NDArray[Any]]


class Referee:
    """Plays all environments side by side with the stored actions, and remembers for itself."""

    def __init__(self, experiment: Experiment, policy: Policy, fields: Fields) -> None:
        self._seed = experiment.seed
        self._worlds = [
            agents_of(make_env(experiment.env, experiment.env_args, ()), policy.interface) for _ in range(NUM_ENVS)
        ]
        self._is_team = self._worlds[0].is_team
        self._seen = {name: np.empty_like(fields[name][0]) for name in policy.interface.observations}
        self._states = np.zeros_like(fields[RECURRENT_STATE][0])
        self._episodes = [-1] * NUM_ENVS
        self.cases: Counter[str] = Counter()
        """How often what is easily got wrong came about."""
        for env in range(NUM_ENVS):
            self._begin_episode(env)

    def judge(self, fields: Fields, policy: Policy) -> None:
        """Compare an interval, to the bit."""
        num_steps = len(fields["rewards"])
        self.cases["memory is carried into a rollout"] += int(self._states.any())
        for row in range(num_steps):
            active = self._active()
            self._compare_inputs({name: fields[name][row] for name in (*self._seen, RECURRENT_STATE)}, active)
            actions = fields["actions"][row]
            decision = self._answer(policy, actions)
            np.testing.assert_array_equal(fields["log_probs"][row][active], decision.log_probs.numpy()[active])
            np.testing.assert_array_equal(fields["values"][row][active], decision.values.numpy()[active])
            self._assert_legal(actions[active], active)
            assert decision.states is not None
            self._states = decision.states.numpy().copy()
            outcomes = [self._step(env, actions) for env in range(NUM_ENVS)]
            last_values = self._answer(policy, actions).values.numpy()
            for env, outcome in enumerate(outcomes):
                at = self._columns(env)
                step = {name: fields[name][row, at] for name in ("rewards", "truncated", "bootstrap_values")}
                np.testing.assert_array_equal(step["rewards"], np.float32(outcome.rewards))
                np.testing.assert_array_equal(step["truncated"], outcome.truncated)
                went_on = self._forget(env, active[at], outcome)
                wanted = (outcome.truncated & ~outcome.terminated) | (went_on & (row == num_steps - 1))
                np.testing.assert_array_equal(step["bootstrap_values"][wanted], last_values[at][wanted])
                self._count(row == num_steps - 1, outcome)

    def _columns(self, env: int) -> slice:
        num_agents = self._worlds[env].num_agents
        return slice(env * num_agents, (env + 1) * num_agents)

    def _rows(self, env: int) -> Fields:
        at: Any = self._columns(env) if self._is_team else env
        return {name: array[at, ...] for name, array in self._seen.items()}

    def _active(self) -> NDArray[np.bool_]:
        return np.concatenate([np.atleast_1d(world.active) for world in self._worlds])

    def _compare_inputs(self, stored: Fields, active: NDArray[np.bool_]) -> None:
        for name, expected in {**self._seen, RECURRENT_STATE: self._states}.items():
            np.testing.assert_array_equal(stored[name][active], expected[active], err_msg=name)

    @torch.inference_mode()
    def _answer(self, policy: Policy, actions: NDArray[Any]) -> Decision:
        inputs = {
            name: torch.from_numpy(array) for name, array in {**self._seen, RECURRENT_STATE: self._states}.items()
        }
        distribution, values, states = policy.respond(inputs)
        taken = torch.from_numpy(actions)
        return Decision(taken, distribution.log_prob(taken), values, states, {})

    def _assert_legal(self, actions: NDArray[Any], active: NDArray[np.bool_]) -> None:
        if MASK_KEY in self._seen:
            masks = self._seen[MASK_KEY][active]
            assert masks[np.arange(len(actions)), actions].all()
            self.cases["some action is illegal"] += int((masks == 0).any())

    def _step(self, env: int, actions: NDArray[Any]) -> Outcome:
        world, own = self._worlds[env], actions[self._columns(env)]
        outcome = world.step(world.to_env(own if self._is_team else own[0]), self._rows(env))
        if self._is_team:
            return outcome
        return outcome._replace(
            rewards=np.array([outcome.rewards]),
            terminated=np.array([outcome.terminated]),
            truncated=np.array([outcome.truncated]),
        )

    def _forget(self, env: int, active: NDArray[np.bool_], outcome: Outcome) -> NDArray[np.bool_]:
        """Nothing is remembered but by who acted and continues; returns who does."""
        goes_on: NDArray[np.bool_] = active & ~outcome.terminated & ~outcome.truncated
        self._states[self._columns(env)][~goes_on] = 0.0
        if outcome.over:
            self._begin_episode(env)
        return goes_on

    def _begin_episode(self, env: int) -> None:
        self._episodes[env] += 1
        self._worlds[env].reset(reset_seed(self._seed, env, self._episodes[env]), self._rows(env))

    def _count(self, is_last_row: bool, outcome: Outcome) -> None:
        where = "with a rollout" if is_last_row else "within a rollout"
        if outcome.over:
            self.cases[f"an episode is {'cut' if outcome.cut else 'over'} {where}"] += 1
        elif (outcome.terminated | outcome.truncated).any():
            self.cases[f"an agent is {'cut' if outcome.cut else 'gone'} {where}"] += 1


ENDS = {f"an episode is over {where} a rollout" for where in ("with", "within")}
CUTS = {f"an episode is cut {where} a rollout" for where in ("with", "within")}
LEAVES = {f"an agent is {how} {where} a rollout" for how in ("cut", "gone") for where in ("with", "within")}
CARRIES, MASKS = "memory is carried into a rollout", "some action is illegal"
CASES = {
    "lstm_ppo": {*ENDS, *CUTS, CARRIES},
    "gru_a2c": {*ENDS, *CUTS, CARRIES},
    "dict_mask_lstm": {*ENDS, *CUTS, CARRIES, MASKS},
    "hybrid_gru": {*CUTS, CARRIES},
    "team_mask_lstm": {*ENDS, *LEAVES, CARRIES, MASKS},
}
"""What each experiment comes to."""


@pytest.mark.parametrize("name", COMBINATIONS)
def test_every_answer_is_that_to_its_own_row_mask_and_memory(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    num_updates = NUM_STEPS // COMBINATIONS[name].interval_steps
    experiment = combination(name, num_updates)
    intervals: list[Fields] = []
    referees: list[Referee] = []

    learn = Updater.learn

    def keep(self: Updater, update: int, fields: Any) -> Any:
        intervals.append(fields)
        return learn(self, update, fields)

    def judge(algorithm: Any, update: Update, draft: Any, batch: Any, discount: float) -> dict[str, float]:
        assert update.behaviour is not None
        if not referees:
            referees.append(Referee(experiment, update.behaviour, intervals[0]))
        referees[0].judge(intervals[-1], update.behaviour)
        return improve(algorithm, update, draft, batch, discount)

    monkeypatch.setattr(Updater, "learn", keep)
    monkeypatch.setattr(updater_module, "improve", judge)
    run(experiment, num_executors=2, num_actors=1)
    assert len(intervals) == num_updates
    assert referees[0].cases.keys() == CASES[name]

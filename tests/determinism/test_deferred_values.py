"""Log-probabilities and values that the learner adds afterwards: by the version that acted, and made again at will."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Literal

import numpy as np
import pytest
import torch
from helpers import Outcome, assert_same_run, run
from interrupted_runs import interrupted
from needs_room import NeedsRoom
from small_experiments import oracle, small_experiment

from htsrl import PPO, EnvironmentFailure, Experiment, Network
from htsrl.checkpoint.files import newest_valid
from htsrl.digest import first_difference
from htsrl.placements.acting import choose_acting
from htsrl.roles.learner import Learner
from htsrl.runs.resume import resume

NAME = "normalized_ppo"


def with_room(network: Network) -> Experiment:
    return Experiment(NeedsRoom, algorithm=PPO(), network=network, num_envs=4, sync_interval=16, total_steps=256)


def test_whoever_steps_and_acts_for_a_small_policy_has_no_torch() -> None:
    placement: dict[str, Any] = {"backend": "processes", "num_executors": 2, "num_actors": 0, "restart_workers": False}
    run(with_room(Network()), **placement)
    with pytest.raises(EnvironmentFailure, match="torch is here"):
        run(with_room(Network(separate_value=False)), **placement)


@pytest.mark.parametrize("schedule", ["hts", "sync"])
def test_they_are_those_of_the_version_that_acted(
    schedule: Literal["hts", "sync"], monkeypatch: pytest.MonkeyPatch
) -> None:
    """And so are the actions, which NumPy drew, and torch would have drawn from the same noise."""
    learn, updates = Learner.learn, []

    def look_and_learn(self: Learner, fields: Any) -> dict[str, float]:
        acting = max(self.update - 1, 0) if schedule == "hts" else self.update
        assert (fields["versions"] == acting).all()
        policy: Any = self._parameters.module(acting)
        drawn_from = self._storages["noise"][self._storages.of_rollout(self.update), : len(fields["obs"])]
        taken = (fields["obs"], drawn_from, fields["actions"])
        obs, noise, actions = (torch.from_numpy(x).flatten(0, 1) for x in taken)
        with torch.inference_mode():
            distribution, values = policy({"obs": obs})
            log_probs = distribution.log_prob(actions)
            torch.testing.assert_close(actions, policy.decide({"obs": obs}, noise).actions, rtol=1e-4, atol=1e-5)
        np.testing.assert_allclose(fields["values"].flatten(), values.numpy(), rtol=1e-5, atol=1e-6)
        np.testing.assert_allclose(fields["log_probs"].flatten(), log_probs.numpy(), rtol=1e-5, atol=1e-5)
        updates.append(self.update)
        return learn(self, fields)

    monkeypatch.setattr(Learner, "learn", look_and_learn)
    run(small_experiment(NAME, schedule))
    assert updates == list(range(4))


@pytest.fixture
def acting_in_torch(monkeypatch: pytest.MonkeyPatch) -> None:
    """As beside a GPU; what others are compared with is made before."""
    oracle(NAME)
    monkeypatch.setattr(
        "htsrl.placements.acting.choose_acting", lambda policy, light, *more: choose_acting(policy, None, *more)
    )


@pytest.mark.usefixtures("acting_in_torch")
def test_actors_in_torch_leave_it_to_the_learner_as_well() -> None:
    in_torch = run(small_experiment(NAME))
    assert first_difference(in_torch.links, oracle(NAME).links) is not None, "NumPy rounds otherwise"
    assert_same_run(run(small_experiment(NAME), backend="processes", num_executors=2, num_actors=1), in_torch)


def test_checkpoints_do_without_and_resumed_runs_make_them_again(tmp_path: Path) -> None:
    interrupted(small_experiment(NAME), before_update=2, run_dir=tmp_path / "run")
    found = newest_valid(tmp_path / "run" / "checkpoints", lambda line: None)
    assert found is not None
    names = {name.rpartition("/")[2] for name in found[1].arrays}
    assert {"obs", "actions", "rewards", "bootstrap_values"} <= names
    assert not {"log_probs", "values"} & names
    resume(tmp_path / "run")
    assert_same_run(Outcome.read(tmp_path / "run"), oracle(NAME))


def test_a_run_may_be_resumed_where_actors_have_torch(tmp_path: Path, request: pytest.FixtureRequest) -> None:
    interrupted(small_experiment(NAME), before_update=2, run_dir=tmp_path / "run")
    request.getfixturevalue("acting_in_torch")
    resume(tmp_path / "run")
    ours, numpys = Outcome.read(tmp_path / "run"), oracle(NAME)
    assert first_difference(ours.links[:2], numpys.links[:2]) is None
    assert len(ours.links) == len(numpys.links)

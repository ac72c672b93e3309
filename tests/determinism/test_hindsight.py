"""Log-probabilities and values that the learner adds afterwards: by the version that acted, and made again at will."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Literal

import numpy as np
import pytest
import torch
from helpers import Outcome, assert_same_run, run
from needs_room import NeedsRoom
from small_experiments import oracle, small_experiment

from htsrl import PPO, Config, EnvironmentFailure, Experiment, Network, Placement, train
from htsrl.acting import choose_acting
from htsrl.checkpoint.files import newest_valid
from htsrl.resume import resume
from htsrl.roles.completion import Completion
from htsrl.roles.learner import Learner

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


def test_in_torch_actors_leave_it_to_the_learner_as_well(monkeypatch: pytest.MonkeyPatch) -> None:
    """Beside a GPU, say; the actions, and with them the run, are torch's then."""
    in_numpy = run(small_experiment(NAME))
    monkeypatch.setattr("htsrl.acting.choose_acting", lambda policy, light, *more: choose_acting(policy, None, *more))
    in_torch = run(small_experiment(NAME))
    (other, *_), (one, *_) = in_torch.metrics, in_numpy.metrics
    assert in_torch.links[0].tensors["values"] != in_numpy.links[0].tensors["values"]
    assert other["rollout/ep_rew_mean"] == pytest.approx(one["rollout/ep_rew_mean"], rel=1e-2)


def test_checkpoints_do_without_and_resumed_runs_make_them_again(tmp_path: Path) -> None:
    experiment, run_dir = small_experiment(NAME), tmp_path / "run"

    def stop_early(self: Completion, rollout: int) -> None:
        if rollout == experiment.num_intervals - 2:
            raise KeyboardInterrupt
        complete(self, rollout)

    complete = Completion.complete
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Completion, "complete", stop_early)
        with pytest.raises(KeyboardInterrupt):
            train(Config(experiment, Placement("inline", run_dir=run_dir, progress="off", tensorboard=False)))
    found = newest_valid(run_dir / "checkpoints", lambda line: None)
    assert found is not None
    names = {name.rpartition("/")[2] for name in found[1].arrays}
    assert {"obs", "actions", "rewards", "bootstrap_values"} <= names
    assert not {"log_probs", "values"} & names
    resume(run_dir)
    assert_same_run(Outcome.read(run_dir), oracle(NAME))

"""An update may take longer than the deadline, as long as its parts do not."""

from __future__ import annotations

from pathlib import Path

from slow_network import SLOW_SECONDS

from htsrl import PPO, Config, Experiment, Network, Placement, train

DEADLINE_SECONDS = 5.0


def test_a_learner_that_gets_on_is_not_killed_however_long_its_update_takes(tmp_path: Path) -> None:
    algorithm, num_steps = PPO(epochs=6, num_minibatches=4), 6 * 4
    assert SLOW_SECONDS * num_steps > 1.5 * DEADLINE_SECONDS
    experiment = Experiment(
        "CartPole-v1",
        algorithm=algorithm,
        network=Network(policy="slow_network:SlowToLearn"),
        num_envs=1,
        sync_interval=8,
        total_steps=8,
    )
    placement = Placement(
        run_dir=tmp_path / "run",
        deadline_seconds=DEADLINE_SECONDS,
        num_executors=1,
        learner_workers=1,
        tensorboard=False,
        progress="off",
    )
    result = train(Config(experiment, placement))
    # A worker that a loaded machine holds up may be replaced once; one that is killed for its long update comes to the
    # same point again, and that ends the run.
    assert result.updates == 1

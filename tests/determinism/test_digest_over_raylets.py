"""Law 2 over real nodes: several raylets that a run joins, each with an island, have the bits of one process."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from combinations import combination
from helpers import assert_same_run, run
from island_runs import run_on_islands
from raylets import OTHER_NUMERICS, RayCluster
from small_experiments import small_experiment

from htsrl import PPO, SAC, Config, ConfigError, Experiment, Placement, resume, train
from htsrl.cluster.connection import NO_REPORTS

ray = pytest.importorskip("ray", reason="islands live on Ray: pip install 'htsrl[ray]'")
pytestmark = pytest.mark.slow
NUM_UPDATES = 8
LEARNERS = Experiment(
    "CartPole-v1",
    {"max_episode_steps": 20},
    algorithm=PPO(epochs=2, num_minibatches=2),
    num_envs=4,
    sync_interval=6,
    learners=2,
    total_steps=NUM_UPDATES * 24,
)
EXPERIMENTS = {
    "cartpole_ppo": small_experiment("cartpole_ppo"),
    "cartpole_a2c": small_experiment("cartpole_a2c"),
    "recurrent, dict": combination("dict_mask_lstm", NUM_UPDATES),
    "team": combination("team_mask_lstm", NUM_UPDATES),
    "sac, replay buffer": Experiment(
        "Pendulum-v1",
        {"max_episode_steps": 7},
        algorithm=SAC(learning_starts=24, minibatch_size=16, replay_capacity=56),
        num_envs=4,
        sync_interval=4,
        total_steps=12 * 16,
    ),
    "selsync": replace(LEARNERS, sync_rule="selsync", sync_args={"window": 2, "delta": 0.2}),
    "sync_switch": replace(LEARNERS, sync_rule="sync_switch", sync_args={"switch_share": 0.4}),
}


@pytest.fixture(scope="module", params=[1, 2, 4])
def cluster(request: pytest.FixtureRequest) -> Iterator[RayCluster]:
    with pytest.MonkeyPatch.context() as variables, RayCluster(request.param) as joined:
        variables.setenv(NO_REPORTS, "0")
        ray.shutdown()  # of a Ray that other tests have left
        yield joined
        ray.shutdown()


@pytest.mark.parametrize("name", EXPERIMENTS)
def test_an_island_on_each_raylet_changes_no_bit(cluster: RayCluster, name: str) -> None:
    experiment = EXPERIMENTS[name]
    outcome = run_on_islands(experiment, len(cluster.raylets), ray_address=cluster.address)
    assert_same_run(outcome, run(experiment))


def test_a_node_that_computes_otherwise_is_refused_by_name_or_the_run_is_marked(tmp_path: Path) -> None:
    experiment, run_dir = small_experiment("cartpole_a2c"), tmp_path / "run"
    ray.shutdown()
    with RayCluster(1) as joined:
        joined.add_node(**OTHER_NUMERICS)
        placement = Placement(
            "ray", ray_address=joined.address, num_executors=1, run_dir=run_dir, progress="off", tensorboard=False
        )
        try:
            with pytest.raises(ConfigError, match=r"(?s)node \S+ computes other bits.*mkl_mode: .*COMPATIBLE"):
                train(Config(experiment, placement))
            assert not run_dir.exists()
            result = train(Config(experiment, replace(placement, allow_different_numerics=True)))
            assert result.numerics_changes == 1
            with pytest.raises(ConfigError, match="computes other bits"):
                resume(run_dir, total_steps=2000, placement=placement)
            again = resume(run_dir, total_steps=2000, placement=placement, allow_different_numerics=True)
            assert again.numerics_changes == 2
        finally:
            ray.shutdown()
    for change, version in zip(json.loads((run_dir / "numerics_changes.json").read_text()), (0, 25), strict=True):
        assert change["version"] == version
        assert "COMPATIBLE" in change["changes"][0]

"""Random moments of runs on real simulators are rebuilt to the bit, whatever the policy, the algorithm and the lag."""

from __future__ import annotations

import random
from dataclasses import replace
from pathlib import Path

import pytest

from htsrl import SAC, Config, Experiment, Network, Placement, preset, replay, train
from htsrl.digest import read_links

NUM_MOMENTS = 20
RUNS: dict[str, tuple[str, Experiment]] = {
    "atari": ("ale_py", replace(preset("ALE/Pong-v5", "a2c"), num_envs=4, total_steps=400)),
    "recurrent": (
        "gymnasium",
        Experiment(
            "htsrl/HiddenCartPole-v0",
            network=Network(recurrent="lstm", recurrent_size=16),
            num_envs=4,
            sync_interval=32,
            total_steps=2048,
        ),
    ),
    "off-policy": (
        "gymnasium",
        Experiment(
            "Pendulum-v1",
            algorithm=SAC(learning_starts=50, minibatch_size=16, replay_capacity=300),
            network=Network(hidden_sizes=(16,)),
            num_envs=2,
            sync_interval=10,
            total_steps=400,
        ),
    ),
    "football": (
        "gfootball",
        replace(preset("football/academy_empty_goal_close-v0"), num_envs=4, sync_interval=32, total_steps=1024),
    ),
}
"""The package that each needs, and some updates."""


@pytest.mark.slow
@pytest.mark.parametrize("name", RUNS)
def test_twenty_random_moments_have_the_hashes_of_the_run(name: str, tmp_path: Path) -> None:
    package, experiment = RUNS[name]
    pytest.importorskip(package)
    placement = Placement(run_dir=tmp_path / "run", checkpoint_every_updates=3, tensorboard=False, progress="off")
    result = train(Config(experiment, placement))
    seed = random.randrange(2**32)
    print(f"seed {seed}")
    pick, links = random.Random(seed), read_links(tmp_path / "run")
    for _ in range(NUM_MOMENTS):
        update, env = pick.randrange(result.updates), pick.randrange(experiment.num_envs)
        rebuilt = replay(tmp_path / "run", update=update, env=env)
        assert rebuilt.is_verified, (seed, update, env, rebuilt.verification)
        assert rebuilt.verification.digest == links[update].chain, (seed, update, env)

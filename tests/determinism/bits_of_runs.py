"""Final parameters and batches of small runs, a line each: what a change that is not about computation leaves equal.

    PYTHONPATH=CHECKOUT python tests/determinism/bits_of_runs.py > after.txt

Run it in two checkouts and compare. It spells out every setting whose default has changed, and hashes what every
version's digest.jsonl holds: parameters after the last update, and the batches of all of them.
"""

from __future__ import annotations

import dataclasses
import json
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import xxhash

import htsrl
from htsrl import A2C, Config, Experiment, Network, Placement

HAS_TODAYS_NAMES = "recurrent" in {f.name for f in dataclasses.fields(Network)}
RECURRENT = "recurrent" if HAS_TODAYS_NAMES else "memory"
UNCORRECTED: dict[str, Any] = {"epochs": 2, "num_minibatches": 4, "lag_correction": "none"}
RECENTERED = {**UNCORRECTED, "lag_correction": "recentered" if HAS_TODAYS_NAMES else "decoupled"}
CARTPOLE = {"env": "CartPole-v1", "env_args": {"max_episode_steps": 60}, "num_envs": 8}
PENDULUM = {"env": "Pendulum-v1", "env_args": {"max_episode_steps": 21}, "num_envs": 8, "sync_interval": 16}
CATCH = {"env": "htsrl/PixelCatch-v0", "env_args": {"step_limit": 17}, "num_envs": 8}
HIDDEN = {"env": "htsrl/HiddenCartPole-v0", "env_args": {"step_limit": 15}, "num_envs": 4, "sync_interval": 8}
MEMOIR = {"env": "htsrl/Memoir-v0", "env_args": {"num_doors": 3, "length": 5, "max_episode_steps": 4}, "num_envs": 4}
CRANE = {"env": "htsrl/Crane-v0", "env_args": {"length": 5}, "num_envs": 4, "sync_interval": 6}
RELAY = {"env": "htsrl/Relay-v0", "num_envs": 4, "sync_interval": 5}
NUM_UPDATES = 8
INLINE: dict[str, Any] = {"backend": "inline"}
PROCESSES: dict[str, Any] = {"backend": "processes", "num_executors": 2}


def ppo(**settings: Any) -> Any:
    return htsrl.PPO(**{**UNCORRECTED, **settings})


def recurrent(core: str, **settings: Any) -> Network:
    size: dict[str, Any] = {RECURRENT: core, f"{RECURRENT}_size": 8}
    return Network(hidden_sizes=(8,), **size, **settings)


def runs() -> dict[str, tuple[dict[str, Any], dict[str, Any]]]:
    """By name the settings of the experiment and of the placement."""
    normalised = {"network": Network(normalize_observations=True), "algorithm": ppo(normalize_rewards=True)}
    long = {**CARTPOLE, "sync_interval": 32}
    masks = {**MEMOIR, "sync_interval": 7, "algorithm": ppo(num_minibatches=2), "network": recurrent("lstm")}
    crane = {
        **CRANE,
        "algorithm": ppo(num_minibatches=2, normalize_rewards=True),
        "network": recurrent("gru", encoder="impala", normalize_observations=True, bounded_actions="squash"),
    }
    truncated = {"backpropagation_length": 4}
    return {
        "cartpole-ppo-hts": ({**long, "algorithm": ppo()}, INLINE),
        "cartpole-ppo-hts-recentered": ({**long, "algorithm": ppo(**RECENTERED)}, INLINE),
        "cartpole-ppo-sync": ({**long, "algorithm": ppo(), "schedule": "sync"}, INLINE),
        "cartpole-ppo-lockstep": ({**long, "algorithm": ppo(), "schedule": "lockstep"}, PROCESSES),
        "cartpole-ppo-processes": ({**long, "algorithm": ppo()}, PROCESSES),
        "cartpole-ppo-value-clip": ({**long, "algorithm": ppo(value_clip_range=0.1, target_kl=0.02)}, INLINE),
        "cartpole-a2c-hts": ({**CARTPOLE, "algorithm": A2C()}, INLINE),
        "cartpole-a2c-sync": ({**CARTPOLE, "algorithm": A2C(), "schedule": "sync"}, INLINE),
        "cartpole-a2c-uncorrected": ({**CARTPOLE, "algorithm": A2C(lag_correction="none")}, INLINE),
        "cartpole-a2c-vtrace": ({**CARTPOLE, "algorithm": A2C(lag_correction="vtrace")}, INLINE),
        "cartpole-a2c-importance": ({**CARTPOLE, "algorithm": A2C(lag_correction="importance")}, INLINE),
        "cartpole-a2c-adam-annealed": ({**CARTPOLE, "algorithm": A2C(optimizer="adam", gae_lambda=0.9)}, PROCESSES),
        "pendulum-ppo": ({**PENDULUM, "algorithm": ppo()}, INLINE),
        "pendulum-ppo-normalised": ({**PENDULUM, **normalised}, INLINE),
        "pendulum-ppo-normalised-sync": ({**PENDULUM, **normalised, "schedule": "sync"}, PROCESSES),
        "pendulum-a2c": ({**PENDULUM, "algorithm": A2C()}, INLINE),
        "catch-a2c": ({**CATCH, "algorithm": A2C()}, INLINE),
        "catch-ppo-shards": ({**CATCH, "sync_interval": 8, "gradient_shards": 4, "algorithm": ppo()}, INLINE),
        "catch-ppo-shards-workers": (
            {**CATCH, "sync_interval": 8, "gradient_shards": 4, "algorithm": ppo()},
            {**PROCESSES, "learner_workers": 2},
        ),
        "hidden-ppo-lstm": ({**HIDDEN, "algorithm": ppo(), "network": recurrent("lstm", **truncated)}, INLINE),
        "hidden-a2c-gru": ({**HIDDEN, "algorithm": A2C(), "network": recurrent("gru")}, PROCESSES),
        "memoir-ppo-masks-lstm": (masks, INLINE),
        "crane-ppo-hybrid-gru": (crane, PROCESSES),
        "relay-ppo-team-lstm": ({**RELAY, "algorithm": ppo(), "network": recurrent("lstm")}, INLINE),
        "relay-a2c-team": ({**RELAY, "algorithm": A2C()}, PROCESSES),
        "cartpole-ppo-seed-7": ({**long, "algorithm": ppo(), "seed": 7}, INLINE),
    }


def bits(run_dir: Path) -> str:
    links = [json.loads(line) for line in (run_dir / "digest.jsonl").read_text().splitlines()]
    batches = [[link["update"], sorted(link["tensors"].items()), link["envs"]] for link in links]
    return f"{len(links):3} {links[-1]['parameters']} {xxhash.xxh3_128_hexdigest(json.dumps(batches).encode())}"


def experiment(settings: dict[str, Any]) -> Experiment:
    given = Experiment(**settings)
    steps = given.num_envs * given.interval_steps
    return dataclasses.replace(given, total_steps=NUM_UPDATES * steps)


def resumed(name: str, settings: dict[str, Any], folder: Path) -> Path:
    """Half of it, and from its last checkpoint to the end; nothing here is annealed."""
    whole, run_dir = experiment(settings), folder / f"{name}-resumed"
    half = dataclasses.replace(whole, total_steps=whole.total_steps // 2)
    htsrl.train(Config(half, placement(INLINE, run_dir)))
    htsrl.resume(run_dir, total_steps=whole.total_steps)
    return run_dir


def placement(given: dict[str, Any], run_dir: Path) -> Placement:
    return Placement(**given, run_dir=run_dir, tensorboard=False, progress="off")


def lines(folder: Path) -> Iterator[str]:
    for name, (settings, given) in runs().items():
        run_dir = folder / name
        htsrl.train(Config(experiment(settings), placement(given, run_dir)))
        yield f"{name:32} {bits(run_dir)}"
    constant = {**CARTPOLE, "algorithm": A2C(anneal_learning_rate=False)}
    yield f"{'cartpole-a2c-resumed':32} {bits(resumed('cartpole-a2c', constant, folder))}"
    constant = {**PENDULUM, "algorithm": ppo(anneal_learning_rate=False)}
    yield f"{'pendulum-ppo-resumed':32} {bits(resumed('pendulum-ppo', constant, folder))}"


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        for line in lines(Path(folder)):
            print(line, flush=True)


if __name__ == "__main__":
    main()

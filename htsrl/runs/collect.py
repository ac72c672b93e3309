"""Collecting a dataset: episodes of a run's policy, or of a random one, as `htsrl eval` would play them.

Episode i is a function of the policy, the seed and i alone, so the same command writes the same bytes.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from htsrl.config import EnvFactory, Experiment, Network
from htsrl.config.file import env_name
from htsrl.datasets.action_rows import in_env_terms
from htsrl.datasets.dataset import Dataset
from htsrl.datasets.random_policy import RandomPolicy
from htsrl.datasets.write import Recorded
from htsrl.digest import read_links
from htsrl.envs.agents import Outcome
from htsrl.envs.look import interface_of
from htsrl.envs.make import make_env
from htsrl.envs.observing import Rows
from htsrl.envs.team import team_size_of
from htsrl.errors import ConfigError, RunFolderError
from htsrl.roles.episode import number_in
from htsrl.runs.folder import RunFolder
from htsrl.runs.load_policy import policy_of
from htsrl.runs.play import Episodes, Player, Watch, play
from htsrl.runs.saved_policy import Choice
from htsrl.runs.trust import Vouched, admitted_config
from htsrl.spaces import Interface


@dataclass(frozen=True)
class Collected:
    """Which episodes a dataset is to hold."""

    episodes: int = 100
    seed: int = 0
    sampled: bool = False
    env_args: Mapping[str, Any] | None = None
    """Beside those of the run, or in place of them."""

    def check(self) -> None:
        if self.episodes < 1:
            raise ConfigError(f"episodes={self.episodes} must be at least 1")
        if not 0 <= self.seed < 2**63:
            raise ConfigError(f"seed={self.seed} must be from 0 to 2**63 - 1")


def collect(
    run_dir: Path | str,
    asked: Collected,
    checkpoint: Choice = "newest",
    env: str | EnvFactory | None = None,
    imports: Sequence[str] = (),
    trust: bool = False,
    watch: Watch | None = None,
) -> Dataset:
    """Episodes of a run's policy: its most likely actions, or sampled ones. docs/security.md tells of `imports` and
    `trust`."""
    asked.check()
    folder = RunFolder.existing(Path(run_dir))
    config = admitted_config(folder.config_file, env, Vouched(imports=imports, everything=trust))
    experiment = replace(config.experiment, env_args={**config.experiment.env_args, **(asked.env_args or {})})
    policy = policy_of(folder, experiment, folder.interface(), checkpoint)
    origin = {"policy": "run", "digest": _digest_at(folder, policy.version), "version": policy.version}
    return _collected(policy, experiment, asked, origin, watch)


def collect_at_random(
    env: str | EnvFactory, asked: Collected, imports: Sequence[str] = (), watch: Watch | None = None
) -> Dataset:
    """Episodes of random actions, uniform within their bounds and among the choices that a mask allows."""
    asked.check()
    experiment = Experiment(env, dict(asked.env_args or {}), tuple(imports))
    looked_at = make_env(experiment.env, experiment.env_args, experiment.imports)
    try:
        interface = interface_of(looked_at, Network(bounded_actions="clip"))
    finally:
        looked_at.close()
    asked = replace(asked, sampled=True)
    return _collected(RandomPolicy(interface), experiment, asked, {"policy": "random"}, watch)


def _collected(
    policy: Player, experiment: Experiment, asked: Collected, origin: Mapping[str, Any], watch: Watch | None
) -> Dataset:
    fixed_dt = _checked_dt(experiment)
    recorder = EpisodeRecorder(policy.interface, fixed_dt)
    play(policy, experiment, Episodes(asked.episodes, asked.seed, asked.sampled), watch, recorder)
    played = {"seed": asked.seed, "sampled": asked.sampled, "episodes": asked.episodes}
    name = env_name(experiment.env)
    env = {"id": name, "args": dict(experiment.env_args)}
    return recorder.recorded(env, {**origin, "env": env, **played}).as_dataset("what was played")


class EpisodeRecorder:
    """Keeps every step of episodes that are played side by side."""

    def __init__(self, interface: Interface, fixed_dt: float | None = None) -> None:
        """`fixed_dt` is for environments that say their control period once, rather than in every `info`."""
        self._interface = interface
        self._fixed_dt = fixed_dt
        self._episodes: dict[int, list[_Episode]] = {}

    def begin(self, episode: int, observations: Rows) -> None:
        self._episodes.setdefault(episode, []).append(_Episode())
        self._see(episode, observations)

    def add(self, episode: int, stored_actions: NDArray[Any], outcome: Outcome, observations: Rows) -> None:
        here = self._episodes[episode][-1]
        dt = number_in(outcome.info, "dt")
        dt = self._fixed_dt if math.isnan(dt) and self._fixed_dt is not None else dt
        here.steps.append((np.array(stored_actions[0]), outcome.rewards, outcome.terminated, outcome.cut, dt))
        self._see(episode, observations)

    def recorded(self, env: Mapping[str, Any], origin: Mapping[str, Any]) -> Recorded:
        """All of them, in the order of their numbers."""
        episodes = [life for _, lives in sorted(self._episodes.items()) for life in lives if life.steps]
        actions, rewards, terminated, truncated, dt = zip(*(step for of in episodes for step in of.steps), strict=True)
        layout = self._interface.actions
        arrays: dict[str, NDArray[Any]] = {
            "actions": in_env_terms(layout, np.array(actions, layout.dtype)),
            "rewards": np.array(rewards, np.float32),
            "terminated": np.array(terminated, np.bool_),
            "truncated": np.array(truncated, np.bool_),
        }
        for name, leaf in self._interface.observations.items():
            arrays[name] = np.array([seen[name] for of in episodes for seen in of.seen], leaf.dtype)
        if not np.isnan(dt).all():
            arrays["dt"] = np.array(dt, np.float32)
        return Recorded(self._interface, [len(of.steps) for of in episodes], arrays, env, [origin])

    def _see(self, episode: int, observations: Rows) -> None:
        self._episodes[episode][-1].seen.append({name: np.array(rows[0]) for name, rows in observations.items()})


class _Episode:
    def __init__(self) -> None:
        self.seen: list[dict[str, NDArray[Any]]] = []
        self.steps: list[tuple[NDArray[Any], float, bool, bool, float]] = []


def _checked_dt(experiment: Experiment) -> float | None:
    """The control period that the environment has as an attribute `dt`, if any; ConfigError for a team."""
    env = make_env(experiment.env, experiment.env_args, experiment.imports)
    try:
        if (size := team_size_of(env)) is not None:
            raise ConfigError(
                f"{env_name(experiment.env)} holds a team of {size} agents, and a dataset holds episodes of one agent"
            )
        dt = getattr(env.unwrapped, "dt", None)
    finally:
        env.close()
    return float(dt) if isinstance(dt, float | np.floating) and math.isfinite(dt) and dt > 0 else None


def _digest_at(folder: RunFolder, version: int) -> str | None:
    """The run's digest at that version; None where its folder does not say."""
    try:
        links = read_links(folder.path)
    except RunFolderError:
        return None
    return links[version - 1].chain if 0 < version <= len(links) else None

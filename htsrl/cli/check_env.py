"""`htsrl check-env`: is this environment fit for reproducible training, and how should it be run?"""

from __future__ import annotations

import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import tyro

from htsrl.cli.train import Repeatable, parse_env_arg
from htsrl.config import Config, Experiment
from htsrl.config.check import check
from htsrl.config.file import resolve_typed_env
from htsrl.envs.check.check import DEFAULT_DEADLINE_SECONDS, DEFAULT_STEPS, check_env
from htsrl.envs.check.findings import Report


@dataclass(frozen=True)
class CheckEnv:
    """Say whether an environment keeps the rules, repeats itself to the bit, and how fast it is: exit code 0 or 1."""

    env: Annotated[tyro.conf.Positional[str], tyro.conf.arg(metavar="ENV_ID")]
    """A Gymnasium id such as CartPole-v1, module:Env-v0, or MODULE:FUNCTION that returns an environment."""
    env_arg: Annotated[Repeatable, tyro.conf.arg(metavar="KEY=VALUE")] = ()
    """An argument for the environment's constructor, the value in JSON."""
    imports: Annotated[Repeatable, tyro.conf.arg(name="import", metavar="MODULE")] = ()
    """Import this module in every process first, for environments that register themselves."""
    steps: int = DEFAULT_STEPS
    """How many steps are played, and played again in another process."""
    seed: int = 1
    """Of the resets and the random actions."""
    lanes: int | None = None
    """Check the batched simulator that a run with so many lanes would have, instead of a single environment."""
    num_envs: int = 16
    """With --lanes: environments in all lanes."""
    plot: Annotated[Path | None, tyro.conf.arg(metavar="FILE.png")] = None
    """Draw the distribution of step times, and what the barrier costs, into this file."""
    deadline_seconds: float = DEFAULT_DEADLINE_SECONDS
    """A process that is silent for so long, in one step or reset, is ended."""

    def run(self) -> int:
        if self.lanes is not None:
            lane_report = self._check_lane(self.lanes)
            print(lane_report)
            return int(lane_report.failed)
        report = check_env(
            resolve_typed_env(self.env),
            env_args=dict(parse_env_arg(text) for text in self.env_arg),
            imports=self.imports,
            steps=self.steps,
            seed=self.seed,
            deadline_seconds=self.deadline_seconds,
            plot=self.plot,
            announce=_announce,
        )
        print(report)
        return int(report.failed)

    def _check_lane(self, lanes: int) -> Report:
        from htsrl.envs.check.lanes import check_lanes

        env_args = dict(parse_env_arg(text) for text in self.env_arg)
        env = resolve_typed_env(self.env)
        experiment = Experiment(env, env_args, self.imports, num_envs=self.num_envs, lanes=lanes, seed=self.seed)
        _announce(f"playing {self.steps:,} steps of a lane")
        return check_lanes(check(Config(experiment)).experiment, self.steps)


def _announce(stage: str) -> None:
    print(f"{stage} ...", file=sys.stderr, flush=True)

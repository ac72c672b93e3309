"""`htsrl plan`: which placement would be the fastest here, and what would help; it can change no bit of a result."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Annotated, Any

import tyro

from htsrl.cli.folder import find_modules_here
from htsrl.cli.train import Repeatable, parse_env_arg
from htsrl.config import Config, Experiment, available_cores
from htsrl.config.algorithm_settings import settings_class
from htsrl.config.check import check
from htsrl.config.command_line import train_command
from htsrl.config.file import resolve_typed_env
from htsrl.config.presets import preset, preset_name, presets_of
from htsrl.errors import ConfigError
from htsrl.planning.lag_price import lag_price
from htsrl.planning.measure import DEFAULT_SECONDS, StepCosts, measure
from htsrl.planning.model import Prediction, best, changes

SHOWN = 6
WORDS = {
    "environments": "the environments: executors take longer than the learner",
    "learning": "learning: executors wait for the learner",
    "cores": "the cores: all of them are busy",
}


@dataclass(frozen=True)
class PlanCommand:
    """Measure an experiment's parts for a few seconds, predict steps/s of placements, and print the best command."""

    env: Annotated[tyro.conf.Positional[str], tyro.conf.arg(metavar="ENV_ID")]
    """As for `htsrl train`."""
    algo: str = "ppo"
    """Algorithm, by name or MODULE:CLASS, with its usual settings or those of the environment's preset."""
    env_arg: Annotated[Repeatable, tyro.conf.arg(metavar="KEY=VALUE")] = ()
    """An argument for the environment's constructor, the value in JSON."""
    imports: Annotated[Repeatable, tyro.conf.arg(name="import", metavar="MODULE")] = ()
    """Import this module first, for environments that register themselves."""
    schedule: str = "hts"
    """hts or sync."""
    num_envs: int | None = None
    """Environments. None: the preset's number, or 16."""
    lanes: int | None = None
    """Batched simulators that step them."""
    sync_interval: int | None = None
    """Alpha. None: that of the preset, or of the algorithm."""
    gradient_shards: int | None = None
    """Parts of every gradient. None: the preset's number, or 1."""
    cores: int | None = None
    """Plan for so many cores. None: those that there are."""
    seconds: float = DEFAULT_SECONDS
    """About how long to measure; two updates at least."""

    def run(self) -> int:
        find_modules_here()
        experiment, cores = self.experiment(), self.cores or available_cores()
        if cores < 1 or self.seconds <= 0:
            raise ConfigError(f"cores={cores} must be at least 1 and seconds={self.seconds:g} above 0")
        costs = measure(experiment, self.seconds)
        print("\n".join([*_costs_lines(costs), "", *_plan_lines(experiment, costs, cores)]))
        return 0

    def experiment(self) -> Experiment:
        """What is planned for, checked."""
        name = preset_name(self.env)
        env_args = dict(parse_env_arg(text) for text in self.env_arg)
        if name in presets_of(self.algo):
            base = preset(self.env, self.algo)
        else:
            base = Experiment(self.env, algorithm=settings_class(self.algo)())
        asked = {"num_envs": self.num_envs, "lanes": self.lanes, "sync_interval": self.sync_interval}
        asked["gradient_shards"] = self.gradient_shards
        given: dict[str, Any] = {key: value for key, value in asked.items() if value is not None}
        experiment = replace(
            base,
            env=resolve_typed_env(self.env),
            env_args=env_args,
            imports=self.imports,
            schedule=self.schedule,
            **given,
        )
        checked = check(Config(experiment)).experiment
        if checked.mixes_versions:
            raise ConfigError(f"schedule={self.schedule} has no barrier to plan for; use hts or sync")
        return checked


def _costs_lines(costs: StepCosts) -> list[str]:
    rest = costs.collecting - costs.simulator - costs.inference[max(costs.inference)]
    lines = [
        f"simulator   {_shown(costs.simulator)} of a core for a step"
        + (f", {_shown(costs.simulator_wall)} by the clock: it waits" if costs.waits else ""),
        f"inference   {_shown(costs.inference[max(costs.inference)])}, all environments at once",
        f"runtime     {_shown(max(rest, 0.0))}, between the two",
        f"learning    {_shown(costs.learning)}, of which gradients are {costs.gradient / costs.learning:.0%}",
    ]
    return ["what a step takes on this machine", *lines]


def _plan_lines(experiment: Experiment, costs: StepCosts, cores: int) -> list[str]:
    predictions = best(experiment, costs, cores)
    chosen = predictions[0]
    lines = [f"predicted for {cores} cores ({experiment.schedule}, alpha {experiment.interval_steps})"]
    lines += [_row(prediction) for prediction in predictions[:SHOWN]]
    lines += ["", f"bottleneck  {WORDS[chosen.bottleneck]}"]
    for change in changes(experiment, costs, cores):
        note = ", but changes the experiment" if change.changes_experiment else ""
        lines.append(f"would help  {change.what}: {change.gain:+.0%}{note}")
    lines += lag_price(experiment, costs, cores)
    if isinstance(experiment.env, str):
        lines += ["", f"{train_command(experiment)} {chosen.layout.flags}"]
    else:
        lines += ["", f"placement   {chosen.layout.flags}"]
    return lines


def _row(prediction: Prediction) -> str:
    return f"{prediction.steps_per_second:>12,.0f} steps/s  {prediction.layout.flags}"


def _shown(seconds: float) -> str:
    return f"{seconds * 1e3:,.3g} ms" if seconds >= 1e-3 else f"{seconds * 1e6:,.3g} us"

"""Which settings trial k has: a function of the search's seed and of the trials that it may know, in their order.

Optuna's samplers are asked in logical time. For every trial a new study is filled with what that trial may know,
trials 0 to k - 1 - lag as they ended and the `lag` trials after them as under way, and a new sampler, whose seed
follows from the search's and k, is asked once. So neither the order in which trials happen to end, nor kills, nor the
number of workers can change a proposal.
"""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import xxhash

from htsrl.sweeps.space import Choices, Dimension, grid_of
from htsrl.sweeps.spec import SweepSpec
from htsrl.sweeps.trials import Trial

if TYPE_CHECKING:
    from optuna import Study
    from optuna.distributions import BaseDistribution
    from optuna.samplers import BaseSampler
    from optuna.trial import FrozenTrial

Settings = Mapping[str, Any]


class Proposer:
    """Proposes trials one after another."""

    def __init__(self, spec: SweepSpec) -> None:
        self._spec = spec
        self._grid = grid_of(spec.space) if spec.search.sampler == "grid" else None
        self._proposed: list[Settings] = []
        self._sampler_notes: list[Mapping[str, Any]] = []
        """What a sampler wrote to each trial, as CMA-ES does with its state."""

    @property
    def num_trials(self) -> int:
        return self._spec.search.trials if self._grid is None else min(self._spec.search.trials, len(self._grid))

    def propose(self, known: Sequence[Trial]) -> Settings:
        """The next trial's settings; `known` are the trials that it may know."""
        number = len(self._proposed)
        if self._grid is not None:
            self._proposed.append(self._grid[number])
            return self._grid[number]
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # Optuna calls half of its samplers' options experimental
            settings, notes = self._ask(number, known)
        self._proposed.append(settings)
        self._sampler_notes.append(notes)
        return settings

    def _ask(self, number: int, known: Sequence[Trial]) -> tuple[Settings, Mapping[str, Any]]:
        import optuna

        optuna.logging.set_verbosity(optuna.logging.ERROR)
        study = optuna.create_study(direction=self._spec.search.direction, sampler=self._sampler(number))
        for earlier in range(number):
            told = known[earlier] if earlier < len(known) else None
            study.add_trial(self._frozen(earlier, told))
        space = self._spec.space
        asked = study.ask({name: distribution(dimension) for name, dimension in space.items()})
        settings = {name: _value(space[name], asked.params[name]) for name in space}
        return settings, study.trials[-1].system_attrs

    def _sampler(self, number: int) -> BaseSampler:
        from optuna.samplers import CmaEsSampler, RandomSampler, TPESampler

        search = self._spec.search
        seed = xxhash.xxh3_64_intdigest(f"{search.seed} {number}".encode()) & 0x7FFFFFFF
        if search.sampler == "random":
            return RandomSampler(seed=seed)
        startup = search.startup_trials
        if search.sampler == "cmaes":
            return CmaEsSampler(seed=seed, n_startup_trials=startup, warn_independent_sampling=False)
        return TPESampler(seed=seed, n_startup_trials=startup, constant_liar=True)

    def _frozen(self, number: int, told: Trial | None) -> FrozenTrial:
        from optuna.trial import TrialState

        states = {"complete": TrialState.COMPLETE, "pruned": TrialState.PRUNED, "failed": TrialState.FAIL}
        state = TrialState.RUNNING if told is None else states[told.state]
        value = told.value if told is not None and told.state == "complete" else None
        at_steps = dict(told.at_steps) if told is not None else {}
        return frozen_trial(
            self._spec.space, self._proposed[number], state, value, at_steps, self._sampler_notes[number]
        )


def frozen_trial(
    space: Mapping[str, Dimension],
    settings: Settings,
    state: Any,
    value: float | None,
    at_steps: Mapping[int, float] | None = None,
    notes: Mapping[str, Any] | None = None,
) -> FrozenTrial:
    """A trial as Optuna has it."""
    from optuna.trial import create_trial

    return create_trial(
        state=state,
        value=value,
        params={name: _internal(space[name], settings[name]) for name in space},
        distributions={name: distribution(dimension) for name, dimension in space.items()},
        intermediate_values=dict(at_steps or {}),
        system_attrs=dict(notes or {}),
    )


def study_of(spec: SweepSpec, trials: Sequence[Trial]) -> Study:
    """All trials that were completed, for Optuna's analyses."""
    import optuna
    from optuna.trial import TrialState

    optuna.logging.set_verbosity(optuna.logging.ERROR)
    study = optuna.create_study(direction=spec.search.direction)
    for trial in trials:
        if trial.state == "complete":
            study.add_trial(frozen_trial(spec.space, trial.settings, TrialState.COMPLETE, trial.value))
    return study


def distribution(dimension: Dimension) -> BaseDistribution:
    """Choices by their place: Optuna takes numbers and text alone."""
    from optuna.distributions import CategoricalDistribution, FloatDistribution, IntDistribution

    if isinstance(dimension, Choices):
        return CategoricalDistribution(tuple(range(len(dimension.values))))
    if dimension.kind == "int":
        step = 1 if dimension.step is None else int(dimension.step)
        return IntDistribution(int(dimension.low), int(dimension.high), log=dimension.log, step=step)
    return FloatDistribution(dimension.low, dimension.high, log=dimension.log, step=dimension.step)


def _value(dimension: Dimension, internal: Any) -> Any:
    return dimension.values[internal] if isinstance(dimension, Choices) else internal


def _internal(dimension: Dimension, value: Any) -> Any:
    if not isinstance(dimension, Choices):
        return value
    return dimension.values.index(tuple(value) if isinstance(value, list) else value)

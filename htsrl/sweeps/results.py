"""What a sweep leaves behind: the best settings with their command, all trials, what mattered, and slices."""

from __future__ import annotations

import shlex
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from htsrl.config.command_line import train_command
from htsrl.errors import HtsrlError
from htsrl.runs.folder import RunFolder
from htsrl.sweeps.proposals import study_of
from htsrl.sweeps.seeds import shown_seeds
from htsrl.sweeps.spec import SweepSpec
from htsrl.sweeps.trials import Trial

RESULT_FILE, ANALYSIS_FILE = "sweep_result.json", "analysis.json"
MIN_TRIALS_FOR_IMPORTANCE = 4


@dataclass(frozen=True)
class SweepResult:
    """How a sweep ended."""

    folder: Path
    trials: Sequence[Trial]
    best: Trial | None
    """None where no trial was completed."""
    command: str | None
    """Trains with the best settings; None where the environment is a callable without a name."""
    importance: Mapping[str, float]
    """How much of the objective's spread each setting accounts for, in all 1; empty where too few were completed."""


def write_results(spec: SweepSpec, folder: Path, trials: Sequence[Trial]) -> SweepResult:
    best = best_of(trials, spec.maximize)
    command = None if best is None else command_of(spec, best)
    result = SweepResult(folder, trials, best, command, importance_of(spec, trials))
    documents = {
        RESULT_FILE: {
            "best": None if best is None else best.document(),
            "command": result.command,
            "trials": [trial.document() for trial in trials],
        },
        ANALYSIS_FILE: {"importance": dict(result.importance), "slices": slices_of(spec, trials)},
    }
    for name, document in documents.items():
        try:
            RunFolder(folder).save_json(folder / name, document)
        except OSError as error:
            raise HtsrlError(
                f"cannot write {folder / name}: {error.strerror}; make room, and the same command writes it"
            ) from error
    return result


def best_of(trials: Sequence[Trial], maximize: bool) -> Trial | None:
    """Of equals the first."""
    completed = [trial for trial in trials if trial.state == "complete" and trial.value is not None]
    return max(completed, key=lambda trial: (trial.value or 0.0) * (1 if maximize else -1), default=None)


def command_of(spec: SweepSpec, trial: Trial) -> str | None:
    experiment = spec.config_of(trial.settings).experiment
    if not isinstance(experiment.env, str):
        return None
    words = shlex.split(train_command(experiment))
    place = words.index("--seed")
    words[place : place + 2] = ["--seeds", shown_seeds(spec.search.seeds)]
    return shlex.join(words)


def importance_of(spec: SweepSpec, trials: Sequence[Trial]) -> dict[str, float]:
    """PED-ANOVA (https://arxiv.org/abs/2304.10255) over completed trials, from the most important on."""
    values = [trial.value for trial in trials if trial.state == "complete"]
    if len(values) < MIN_TRIALS_FOR_IMPORTANCE or len(set(values)) < 2:
        return {}
    try:
        from optuna.importance import PedAnovaImportanceEvaluator, get_param_importances
    except ImportError:  # a grid needs no Optuna
        return {}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            found = get_param_importances(study_of(spec, trials), evaluator=PedAnovaImportanceEvaluator())
        except (RuntimeError, ValueError):  # too few trials differ in any setting
            return {}
    return {name: float(share) for name, share in found.items()}


def slices_of(spec: SweepSpec, trials: Sequence[Trial]) -> dict[str, list[dict[str, Any]]]:
    """By setting, its value and what came of it, trial by trial."""
    return {
        name: [
            {"trial": trial.number, "value": trial.settings[name], "objective": trial.value, "state": trial.state}
            for trial in trials
        ]
        for name in spec.space
    }

"""Sweeps: the same trials and result whatever the timing, kills and number of workers."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from pretended_runs import Killed, launcher

from htsrl.errors import ConfigError, HtsrlError, UntrustedFolder
from htsrl.runs.trust import Vouched
from htsrl.sweeps import pool, sweep
from htsrl.sweeps.job import JobEnd
from htsrl.sweeps.pruning import Pruning
from htsrl.sweeps.results import RESULT_FILE
from htsrl.sweeps.seeds import parse_seeds, shown_seeds
from htsrl.sweeps.spec import SweepSpec, parse_spec, read_spec

TRAIN = {"env": "CartPole-v1", "num_envs": 2, "sync_interval": 8, "total_steps": 96, "tensorboard": False}
SPACE = {
    "learning_rate": {"low": 1e-5, "high": 1e-1, "log": True},
    "epochs": {"low": 1, "high": 8},
    "activation": ["tanh", "relu"],
    "hidden_sizes": [[8], [8, 8]],
}


@pytest.fixture(autouse=True)
def no_waiting(monkeypatch: pytest.MonkeyPatch) -> None:
    """Pretended runs move on when they are looked at."""
    monkeypatch.setattr(pool, "POLL_SECONDS", 0.0)
    monkeypatch.setattr(sweep, "LOOK_SECONDS", 0.0)


def spec(
    space: dict[str, Any] | None = None, train: dict[str, Any] | None = None, pruning: Any = None, **search: Any
) -> SweepSpec:
    document = {"sweep": search, "train": train or TRAIN, "space": space or SPACE}
    return parse_spec(document | ({"pruning": pruning} if pruning else {}), "test", Vouched())


def result_of(folder: Path) -> Any:
    return json.loads((folder / RESULT_FILE).read_text())


PRUNING = {"rule": "median", "at": [32, 64], "min_trials": 2}
KINDS = [
    pytest.param({"sampler": "tpe", "startup_trials": 3, "pruning": PRUNING}, id="tpe with pruning"),
    pytest.param({"sampler": "cmaes", "startup_trials": 3, "seeds": [1, 2]}, id="cmaes with two seeds"),
    pytest.param({"sampler": "random", "pruning": {"rule": "halving", "every": 32}}, id="random with halving"),
    pytest.param({"sampler": "grid", "objective": "evaluation"}, id="grid"),
]
GRID = {"learning_rate": [1e-4, 1e-3, 1e-2], "epochs": {"low": 1, "high": 4}}


@pytest.mark.parametrize("search", KINDS)
def test_timing_kills_and_workers_do_not_change_trials_or_result(search: dict[str, Any], tmp_path: Path) -> None:
    asked = spec(trials=12, **search, space=GRID if search["sampler"] == "grid" else None)
    sweep.run_sweep(asked, tmp_path / "alone", parallel=1, cores=1, launch=launcher(0))
    sweep.run_sweep(asked, tmp_path / "many", parallel=5, cores=5, launch=launcher(1))
    for attempt, kill_after in enumerate((4, 5, None)):
        launch = launcher(2 + attempt, kill_after)
        try:
            sweep.run_sweep(asked, tmp_path / "killed", parallel=3, cores=3, launch=launch)
        except Killed:
            assert kill_after is not None
    alone = result_of(tmp_path / "alone")
    assert result_of(tmp_path / "many") == alone
    assert result_of(tmp_path / "killed") == alone
    assert len(alone["trials"]) == 12
    if "pruning" in search:
        assert {"pruned", "complete"} == {trial["state"] for trial in alone["trials"]}


@pytest.mark.parametrize("seeds", [[1], [1, 2, 4]])
def test_timing_does_not_decide_whether_a_run_that_diverges_was_pruned_before(seeds: list[int], tmp_path: Path) -> None:
    pruning = {"rule": "median", "at": [32, 48, 64], "min_trials": 1}
    asked = spec(GRID, pruning=pruning, sampler="grid", seeds=seeds)
    for timing in range(6):
        launch = launcher(timing, diverges_above=5e-3)
        sweep.run_sweep(asked, tmp_path / str(timing), 1 + timing, 1 + timing, launch=launch)
    results = [result_of(tmp_path / str(timing)) for timing in range(6)]
    assert results[1:] == results[:1] * 5
    assert {"pruned", "complete", "failed"} == {trial["state"] for trial in results[0]["trials"]}


def test_a_journal_cut_in_the_middle_of_a_line_costs_nothing(tmp_path: Path) -> None:
    asked = spec(trials=6, sampler="tpe", startup_trials=2)
    sweep.run_sweep(asked, tmp_path, parallel=2, cores=2, launch=launcher(0))
    before, journal = result_of(tmp_path), tmp_path / sweep.JOURNAL_FILE
    journal.write_bytes(journal.read_bytes()[:-20])
    (tmp_path / RESULT_FILE).unlink()
    sweep.run_sweep(asked, tmp_path, parallel=2, cores=2, launch=launcher(5))
    assert result_of(tmp_path) == before


def test_more_trials_leave_the_first_ones_as_they_were(tmp_path: Path) -> None:
    sweep.run_sweep(spec(trials=5, startup_trials=2), tmp_path, 2, 2, launch=launcher(0))
    five = result_of(tmp_path)["trials"]
    sweep.run_sweep(spec(trials=9, startup_trials=2), tmp_path, 2, 2, launch=launcher(1))
    assert result_of(tmp_path)["trials"][:5] == five


def test_a_trial_knows_only_trials_that_are_lag_before_it(tmp_path: Path) -> None:
    """With a lag of 0 it knows all of them, and so the fourth differs from one that knows none."""
    for lag in (0, 8):
        sweep.run_sweep(spec(trials=8, startup_trials=3, lag=lag), tmp_path / str(lag), 1, 1, launch=launcher(0))
    patient, hasty = (result_of(tmp_path / lag)["trials"] for lag in ("0", "8"))
    assert [t["settings"] for t in patient[:3]] == [t["settings"] for t in hasty[:3]]
    assert [t["settings"] for t in patient[3:]] != [t["settings"] for t in hasty[3:]]


def test_another_specification_in_the_same_folder_is_refused(tmp_path: Path) -> None:
    sweep.run_sweep(spec(trials=2), tmp_path, 1, 1, launch=launcher(0))
    with pytest.raises(ConfigError, match=r"holds another sweep(.|\n)*sweep.seed: 0 -> 3"):
        sweep.run_sweep(spec(trials=2, seed=3), tmp_path, 1, 1, launch=launcher(0))


def test_a_changed_journal_is_refused(tmp_path: Path) -> None:
    sweep.run_sweep(spec(trials=2), tmp_path, 1, 1, launch=launcher(0))
    journal = tmp_path / sweep.JOURNAL_FILE
    journal.write_text(journal.read_text().replace('"epochs": ', '"epochs": 1'))
    with pytest.raises(HtsrlError, match="would now be another"):
        sweep.run_sweep(spec(trials=2), tmp_path, 1, 1, launch=launcher(0))


def test_settings_that_do_not_go_together_fail_a_trial_and_not_the_sweep(tmp_path: Path) -> None:
    """Batches of 8 do not divide into 16 minibatches, those of 16 do."""
    train = {**TRAIN, "num_envs": 1, "sync_interval": 16, "normalize_advantages": False}
    asked = spec({"num_minibatches": [16, 1], "sync_interval": [16, 8]}, train, sampler="grid")
    result = sweep.run_sweep(asked, tmp_path, 1, 1, launch=launcher(0))
    assert [trial.state for trial in result.trials] == ["complete", "failed", "complete", "complete"]
    assert "do not divide" in result.trials[1].reason


class Ending:
    """A job that ends at once, in one way."""

    def __init__(self, end: JobEnd) -> None:
        self._end = end

    def has_ended(self) -> bool:
        return True

    def terminate(self) -> None:
        return

    def end(self) -> JobEnd:
        return self._end


def test_a_sweep_whose_first_trials_all_fail_stops_and_says_why(tmp_path: Path) -> None:
    end = JobEnd("TrainingDiverged", "a gradient is not finite")
    for _ in range(2):  # the second time as the journal has it
        with pytest.raises(HtsrlError, match="first 3 trials failed, the last with: seed 1: a gradient is not finite"):
            sweep.run_sweep(spec(trials=9), tmp_path, 2, 2, launch=lambda job: Ending(end))


def test_a_run_that_dies_is_no_result_and_its_trial_is_made_later(tmp_path: Path) -> None:
    asked = spec(trials=4)
    with pytest.raises(HtsrlError, match=r"trial 0, seed 1: out of memory\n.*the same command continues"):
        sweep.run_sweep(asked, tmp_path / "died", 2, 2, launch=lambda job: Ending(JobEnd("died", "out of memory")))
    sweep.run_sweep(asked, tmp_path / "died", 2, 2, launch=launcher(0))
    sweep.run_sweep(asked, tmp_path / "whole", 2, 2, launch=launcher(1))
    assert result_of(tmp_path / "died") == result_of(tmp_path / "whole")


BAD = [
    ({"space": {"learning_rat": [1e-3, 1e-4]}}, "unknown setting 'learning_rat' .*did you mean 'learning_rate'"),
    ({"space": {"learning_rate": {"low": 1e-2, "high": 1e-3}}}, "low=0.01 must be below high=0.001"),
    ({"space": {"learning_rate": {"low": -1, "high": 1e-3}}}, "learning_rate=-1.0 must be above 0"),
    ({"space": {"learning_rate": {"low": 0, "high": 1e-3, "log": True}}}, "low=0 must be above 0 with log"),
    ({"space": {"epochs": {"low": 1.5, "high": 3}}}, "low=1.5 must be a whole number"),
    ({"space": {"activation": ["tanh", "relux"]}}, "activation='relux' must be tanh, relu"),
    ({"space": {"seed": [1, 2]}}, "a seed is not searched for"),
    ({"space": {"num_executors": [1, 2]}}, "part of the placement"),
    ({"space": {}}, "must name at least one setting"),
    ({"sweep": {"seeds": "5..1"}}, "runs backwards; write 1..5"),
    ({"sweep": {"seeds": [1, 1]}}, "names 1 twice"),
    ({"sweep": {"sampler": "bayes"}}, "use one of tpe, random, grid, cmaes"),
    ({"sweep": {"sampler": "grid"}}, "sampler=grid needs a list of choices"),
    ({"sweep": {"metric": "eval/mean_return"}}, 'use objective = "evaluation"'),
    ({"sweep": {"trial": 5}}, "unknown key 'trial'"),
    ({"pruning": {"at": [64, 32]}}, "must rise and be below total_steps"),
    ({"train": {"num_envs": 2}}, "names no environment"),
    ({"train": {**TRAIN, "seed": 3}}, "give `seeds` in"),
    ({"tain": {}}, "unknown table 'tain'"),
]


@pytest.mark.parametrize(("changes", "message"), BAD)
def test_a_bad_specification_is_one_error_with_the_way_out(changes: dict[str, Any], message: str) -> None:
    document: dict[str, Any] = {"sweep": {}, "train": TRAIN, "space": {"learning_rate": {"low": 1e-5, "high": 1e-2}}}
    with pytest.raises(ConfigError, match=message):
        parse_spec({**document, **changes}, "test", Vouched())


def test_a_specification_that_names_code_is_not_imported(tmp_path: Path) -> None:
    path = tmp_path / "spec.toml"
    path.write_text('[train]\nenv = "somebodys_module:make"\n[space]\nepochs = [1, 2]\n')
    with pytest.raises(UntrustedFolder, match="somebodys_module"):
        read_spec(path, Vouched())


def test_seeds_are_written_as_ranges_and_lists() -> None:
    assert parse_seeds("1..5") == (1, 2, 3, 4, 5)
    assert parse_seeds("1,2,7") == parse_seeds([1, 2, 7]) == (1, 2, 7)
    assert parse_seeds(3) == (3,)
    assert parse_seeds(shown_seeds((4, 5, 6, 7))) == (4, 5, 6, 7)


def test_pruning_by_hand() -> None:
    median, halving = Pruning("median", (1,), min_trials=3), Pruning("halving", (1,), min_trials=3, factor=2)
    assert median.gives_up(1.9, [1.0, 2.0, 3.0], maximize=True)
    assert not median.gives_up(2.0, [1.0, 2.0, 3.0], maximize=True)
    assert median.gives_up(2.1, [1.0, 2.0, 3.0], maximize=False)
    assert not median.gives_up(0.0, [1.0, 2.0], maximize=True)  # too few to know
    # Of four, one and three others, two continue.
    assert not halving.gives_up(2.5, [1.0, 2.0, 3.0], maximize=True)
    assert halving.gives_up(1.5, [1.0, 2.0, 3.0], maximize=True)

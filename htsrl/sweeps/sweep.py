"""A search for better settings: the same trials and result whatever the timing, kills and number of workers."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

from htsrl.config.check import check
from htsrl.config.file import differences
from htsrl.errors import ConfigError, HtsrlError, RunFolderError
from htsrl.metrics.readings import counted
from htsrl.plain_files import read_document
from htsrl.runs.folder import RunFolder
from htsrl.runs.lock import RunLock
from htsrl.runs.trust import Vouched
from htsrl.sweeps.identity import identity_of
from htsrl.sweeps.job import JobProcess, TrainJob
from htsrl.sweeps.pool import Budget, Launch, Pool
from htsrl.sweeps.proposals import Proposer
from htsrl.sweeps.results import SweepResult, write_results
from htsrl.sweeps.running import RunningTrial
from htsrl.sweeps.spec import SweepSpec, parse_spec, read_spec
from htsrl.sweeps.table import Table, short
from htsrl.sweeps.trials import Journal, Trial, read_journal

LOOK_SECONDS = 0.5
HOPELESS = 3
"""When so many trials have failed and none has not, the specification is at fault."""
SWEEP_FILE, JOURNAL_FILE = "sweep.json", "trials.jsonl"
RunKey = tuple[int, int]
"""A trial's number and a seed."""


def sweep(
    spec: str | Path | Mapping[str, Any] | SweepSpec,
    run_dir: str | Path | None = None,
    parallel: int | None = None,
    cores: int | None = None,
    trust: bool = False,
) -> SweepResult:
    """Search for settings as a specification says: a TOML file, or its tables as mappings (docs/sweeps.md).

    A sweep that was interrupted continues when it is called again with the same folder, to the same result. In tables
    `train.env` may also be a callable. Raises ConfigError before anything starts if it cannot work.
    """
    if isinstance(spec, str | Path):
        spec = read_spec(Path(spec), Vouched(everything=trust))
    elif not isinstance(spec, SweepSpec):
        spec = parse_spec(spec, "sweep", Vouched(env=True, everything=True))
    folder = Path(run_dir) if run_dir is not None else Path("runs") / f"sweep-{spec.name}"
    return run_sweep(spec, folder, parallel, cores)


def run_sweep(
    spec: SweepSpec, folder: Path, parallel: int | None, cores: int | None, launch: Launch = JobProcess
) -> SweepResult:
    """The same with the specification read, and another way to run a job if given."""
    proposer = Proposer(spec)
    budget = Budget.of(proposer.num_trials * len(spec.search.seeds), parallel, cores)
    _claim(spec, folder)
    with RunLock.acquire(folder):
        ended = read_journal(folder / JOURNAL_FILE)
        journal = Journal(folder / JOURNAL_FILE)
        columns = ["trial", *spec.space, "value", "steps", "state"]
        trials, seeds = counted(proposer.num_trials, "trial"), counted(len(spec.search.seeds), "seed")
        title = f"{trials} of {seeds}, {counted(budget.parallel, 'run')} at a time"
        try:
            with (
                Table(f"{title}, in {folder}", columns, "auto") as table,
                Pool[RunKey](budget.parallel, launch) as pool,
            ):
                _Sweep(_Plan(spec, folder, proposer, budget), journal, ended, table, pool).run()
        finally:
            journal.close()
        return write_results(spec, folder, [ended[number] for number in range(proposer.num_trials)])


class _Plan(NamedTuple):
    """What is to be tried, and with what."""

    spec: SweepSpec
    folder: Path
    proposer: Proposer
    budget: Budget


class _Sweep:
    """The loop: proposes trials in their order, keeps the pool full, and takes in what ends."""

    def __init__(
        self,
        plan: _Plan,
        journal: Journal,
        ended: dict[int, Trial],
        table: Table,
        pool: Pool[RunKey],
    ) -> None:
        self._spec, self._folder, self._proposer, self._budget = plan
        self._journal, self._ended, self._table, self._pool = journal, ended, table, pool
        self._proposed = 0
        self._running: dict[int, RunningTrial] = {}
        self._waiting: list[RunKey] = []

    def run(self) -> None:
        while self._proposed < self._proposer.num_trials or self._running:
            self._fill()
            self._check_hope()
            for (number, seed), end in self._pool.ended(LOOK_SECONDS):
                if number in self._running:
                    self._running[number].take(seed, end)
            self._look()

    def _fill(self) -> None:
        while self._pool.has_room:
            if self._waiting:
                number, seed = self._waiting.pop(0)
                self._start(self._running[number], seed)
            elif not self._propose():
                return

    def _start(self, trial: RunningTrial, seed: int) -> None:
        config = self._budget.placed(trial.config_with(seed))
        placement = replace(config.placement, run_dir=trial.run_folder(seed).path, progress="plain")
        search = self._spec.search
        episodes = search.eval_episodes if search.objective == "evaluation" else 0
        self._pool.start((trial.number, seed), TrainJob(replace(config, placement=placement), eval_episodes=episodes))

    def _propose(self) -> bool:
        """Propose the next trial, if there is one and all that it may know has ended."""
        number = self._proposed
        if number == self._proposer.num_trials:
            return False
        num_known = max(number - self._spec.search.lag, 0) if self._spec.uses_results else 0
        if any(earlier not in self._ended for earlier in range(num_known)):
            return False
        known = [self._ended[earlier] for earlier in range(num_known)]
        settings = self._proposer.propose(known)
        self._proposed += 1
        if number in self._ended:
            self._check_same(self._ended[number], settings)
            self._show_ended(self._ended[number])
        else:
            self._begin(number, settings, known)
        return True

    def _begin(self, number: int, settings: Mapping[str, Any], known: list[Trial]) -> None:
        config = self._spec.config_of(settings)
        try:
            check(config)
        except ConfigError as error:  # each value is fine, but not together
            self._end(Trial(number, settings, "failed", None, reason=str(error)))
            return
        folder = self._folder / f"trial-{number:03}"
        trial = RunningTrial(self._spec, number, settings, config, folder, known)
        self._running[number] = trial
        # A sweep that was killed may find that all is there already.
        self._waiting += [(number, seed) for seed in trial.seeds if trial.needs_run(seed)]
        self._look_at(trial)

    def _look(self) -> None:
        for trial in list(self._running.values()):
            self._look_at(trial)

    def _look_at(self, trial: RunningTrial) -> None:
        ended = trial.outcome()
        if ended is not None:
            self._end(ended)
        else:
            self._show(trial.number, trial.settings, "", f"{trial.steps():,}", "running")

    def _end(self, trial: Trial) -> None:
        self._journal.add(trial)
        self._ended[trial.number] = trial
        self._running.pop(trial.number, None)
        self._waiting = [key for key in self._waiting if key[0] != trial.number]
        for seed in self._spec.search.seeds:
            self._pool.terminate((trial.number, seed))
        self._show_ended(trial)

    def _check_hope(self) -> None:
        first = [self._ended[number] for number in range(HOPELESS) if number in self._ended]
        if len(first) == HOPELESS and all(trial.state == "failed" for trial in first):
            raise HtsrlError(
                f"the first {HOPELESS} trials failed, the last with: {first[-1].reason}\nChange the specification, and "
                "give another --run-dir or remove this one"
            )

    def _check_same(self, ended: Trial, settings: Mapping[str, Any]) -> None:
        """A proposal is made again when a sweep continues; another Optuna may make another."""
        changed = list(differences(_as_json(ended.settings), _as_json(settings)))
        if changed:
            raise RunFolderError(
                f"{self._folder}: trial {ended.number} would now be another ({'; '.join(changed)}); {JOURNAL_FILE} was "
                "changed, or another version of optuna made it: put that back, or start over with another --run-dir"
            )

    def _show_ended(self, trial: Trial) -> None:
        value = "" if trial.value is None else short(trial.value)
        state = f"{trial.state} {trial.reason}".strip()
        self._show(trial.number, trial.settings, value, "", state, is_final=True)

    def _show(
        self, number: int, settings: Mapping[str, Any], value: str, steps: str, state: str, is_final: bool = False
    ) -> None:
        cells = [short(settings[name]) for name in self._spec.space]
        self._table.show(number, [str(number), *cells, value, steps, state], is_final)


def _claim(spec: SweepSpec, folder: Path) -> None:
    """Write down what the folder is for, or refuse one that is for something else."""
    path, identity = folder / SWEEP_FILE, identity_of(spec)
    if path.exists():
        try:
            before = dict(read_document(path))
        except (OSError, ValueError, TypeError) as error:
            raise RunFolderError(f"{path} cannot be read: {error}; choose another --run-dir") from error
        changed = list(differences(_without_trials(before), _without_trials(identity)))
        if changed:
            raise ConfigError(
                f"{folder} holds another sweep; these differ:\n  "
                + "\n  ".join(changed)
                + "\nSet them back, or choose "
                "another --run-dir; only the number of trials may change"
            )
    elif folder.exists() and any(folder.iterdir()):
        raise ConfigError(f"{folder} exists and holds no sweep; choose another --run-dir")
    try:
        folder.mkdir(0o700, parents=True, exist_ok=True)
        RunFolder(folder).save_json(path, identity)
    except OSError as error:
        raise ConfigError(f"cannot write to {folder}: {error.strerror}; choose another --run-dir") from error


def _without_trials(identity: Mapping[str, Any]) -> dict[str, Any]:
    search = {name: value for name, value in dict(identity.get("sweep", {})).items() if name != "trials"}
    return {**identity, "sweep": search}


def _as_json(settings: Mapping[str, Any]) -> dict[str, Any]:
    return {name: list(value) if isinstance(value, tuple) else value for name, value in settings.items()}

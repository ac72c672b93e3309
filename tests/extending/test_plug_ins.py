"""Algorithms, schedules and observers by name: what is refused, and what a stranger's folder may not import."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest

import htsrl
from htsrl import PPO, Config, ConfigError, Experiment, Placement, UntrustedFolder
from htsrl.cli.main import main
from htsrl.config import plugins
from htsrl.config.algorithm_settings import NamedAlgorithm, algorithm_name, load_algorithm, settings_class
from htsrl.config.check import check
from htsrl.config.schedule_names import checked_schedule, load_schedule
from htsrl.errors import RunFolderError
from htsrl.observers.dispatch import Watching
from htsrl.runs.trust import NOTHING, Vouched, strange_code

CANARY = """
from examples.reinforce import Reinforce as Base
from examples.warm_start import WarmStart as BaseSchedule


class Algorithm:
    Settings = type("Settings", (), {})


class Schedule(BaseSchedule):
    pass
"""


class WithoutSettings:
    """No algorithm."""


@dataclass(frozen=True)
class MyPPO(PPO):
    """Derived from htsrl's own."""


class NotWhole:
    """A schedule that says too little."""

    max_lag = 1

    def __init__(self, experiment: Experiment) -> None: ...


@pytest.fixture
def registered(monkeypatch: pytest.MonkeyPatch) -> Callable[[str, str], None]:
    """Let an installed package register something."""

    def register(name: str, target: str) -> None:
        monkeypatch.setattr(plugins, "entry_points", lambda group: [_Point(name, target)])
        plugins.entry_points_of.cache_clear()

    return register


@pytest.fixture(autouse=True)
def _forget_entry_points() -> Any:
    yield
    plugins.entry_points_of.cache_clear()


@dataclass(frozen=True)
class _Point:
    name: str
    value: str


def test_an_unknown_algorithm_is_refused_with_those_that_are_known() -> None:
    with pytest.raises(ConfigError, match=r"algorithm 'pbo' is not known; use .*ppo.* or MODULE:CLASS"):
        load_algorithm("pbo")


def test_an_algorithm_needs_settings() -> None:
    with pytest.raises(ConfigError, match="must be a class with a dataclass `Settings`"):
        load_algorithm(f"{__name__}:WithoutSettings")
    with pytest.raises(ConfigError, match=r"cannot be imported \(ModuleNotFoundError"):
        load_algorithm("no_such_module:Algorithm")


def test_settings_derived_from_those_of_htsrl_are_refused() -> None:
    with pytest.raises(ConfigError, match=r"derived from htsrl\.PPO, and its own fields and methods would not be used"):
        check(Config(Experiment("CartPole-v1", algorithm=MyPPO())))


def test_an_algorithm_without_a_name_to_import_is_refused() -> None:
    class Local:
        @dataclass(frozen=True)
        class Settings:
            learning_rate: float = 0.1

    with pytest.raises(ConfigError, match="no name under which worker processes and resumed runs could import it"):
        algorithm_name(Local.Settings())


def test_an_algorithm_of_the_script_that_runs_is_refused_where_other_processes_would_import_it() -> None:
    @dataclass(frozen=True)
    class Settings:
        learning_rate: float = 1e-3

    Settings.__module__, Settings.__qualname__ = "__main__", "Mine.Settings"
    experiment = Experiment("CartPole-v1", algorithm=Settings())
    with pytest.raises(ConfigError, match=r"algorithm Mine is defined in the script or notebook .* a file of its own"):
        check(Config(experiment, Placement("processes")))


def test_an_installed_package_can_register_an_algorithm_but_not_in_place_of_htsrls_own(
    registered: Callable[[str, str], None],
) -> None:
    registered("reinforce", "examples.reinforce:Reinforce")
    assert settings_class("reinforce").__qualname__ == "Reinforce.Settings"
    assert algorithm_name(settings_class("reinforce")()) == "reinforce"
    registered("ppo", "examples.reinforce:Reinforce")
    assert load_algorithm("ppo").__name__ == "PPOAlgorithm"


def test_an_installed_package_can_register_a_schedule(registered: Callable[[str, str], None]) -> None:
    registered("warm", "examples.warm_start:WarmStart")
    assert Experiment("CartPole-v1", schedule="warm", lag=3)._schedule.max_lag == 3
    registered("hts", "examples.warm_start:WarmStart")
    assert load_schedule("hts").__module__ == "htsrl.schedules.make"


def test_a_schedule_that_lacks_something_is_refused_before_anything_starts() -> None:
    with pytest.raises(ConfigError, match=r"schedule 'htss' is not known; use hts, sync, lockstep, async, .*or MODULE"):
        check(Config(Experiment("CartPole-v1", schedule="htss")))
    with pytest.raises(ConfigError, match="has no num_storages, step_barrier"):
        checked_schedule(f"{__name__}:NotWhole", Experiment("CartPole-v1"))
    with pytest.raises(ConfigError, match="could not be made"):
        checked_schedule(f"{__name__}:WithoutSettings", Experiment("CartPole-v1"))
    with pytest.raises(ConfigError, match="lag=2 is for schedule=hts"):
        check(Config(Experiment("CartPole-v1", schedule="sync", lag=2)))


@pytest.mark.parametrize("name", ["algorithm", "schedule"])
def test_code_of_plug_ins_is_strange_unless_the_user_names_it(name: str) -> None:
    value: Any = NamedAlgorithm("evil:Thing", {}) if name == "algorithm" else "evil:Thing"
    experiment = replace(Experiment("CartPole-v1"), **{name: value})
    assert list(strange_code(experiment, NOTHING)) == [f"the {name} 'evil:Thing'"]
    assert list(strange_code(experiment, Vouched(env=True, imports=("evil:Thing",)))) == []


@pytest.fixture(params=["algorithm", "schedule"])
def strangers_run(
    request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> tuple[Path, str, Path]:
    """The folder of a run that names a module which must not be imported, what it names, and the module's mark."""
    run_dir, mark = tmp_path / "run", tmp_path / "imported"
    (tmp_path / "canary_module.py").write_text(f"open({str(mark)!r}, 'w')\n{CANARY}")
    monkeypatch.syspath_prepend(str(tmp_path))
    sys.modules.pop("canary_module", None)
    quietly = Placement("inline", run_dir=run_dir, tensorboard=False, progress="off")
    htsrl.train(Config(Experiment("CartPole-v1", algorithm=htsrl.A2C(), num_envs=2, total_steps=20), quietly))
    document = json.loads((run_dir / "config.json").read_text())
    kind: str = request.param
    named = {"algorithm": {"name": "canary_module:Algorithm"}, "schedule": "canary_module:Schedule"}
    document["experiment"][kind] = named[kind]
    (run_dir / "config.json").write_text(json.dumps(document))  # the signature is not this file's
    return run_dir, kind, mark


def test_a_strangers_folder_that_names_a_plug_in_is_refused_and_nothing_is_imported(
    strangers_run: tuple[Path, str, Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run_dir, kind, mark = strangers_run
    for look in (htsrl.evaluate, htsrl.resume):
        with pytest.raises(UntrustedFolder, match=f"names code to run: the {kind} 'canary_module:"):
            look(run_dir)
    for arguments in (
        ["train", "--config", str(run_dir / "config.json")],
        ["train", "--config", str(run_dir / "config.json"), "--num-envs", "4", "CartPole-v1"],
        ["eval", str(run_dir)],
    ):
        with pytest.raises(SystemExit) as ended:
            main(arguments)
        assert ended.value.code == 2
        assert f"names code to run: the {kind} 'canary_module:" in capsys.readouterr().err
    with pytest.raises(SystemExit):
        main(["train", "CartPole-v1", "--algo", "a2c", "--resume-or-start", "--run-dir", str(run_dir)])
    assert "holds a run of another experiment" in capsys.readouterr().err
    assert not mark.exists()
    assert htsrl.load_policy(run_dir).version == 2
    assert htsrl.export(run_dir, format="torch").version == 2
    assert not mark.exists(), "a policy is numbers and a network, and neither of these"
    with pytest.raises(ConfigError) as refused:
        htsrl.resume(run_dir, trust=True)
    assert not isinstance(refused.value, UntrustedFolder)
    assert mark.exists(), "so this test would have noticed"


DRAWS_ITSELF = """
from dataclasses import dataclass
from typing import ClassVar

import htsrl
from htsrl.algorithms.dqn.algorithm import DQNAlgorithm

SETTINGS = dict(minibatch_size=4, learning_starts=8, replay_capacity=64)


class Greedy(DQNAlgorithm):
    @dataclass(frozen=True)
    class Settings:
        replay_capacity: int = 64
        own_exploration: ClassVar[bool] = True

    def __init__(self, settings, run):
        super().__init__(htsrl.DQN(**SETTINGS), run)
"""


def test_a_policy_whose_own_algorithm_draws_its_actions_is_loaded_where_that_may_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "draws_itself.py").write_text(DRAWS_ITSELF)
    monkeypatch.syspath_prepend(str(tmp_path))
    algorithm = settings_class("draws_itself:Greedy")()
    experiment = Experiment("CartPole-v1", algorithm=algorithm, num_envs=2, sync_interval=8, total_steps=32)
    run_dir = tmp_path / "run"
    htsrl.train(Config(experiment, Placement("inline", run_dir=run_dir, tensorboard=False, progress="off")))
    del sys.modules["draws_itself"]
    assert htsrl.load_policy(run_dir).version == 2
    del sys.modules["draws_itself"]
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "another user"))
    with pytest.raises(RunFolderError, match="'draws_itself:Greedy' say how actions are drawn"):
        htsrl.load_policy(run_dir)
    assert "draws_itself" not in sys.modules
    assert htsrl.load_policy(run_dir, trust=True).version == 2


def test_a_plug_in_on_the_command_line_goes_before_that_of_a_strangers_file(
    strangers_run: tuple[Path, str, Path], capsys: pytest.CaptureFixture[str]
) -> None:
    run_dir, kind, mark = strangers_run
    instead = ["--algo", "a2c"] if kind == "algorithm" else ["--schedule", "sync"]
    with pytest.raises(SystemExit):
        main(["train", "CartPole-v1", "--config", str(run_dir / "config.json"), "--num-envs", "0", *instead])
    assert "num_envs=0" in capsys.readouterr().err  # complained of only once the code was admitted
    assert not mark.exists()


class Listener:
    """Hears of evaluations, and perhaps fails."""

    def __init__(self, fails: bool = False) -> None:
        self.heard: list[Any] = []
        self._fails = fails

    def on_evaluation(self, evaluation: Any) -> None:
        self.heard.append(evaluation)
        if self._fails:
            raise ValueError("a mistake of the user's")


MADE: list[Listener] = []


def make_listener() -> Any:
    MADE.append(Listener())
    return MADE[-1]


def test_observers_on_the_command_line_hear_of_the_evaluation(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    name = f"{__name__}:make_listener"
    how = ("--placement", "inline", "--no-tensorboard", "--progress", "off", "--run-dir", str(tmp_path / "run"))
    sizes = ("--algo", "a2c", "--num-envs", "2", "--total-steps", "20", "--eval-episodes", "2")
    with pytest.raises(SystemExit) as ended:
        main(["train", "CartPole-v1", *sizes, *how, "--observer", name, "--observer", name])
    assert ended.value.code == 0
    first, second = MADE
    assert len(first.heard[0].returns) == 2
    assert first.heard == second.heard
    with pytest.raises(SystemExit) as ended:
        main(["resume", str(tmp_path / "run"), "--total-steps", "40", "--observer", "no_such_module:Observer"])
    assert ended.value.code == 2
    assert "observer 'no_such_module:Observer' cannot be imported" in capsys.readouterr().err


def test_an_observer_that_fails_at_the_evaluation_is_said_or_ends_the_command() -> None:
    said: list[str] = []
    failing: Any = Listener(fails=True)
    watching, evaluation = Watching([failing]), htsrl.Evaluation((1.0,), (1,))
    watching.tell_evaluation(evaluation, said.append)
    watching.tell_evaluation(evaluation, said.append)
    assert len(said) == 1, "it hears of nothing more"
    with pytest.raises(htsrl.ObserverFailed, match="a mistake of the user's"):
        Watching([failing], strict=True).tell_evaluation(evaluation, said.append)

"""An environment that changes the current folder changes nothing about where a run's files are."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from wandering_env import Wandering

from htsrl import A2C, Config, Experiment, Placement, evaluate, resume, train
from htsrl.cli.main import main
from htsrl.export import export
from htsrl.runs.folder import RunFolder

FILES = {"config.json", "fingerprint.json", "metrics.jsonl", "digest.jsonl", "result.json", "policy.safetensors"}
EXPERIMENT = Experiment(Wandering, algorithm=A2C(), num_envs=2, sync_interval=4, total_steps=24)


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The user's folder; the environment's are elsewhere."""
    for name in ("home", "elsewhere"):
        (tmp_path / name).mkdir()
    monkeypatch.setenv("WANDERS_TO", str(tmp_path / "elsewhere"))
    monkeypatch.chdir(tmp_path / "home")
    return tmp_path / "home"


def assert_nothing_went_elsewhere(home: Path) -> None:
    assert Path.cwd() == home
    assert [path for path in (home.parent / "elsewhere").rglob("*") if not path.is_dir()] == []
    assert [path.name for path in home.iterdir()] == ["runs"]


@pytest.mark.parametrize("backend", ["inline", "processes"])
def test_a_run_is_whole_and_where_it_was_asked_for(home: Path, backend: str) -> None:
    quietly = {"backend": backend, "tensorboard": False, "progress": "off"}
    placement = Placement(run_dir=Path("runs/one"), checkpoint_every_updates=1, **quietly)  # type: ignore[arg-type]
    result = train(Config(EXPERIMENT, placement))
    assert result.updates == 3
    assert {path.name for path in (home / "runs/one").iterdir()} >= FILES
    assert sorted(path.name for path in (home / "runs/one/checkpoints").iterdir()) == ["000000002", "000000003"]
    assert_nothing_went_elsewhere(home)


def test_what_is_done_with_a_run_afterwards_finds_it_and_stays_there(home: Path) -> None:
    run_dir = Path("runs/one")
    placement = Placement(backend="inline", run_dir=run_dir, tensorboard=False, progress="off")
    train(Config(EXPERIMENT, placement))
    assert evaluate(run_dir, episodes=2).lengths == (5, 5)
    assert resume(run_dir, total_steps=32).updates == 4
    assert export(run_dir, "runs/exported", format="torch").folder == Path("runs/exported")
    assert (home / "runs/exported/policy.json").exists()
    assert_nothing_went_elsewhere(home)


def test_a_folder_is_shown_as_it_was_given_for_as_long_as_that_leads_there(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = RunFolder(Path("runs/one"))
    assert (folder.path, folder.shown) == (home / "runs/one", Path("runs/one"))
    monkeypatch.chdir(home.parent)
    assert (folder.path, folder.shown) == (home / "runs/one", home / "runs/one")


@pytest.mark.parametrize(("command", "is_found"), [("check-env", True), ("digest", False)])
def test_modules_of_the_folder_that_a_command_was_given_in_are_found_where_it_runs_what_the_user_names(
    home: Path, monkeypatch: pytest.MonkeyPatch, command: str, is_found: bool
) -> None:
    monkeypatch.setattr(sys, "path", [*sys.path])
    with pytest.raises(SystemExit):
        main([command, "nothing_of_that_name:Env-v0"])
    assert (sys.path[-1] == str(home)) is is_found

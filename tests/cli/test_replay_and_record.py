"""`htsrl replay`, `record`, `compare` and `merge-datasets` from the command line, on one small run."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

import htsrl
from htsrl.cli.main import main
from htsrl.metrics import line_progress, pace


@pytest.fixture(scope="module")
def run_dir(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("runs") / "run"
    quietly = htsrl.Placement("inline", run_dir=path, tensorboard=False, progress="off", check_env=False)
    experiment = htsrl.Experiment("CartPole-v1", algorithm=htsrl.A2C(), num_envs=2, total_steps=60)
    htsrl.train(htsrl.Config(experiment, quietly))
    return path


def exit_code(*arguments: object) -> object:
    with pytest.raises(SystemExit) as end:
        main([str(argument) for argument in arguments])
    return end.value.code


def test_a_stretch_is_shown_with_logits_and_probabilities_and_verified(
    run_dir: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    arrays = tmp_path / "stretch.npz"
    assert exit_code("replay", run_dir, "--update", 2, "--env", 1, "--output", arrays) == 0
    shown = capsys.readouterr()
    heads, *rows = shown.out.splitlines()
    assert heads.split() == ["step", "observation", "action", "logits", "probabilities", "value", "reward", "end"]
    assert len(rows) == 5
    assert "verified" in shown.err
    assert arrays.is_file()


def test_an_episode_is_filmed_and_its_return_told(
    run_dir: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    pytest.importorskip("imageio")
    pytest.importorskip("pygame")
    film = tmp_path / "film.gif"
    assert exit_code("record", run_dir, "--output", film) == 0
    line = rf"episode  0: return [\d.]+ after \d+ steps, policy version 6, {re.escape(str(film))}\n"
    assert re.fullmatch(line, capsys.readouterr().out)
    assert film.read_bytes().startswith(b"GIF8")


def test_what_may_take_long_says_how_far_it_has_come(
    run_dir: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(line_progress, "Pace", lambda seconds: pace.Pace(0.0))
    dataset, merged = tmp_path / "dataset", tmp_path / "merged"
    assert exit_code("collect", run_dir, "--out", dataset, "--episodes", 2) == 0
    assert exit_code("merge-datasets", dataset, dataset, "--out", merged) == 0
    assert f"opening 2 of 2, {dataset}" in capsys.readouterr().err
    assert exit_code("compare", run_dir, run_dir) == 0
    assert f"read 0 updates of {run_dir}" in capsys.readouterr().err
    assert exit_code("report", run_dir, "--out", tmp_path / "report.html") == 0
    assert "read 0 runs and sweeps" in capsys.readouterr().err

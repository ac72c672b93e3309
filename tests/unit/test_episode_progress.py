"""How far an evaluation has come: nothing of a short one, lines now and then of a long one, none of them on stdout."""

from __future__ import annotations

import sys
from contextlib import suppress
from pathlib import Path

import pytest

import htsrl
from htsrl import Config, Experiment, Placement
from htsrl.cli.main import main
from htsrl.metrics import pace
from htsrl.metrics.episode_progress import EpisodeProgress


@pytest.fixture(scope="module")
def cartpole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    experiment = Experiment("CartPole-v1", num_envs=2, sync_interval=32, total_steps=64)
    placement = Placement(backend="inline", run_dir=tmp_path_factory.mktemp("runs") / "cartpole", progress="off")
    return htsrl.train(Config(experiment, placement)).run_dir


def test_who_watches_is_told_of_all_steps_and_episodes(cartpole: Path) -> None:
    seen: list[tuple[int, int]] = []

    evaluation = htsrl.evaluate(cartpole, 20, watch=lambda played, steps: seen.append((played, steps)))

    assert seen[-1] == (20, sum(evaluation.lengths))
    assert seen == sorted(seen)
    assert seen[0] == (0, 16)
    assert evaluation == htsrl.evaluate(cartpole, 20)


def test_a_line_every_two_seconds_and_none_at_once(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    now = 100.0
    monkeypatch.setattr(pace, "monotonic", lambda: now)
    with EpisodeProgress(100) as shown:
        for played in range(20):
            shown.update(played, played * 1000)
            now += 0.25

    out, err = capsys.readouterr()
    assert out == ""
    assert err == "evaluated 8/100 episodes  8,000 steps\nevaluated 16/100 episodes  16,000 steps\n"


def test_on_a_terminal_one_line_is_redrawn_and_gone_in_the_end(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    now = 100.0
    monkeypatch.setattr(pace, "monotonic", lambda: now)
    with suppress(KeyboardInterrupt), EpisodeProgress(10, "live") as shown:
        now += 3
        shown.update(1, 20)
        raise KeyboardInterrupt
    assert capsys.readouterr().err == "\r\x1b[Kevaluated 1/10 episodes  20 steps\r\x1b[K"


def htsrl_says(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[str, str]:
    """What a command that succeeds writes to stdout and stderr."""
    with pytest.raises(SystemExit) as ended:
        main(arguments)
    assert ended.value.code == 0
    out, err = capsys.readouterr()
    return out, err


@pytest.mark.parametrize("mode", ["plain", "off"])
def test_the_commands_show_it_and_print_the_score_alone(
    cartpole: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path, mode: str
) -> None:
    monkeypatch.setattr("htsrl.metrics.line_progress.PLAIN_SECONDS", 0.0)
    out, err = htsrl_says(capsys, "eval", str(cartpole), "--episodes", "3")
    assert out.startswith("score")
    assert "evaluated 3/3 episodes" in err

    where = ("--run-dir", str(tmp_path / "run"), "--placement", "inline", "--progress", mode)
    small = ("--total-steps", "64", "--num-envs", "2", "--sync-interval", "32", "--eval-episodes", "2")
    out, err = htsrl_says(capsys, "train", "CartPole-v1", *small, *where)
    assert "score" in out
    assert ("evaluated 2/2 episodes" in err) == (mode == "plain")


class Gone:
    """A stderr that takes nothing any more."""

    def write(self, text: str) -> int:
        raise OSError(5, "Input/output error")


def test_a_terminal_that_is_gone_ends_no_evaluation(cartpole: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("htsrl.metrics.line_progress.PLAIN_SECONDS", 0.0)
    monkeypatch.setattr(sys, "stderr", Gone())
    with EpisodeProgress(2, "live") as shown:
        assert len(htsrl.evaluate(cartpole, 2, watch=shown.update).returns) == 2

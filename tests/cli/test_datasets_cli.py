"""`htsrl collect`, `merge-datasets` and `train --source` as a user types them."""

from __future__ import annotations

from pathlib import Path

import pytest

from htsrl.cli.main import main
from htsrl.datasets.dataset import read_dataset
from htsrl.datasets.open import known_dataset
from htsrl.digest import read_links

QUIETLY = "--placement inline --no-tensorboard --run-dir run"
LEARN = f"train --algo bc --source both --sync-interval 2 --total-steps 4 {QUIETLY}"


@pytest.fixture(autouse=True)
def in_a_folder_of_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def htsrl(command: str) -> object:
    """Its exit code."""
    with pytest.raises(SystemExit) as ended:
        main(command.split())
    return ended.value.code


def identity(folder: str) -> str:
    return read_dataset(Path(folder)).manifest.identity


def collect_at_random(out: str, seed: int) -> None:
    random = "collect Pendulum-v1 --random --env-arg max_episode_steps=5 --episodes 3"
    assert htsrl(f"{random} --seed {seed} --out {out}") == 0


def test_episodes_are_collected_merged_and_learned_from_and_the_run_goes_on_where_they_were_moved(
    capsys: pytest.CaptureFixture[str],
) -> None:
    for out, seed in (("a", 1), ("b", 2), ("again", 1)):
        collect_at_random(out, seed)
        assert f"identity {identity(out)}" in capsys.readouterr().out
    assert identity("a") == identity("again") != identity("b")
    assert htsrl("merge-datasets a b --out both") == 0
    assert "episodes 6, 30 steps" in capsys.readouterr().out
    assert [origin["seed"] for origin in read_dataset(Path("both")).manifest.origins] == [1, 2]

    assert htsrl(LEARN) == 0
    assert len(read_links(Path("run"))) == 2
    Path("both").rename("moved")
    known_dataset.cache_clear()  # as in a process of its own
    for source, problem in (("", "both is not a dataset"), ("--source a", "is not the one that the run began with")):
        assert htsrl(f"resume run --total-steps 8 {source}") == 2
        assert problem in capsys.readouterr().err
    assert htsrl("resume run --total-steps 8 --source moved") == 0
    assert len(read_links(Path("run"))) == 4


def test_the_policy_of_a_run_is_collected_from_and_what_cannot_be_is_refused_before_a_step(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert htsrl(f"train CartPole-v1 --num-envs 2 --sync-interval 8 --total-steps 16 --epochs 1 {QUIETLY}") == 0
    assert htsrl("collect run --sampled --episodes 2 --out data") == 0
    (origin,) = read_dataset(Path("data")).manifest.origins
    assert (origin["digest"], origin["version"]) == (read_links(Path("run"))[-1].chain, 1)
    capsys.readouterr()
    for arguments, problem in (
        ("collect run --episodes 2 --out data", "data"),
        ("collect run --episodes 0 --out new", "episodes=0 must be at least 1"),
        ("collect CartPole-v1 --random --best --out new", "--random plays without a policy"),
        ("merge-datasets --out new", "no dataset is named"),
        ("train --algo cql --source data --total-steps 4 --run-dir new", "two bounds"),
    ):
        assert htsrl(arguments) == 2
        assert problem in capsys.readouterr().err
        assert not Path("new").exists()

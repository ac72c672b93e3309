"""A run that was killed before its first checkpoint starts over; jobs say the same each time that they are begun."""

from __future__ import annotations

import json
import shutil
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from htsrl import A2C, Config, ConfigError, Experiment, Placement, resume, train
from htsrl.runs.filming import video_name
from htsrl.train import resume_or_start

EXPERIMENT = Experiment("CartPole-v1", algorithm=A2C(), num_envs=2, sync_interval=4, total_steps=80)


def config(run_dir: Path, **experiment: Any) -> Config:
    placement = Placement("inline", num_executors=1, run_dir=run_dir, tensorboard=False, progress="off")
    return Config(replace(EXPERIMENT, **experiment), placement)


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return train(config(tmp_path_factory.mktemp("whole") / "run")).run_dir


@pytest.fixture
def killed_early(whole: Path, tmp_path: Path) -> Path:
    """As a run leaves its folder that was killed after some updates and before its first checkpoint."""
    copy = tmp_path / "killed"
    shutil.copytree(whole, copy)
    for name in ("checkpoints", "result.json", "policy.safetensors", "learning_curve.png"):
        shutil.rmtree(copy / name) if (copy / name).is_dir() else (copy / name).unlink()
    for name in ("digest.jsonl", "metrics.jsonl"):
        lines = (copy / name).read_bytes().splitlines(keepends=True)
        (copy / name).write_bytes(b"".join(lines[: len(lines) // 2]) + lines[-1][:5])
    (copy / "notes.txt").write_text("mine")
    return copy


def digest(run_dir: Path) -> str:
    return str(json.loads((run_dir / "result.json").read_text())["digest"])


class Killed(BaseException):
    """In place of a SIGKILL."""


def killed(*arguments: Any) -> None:
    raise Killed


def test_a_run_killed_before_its_first_checkpoint_starts_over_in_place_to_the_same_bits(
    whole: Path, killed_early: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    resume(killed_early)
    assert "holds no checkpoint yet: the run starts over, to the same bits\n" in capfd.readouterr().err
    assert (killed_early / "digest.jsonl").read_bytes() == (whole / "digest.jsonl").read_bytes()
    assert digest(killed_early) == digest(whole)
    assert (killed_early / "notes.txt").read_text() == "mine"


def compute_differently(run_dir: Path) -> None:
    file = run_dir / "fingerprint.json"
    file.write_text(json.dumps(json.loads(file.read_text()) | {"torch": "1.0.0"}))


def files_of(run_dir: Path) -> dict[Path, bytes]:
    return {file: file.read_bytes() for file in run_dir.rglob("*") if file.is_file() and file.name != ".lock"}


def test_one_that_was_computed_differently_is_refused_by_name_and_left_as_it_is(killed_early: Path) -> None:
    compute_differently(killed_early)
    before = files_of(killed_early)
    for start in (partial(resume, killed_early), partial(resume_or_start, config(killed_early))):
        with pytest.raises(
            ConfigError, match=r"(?s)computed differently.*torch: 1\.0\.0 / .*--allow-different-numerics"
        ):
            start()
    assert files_of(killed_early) == before


def test_one_that_was_computed_differently_is_marked_for_good_where_that_is_allowed(
    killed_early: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    compute_differently(killed_early)
    with monkeypatch.context() as patched:
        patched.setattr("htsrl.runs.starting_over.run_to_end", killed)
        with pytest.raises(Killed):
            resume(killed_early, allow_different_numerics=True)
    assert "starts over, computed differently than before, and is marked so\n" in capfd.readouterr().err
    assert resume(killed_early).numerics_changes == 1
    (change,) = json.loads((killed_early / "numerics_changes.json").read_text())
    assert change["version"] == 0
    assert "torch: 1.0.0 / " in change["changes"][0]


def test_one_that_was_killed_while_its_folder_was_made_has_computed_nothing(killed_early: Path) -> None:
    for name in ("fingerprint.json", "digest.jsonl", "metrics.jsonl"):
        (killed_early / name).unlink()
    assert resume(killed_early).numerics_changes == 0


def test_a_longer_run_that_starts_over_is_not_said_to_have_the_same_bits(
    killed_early: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    resume(killed_early, total_steps=160)
    assert "the run starts over, to the bits of the experiment as it is now\n" in capfd.readouterr().err


def test_an_asynchronous_run_that_starts_over_is_not_said_to_have_the_same_bits(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    train(config(tmp_path / "run", schedule="async"))
    shutil.rmtree(tmp_path / "run" / "checkpoints")
    (tmp_path / "run" / "result.json").unlink()
    resume(tmp_path / "run")
    assert "the run starts over, to other bits: schedule=async depends on timing\n" in capfd.readouterr().err


def test_a_run_that_starts_over_makes_its_films_anew(killed_early: Path) -> None:
    """One that is there is taken for that of the policy that comes to so many steps, and may be another's."""
    videos = killed_early / "videos"
    videos.mkdir()
    for name in (video_name(40, 0, "mp4"), "mine.mp4"):
        (videos / name).write_bytes(b"film")
    resume(killed_early, total_steps=160)
    assert [path.name for path in videos.iterdir()] == ["mine.mp4"]


def test_a_job_starts_resumes_and_shows_what_is_complete(whole: Path, killed_early: Path, tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    results = [resume_or_start(config(folder)) for folder in (tmp_path / "new", tmp_path / "empty", killed_early)]
    before = {file: file.stat().st_mtime_ns for file in (tmp_path / "new").rglob("*") if file.name != ".lock"}
    results.append(resume_or_start(config(tmp_path / "new")))
    assert {result.digest for result in results} == {digest(whole)}
    assert {file: file.stat().st_mtime_ns for file in before} == before
    assert results[-1].run_dir == tmp_path / "new"


@pytest.mark.parametrize("left", ["config.json.signature.tmp", "config.json.signature", "config.json.tmp"])
def test_a_job_starts_where_another_was_killed_while_it_made_the_folder(whole: Path, tmp_path: Path, left: str) -> None:
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / left).write_text("half")
    assert resume_or_start(config(tmp_path / "run")).digest == digest(whole)


def test_a_job_does_not_take_the_result_of_a_run_for_that_of_its_extension(
    whole: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shutil.copytree(whole, tmp_path / "run")
    with monkeypatch.context() as patched:
        patched.setattr("htsrl.runs.resume.run_to_end", killed)
        with pytest.raises(Killed):
            resume(tmp_path / "run", total_steps=160)
    assert resume_or_start(config(tmp_path / "run", total_steps=160)).steps == 160


def test_what_is_logged_of_infos_may_change_at_a_resume_and_no_bit_with_it(whole: Path, tmp_path: Path) -> None:
    digests = set()
    for name, log_info in (("as before", ()), ("more", ("speed", "colour"))):
        shutil.copytree(whole, tmp_path / name)
        placement = replace(config(tmp_path / name).placement, log_info=log_info)
        digests.add(resume(tmp_path / name, total_steps=160, placement=placement).digest)
    assert len(digests) == 1
    fewer = replace(config(tmp_path / "more").placement, log_info=("colour",))
    assert resume(tmp_path / "more", total_steps=240, placement=fewer).updates == 30


def test_a_job_with_another_experiment_is_refused_by_the_name_of_the_setting(whole: Path) -> None:
    with pytest.raises(ConfigError, match=r"another experiment; these settings differ:\n  seed: 1 -> 2\n"):
        resume_or_start(config(whole, seed=2))


def test_a_job_needs_a_folder() -> None:
    with pytest.raises(ConfigError, match=r"name its folder with run_dir \(--run-dir\)"):
        resume_or_start(Config(EXPERIMENT))


def test_a_folder_of_something_else_is_not_touched(tmp_path: Path) -> None:
    (tmp_path / "thesis.tex").write_text("three years of work")
    with pytest.raises(Exception, match="is not the folder of a run"):
        resume_or_start(config(tmp_path))
    assert (tmp_path / "thesis.tex").exists()

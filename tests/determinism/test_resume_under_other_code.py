"""A run is not continued by other code than began it, unless told so; then it is marked."""

from __future__ import annotations

import importlib
import json
import os
import shutil
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

import htsrl
from htsrl import A2C, Config, ConfigError, Experiment, Placement, resume, train

PACKAGE = Path(htsrl.__file__).parent
EXPERIMENT = Experiment("CartPole-v1", algorithm=A2C(), num_envs=2, sync_interval=4, total_steps=32)
OWN_ALGORITHM = """
from dataclasses import dataclass
from htsrl.algorithms.a2c.algorithm import A2CAlgorithm
from htsrl.algorithms.a2c import A2C

class Steady(A2CAlgorithm):
    @dataclass(frozen=True)
    class Settings:
        rate: float = 1e-3

    def __init__(self, settings, run):
        super().__init__(A2C(learning_rate=settings.rate, anneal_learning_rate=False), run)
"""


@pytest.fixture(scope="module")
def changed_package(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a copy of htsrl that steps twice as far, and shows its results otherwise, which does not matter."""
    folder = tmp_path_factory.mktemp("changed")
    shutil.copytree(PACKAGE, folder / "htsrl", ignore=shutil.ignore_patterns("__pycache__"))
    with open(folder / "htsrl" / "cli" / "main.py", "a") as file:
        file.write("\n# shown otherwise\n")
    file_of_rule = folder / "htsrl" / "algorithms" / "optimizers.py"
    source = file_of_rule.read_text()
    changed = source.replace("value=-learning_rate)", "value=-2 * learning_rate)")
    assert changed != source
    file_of_rule.write_text(changed)
    return folder


def resume_by(package_folder: Path, run_dir: Path, *flags: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "htsrl", "resume", str(run_dir), "--total-steps", "64", *flags]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(package_folder), *sys.path])}
    return subprocess.run(command, env=environment, cwd=package_folder, capture_output=True, text=True, timeout=120)


def test_a_resume_under_other_code_is_refused_by_name_and_marked_if_allowed(
    tmp_path: Path, changed_package: Path
) -> None:
    run_dir = tmp_path / "run"
    train(Config(EXPERIMENT, Placement("inline", run_dir=run_dir, tensorboard=False, progress="off")))
    refused = resume_by(changed_package, run_dir)
    assert refused.returncode == 2, refused.stderr
    assert "(it differs in algorithms)" in refused.stderr
    assert "--allow-different-numerics" in refused.stderr
    assert not (run_dir / "numerics_changes.json").exists()
    allowed = resume_by(changed_package, run_dir, "--allow-different-numerics")
    assert allowed.returncode == 0, allowed.stderr
    (change,) = json.loads((run_dir / "numerics_changes.json").read_text())
    assert change["version"] == 4
    assert "(it differs in algorithms)" in change["changes"][0]
    assert json.loads((run_dir / "result.json").read_text())["numerics_changes"] == 1


def test_an_algorithm_of_ones_own_is_resumed_and_its_source_counts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = tmp_path / "steady_algorithm.py"
    source.write_text(OWN_ALGORITHM)
    monkeypatch.syspath_prepend(str(tmp_path))
    settings = importlib.import_module("steady_algorithm").Steady.Settings()
    experiment, run_dir = replace(EXPERIMENT, algorithm=settings), tmp_path / "run"
    train(Config(experiment, Placement("inline", run_dir=run_dir, tensorboard=False, progress="off")))
    assert resume(run_dir, total_steps=64).updates == 8
    source.write_text(OWN_ALGORITHM.replace("learning_rate=settings.rate", "learning_rate=2 * settings.rate"))
    with pytest.raises(ConfigError, match="own module steady_algorithm: "):
        resume(run_dir, total_steps=96)

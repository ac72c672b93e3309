"""An algorithm of htsrl's own is a folder in `htsrl/algorithms`, and no line anywhere else."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import htsrl

SETTINGS = '''
"""Settings of the newcomer."""

from dataclasses import dataclass
from typing import ClassVar

from htsrl.algorithms.newcomer.presets import PRESETS
from htsrl.config.rules import AT_LEAST_1


@dataclass(frozen=True)
class Newcomer:
    """The newest of all."""

    name: ClassVar[str] = "newcomer"
    algorithm: ClassVar[str] = "htsrl.algorithms.newcomer.algorithm:NewcomerAlgorithm"
    metrics: ClassVar = {"train/newness": "How new it is."}
    rules: ClassVar = {"newness": AT_LEAST_1}
    presets: ClassVar = PRESETS
    default_sync_interval: ClassVar[int] = 4

    newness: int = 3
    """How new it is."""
'''
FILES = {
    "__init__.py": "from htsrl.algorithms.newcomer.settings import Newcomer\n\n__all__ = ['Newcomer']\n",
    "settings.py": SETTINGS,
    "presets.py": """
from htsrl.config.preset import Preset

PRESETS = {"classic_control": Preset({"newness": 7}, {"num_envs": 2, "total_steps": 16})}
""",
    "algorithm.py": """
from typing import NamedTuple

from htsrl.algorithms.newcomer import Newcomer


class NoTargets(NamedTuple):
    pass


class NewcomerAlgorithm:
    Settings = Newcomer
    Targets = NoTargets
    differentiates_at_behaviour = False

    def __init__(self, settings, run):
        self.settings = settings

    def check(self):
        pass

    def improve(self, update, draft, batch):
        return {"train/newness": float(self.settings.newness)}
""",
}
LOOK = """
import sys

import htsrl
from htsrl.cli.reference import metrics_page, settings_page
from htsrl.config.check import check

assert "Newcomer" in htsrl.__all__
assert "## Newcomer" in settings_page() and "train/newness" in metrics_page()
try:
    check(htsrl.Config(htsrl.Experiment("CartPole-v1", algorithm=htsrl.Newcomer(newness=0))))
except htsrl.ConfigError as error:
    assert "newness=0 must be at least 1" in str(error)
else:
    raise AssertionError("its rules are not held")
assert "torch" not in sys.modules, "whoever reads settings loads torch"
from htsrl.cli.main import main

run = ["train", "CartPole-v1", "--algo", "newcomer", "--placement", "inline", "--run-dir", sys.argv[1]]
main([*run, "--no-tensorboard", "--progress", "off"])
assert "train/newness\\": 7.0" in (htsrl.load_policy(sys.argv[1]), open(sys.argv[1] + "/metrics.jsonl").read())[1]
"""


def test_a_folder_is_all_that_an_algorithm_of_htsrls_own_costs(tmp_path: Path) -> None:
    package = tmp_path / "place" / "htsrl"
    shutil.copytree(Path(htsrl.__file__).parent, package, ignore=shutil.ignore_patterns("__pycache__"))
    (package / "algorithms" / "newcomer").mkdir()
    for name, text in FILES.items():
        (package / "algorithms" / "newcomer" / name).write_text(text)
    command = [sys.executable, "-c", LOOK, str(tmp_path / "run")]
    environment = {**os.environ, "PYTHONPATH": str(package.parent)}
    done = subprocess.run(command, env=environment, cwd=tmp_path, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    assert "preset    classic_control (newcomer)" in done.stderr

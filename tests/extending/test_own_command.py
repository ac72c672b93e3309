"""`htsrl` lists commands that packages register, and loads none that is not asked for."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import htsrl

MODULE = """
from dataclasses import dataclass

@dataclass(frozen=True)
class Forecast:
    \"\"\"Says what comes.\"\"\"

    days: int = 1

    def run(self) -> int:
        print(f"rain for {self.days} days")
        return 3
"""
LOOK = """
import contextlib, io, sys
import htsrl
from htsrl.cli.main import main

assert "Experiment" in dir(htsrl)
with contextlib.redirect_stdout(io.StringIO()) as printed, contextlib.suppress(SystemExit):
    main(["--help"])
said = " ".join(printed.getvalue().replace("\u2502", " ").split())
assert "Measure, print a table" in said, said
assert "forecast Tells the weather. (of the package Weather)" in said, said
for module in ("htsrl_bench", "torch", "matplotlib", "tensorboard", "transformers", "optuna", "ray", "weather"):
    assert module not in sys.modules, f"{module} is loaded to print help"
main(["forecast", "--days", "2"])
"""


def test_help_lists_a_packages_command_and_loads_neither_it_nor_torch_nor_the_benchmarks(tmp_path: Path) -> None:
    information = tmp_path / "Weather-1.0.dist-info"
    information.mkdir()
    (information / "METADATA").write_text(
        "Metadata-Version: 2.1\nName: Weather\nVersion: 1.0\nSummary: Tells the weather.\n"
    )
    (information / "entry_points.txt").write_text(
        "[htsrl.commands]\nforecast = weather:Forecast\neval = weather:Gone\n"
    )
    (tmp_path / "weather.py").write_text(MODULE)
    paths = os.pathsep.join([str(tmp_path), str(Path(htsrl.__file__).parents[1])])
    done = subprocess.run(
        [sys.executable, "-c", LOOK],
        env={**os.environ, "PYTHONPATH": paths, "COLUMNS": "200"},
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 3, done.stderr
    assert done.stdout == "rain for 2 days\n"
    assert "Weather registers a command eval, which htsrl has; it is left out" in done.stderr

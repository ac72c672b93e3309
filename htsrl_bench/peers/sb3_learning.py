"""The same learning in Stable-Baselines3, beside htsrl's own."""

from __future__ import annotations

import json
import os
import subprocess
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

from htsrl.config import Experiment
from htsrl.errors import HtsrlError
from htsrl.statistics.curve import mean_over
from htsrl_bench.learned import Learned
from htsrl_bench.peers.environments import prepare, versions
from htsrl_bench.peers.failures import last_words
from htsrl_bench.peers.frameworks import PEERS
from htsrl_bench.peers.work import off_policy_job
from htsrl_bench.provenance import current_commit

SB3 = "sb3"
PEER = PEERS[SB3]


@dataclass(frozen=True)
class StableBaselines:
    """An interpreter that has it."""

    python: Path
    version: str

    @classmethod
    def prepared(cls, venvs: Path) -> StableBaselines:
        """In a virtual environment, which is made unless it is there."""
        python = prepare(SB3, PEER, venvs)
        return cls(python, versions(python, PEER)["stable-baselines3"])

    def learn(self, experiment: Experiment, evaluation_episodes: int) -> Learned:
        """Train and evaluate in a process of its own; HtsrlError with its last words where it fails."""
        with TemporaryDirectory(prefix="htsrl-bench-") as name:
            folder = Path(name)
            (folder / "job.json").write_text(json.dumps(off_policy_job(experiment, evaluation_episodes)))
            ended = subprocess.run(
                [str(self.python), "-m", str(PEER.off_policy_module), "job.json", "dummy", "readings"],
                cwd=folder,
                # Threads that wait for each other while others compute are slower than one.
                env={**os.environ, "PYTHONPATH": str(PEER.scripts), "OMP_NUM_THREADS": "1"},
                capture_output=True,
                text=True,
            )
            if ended.returncode != 0:
                raise HtsrlError(f"Stable-Baselines3 did not train {experiment.env}: {last_words(ended.stderr)}")
            found = json.loads((folder / "learned.json").read_text())
        curve = tuple((int(step), float(mean), float(at)) for step, mean, at in found["curve"])
        steps, _, seconds = curve[-1]
        return Learned(
            way=SB3,
            seed=experiment.seed,
            score=found["score"],
            score_deviation=found["score_deviation"],
            digest="none",
            steps=steps,
            steps_per_second=steps / seconds,
            command=f"Stable-Baselines3 {self.version}, {PEER.off_policy_module}",
            commit=current_commit(),
            mean_over_run=mean_over(curve),
            curve=curve,
        )

"""What a work's environments need in memory: `python -m htsrl_bench.env_memory WORK COUNT` prints megabytes."""

from __future__ import annotations

import os
import subprocess
import sys

from htsrl.errors import HtsrlError
from htsrl_bench.process_tree import memory_of


def env_megabytes(work: str, count: int) -> float:
    """For so many environments in one process, their simulator's code included."""
    ended = subprocess.run(
        [sys.executable, "-P", "-m", "htsrl_bench.env_memory", work, str(count)],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
        capture_output=True,
        text=True,
        check=False,
    )
    if ended.returncode:
        raise HtsrlError(f"the environments of {work} could not be made: {ended.stderr}")
    return float(ended.stdout.split()[-1])


def main() -> None:
    import htsrl.placements.worker  # noqa: F401  (an executor has imported that much before it makes environments)
    from htsrl.envs.make import make_env
    from htsrl_bench.works import WORKS

    experiment, count = WORKS[sys.argv[1]], int(sys.argv[2])
    before = memory_of(os.getpid()).private
    envs = [make_env(experiment.env, experiment.env_args, experiment.imports) for _ in range(count)]
    for env in envs:
        env.reset(seed=0)
        env.step(env.action_space.sample())
    print(memory_of(os.getpid()).private - before)


if __name__ == "__main__":
    main()

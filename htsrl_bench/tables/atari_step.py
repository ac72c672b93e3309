"""`htsrl bench atari-step`."""

from __future__ import annotations

from dataclasses import asdict, dataclass, replace
from pathlib import Path

from htsrl_bench import atari_step
from htsrl_bench.command_line import bench_command
from htsrl_bench.provenance import Provenance
from htsrl_bench.record import Record, publish


@dataclass(frozen=True)
class AtariStepTable:
    """CPU time per step of Atari: ours, Gymnasium's wrappers, ale-py's vector environment, the emulator alone."""

    games: tuple[str, ...] = ("ALE/Pong-v5", "ALE/Breakout-v5")
    """Which games, as ale-py names them."""
    steps: int = 400
    """Steps that each environment takes in each repetition."""
    repetitions: int = 25
    """How often they take turns."""
    output: Path = Path("benchmarks")
    """Folder for the record."""

    def run(self) -> int:
        bench = atari_step.AtariStepBench(self.games, self.steps, self.repetitions)
        provenance = Provenance.take()
        measured = atari_step.measure(bench)
        versions = {**provenance.versions, **atari_step.simulator_versions()}
        record = Record(
            name="atari-step",
            command=bench_command("atari-step", self),
            provenance=replace(provenance, versions=versions),
            configs={},
            repetitions=[asdict(of) for of in measured],
            summary={of.game: of.document() for of in measured},
            tables=[atari_step.table(measured)],
        )
        publish(record, self.output)
        return 0

"""`htsrl bench replay-buffer`."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from pathlib import Path

from htsrl_bench import replay_buffer
from htsrl_bench.command_line import bench_command
from htsrl_bench.provenance import Provenance
from htsrl_bench.record import Record, publish


@dataclass(frozen=True)
class ReplayBufferTable:
    """A replay buffer of many transitions: memory, time to draw from it, and what it adds to checkpoints."""

    capacity: int = 1_000_000
    """Transitions, of HalfCheetah's shape."""
    repetitions: int = 3
    """How often everything is measured."""
    minibatches: int = 200
    """Drawn of each kind in a repetition."""
    output: Path = Path("benchmarks")
    """Folder for the record."""

    def run(self) -> int:
        bench = replay_buffer.ReplayBench(self.capacity, self.repetitions, self.minibatches)
        provenance = Provenance.take()
        measured = bench.measure()
        found = replay_buffer.summaries(measured)
        record = Record(
            name="replay-buffer",
            command=bench_command("replay-buffer", self),
            provenance=provenance,
            configs={},
            repetitions=measured,
            summary={
                **{name: asdict(of) for name, of in found.items()},
                "highlights": {
                    f"replay buffer of {self.capacity:,} transitions of HalfCheetah": (
                        f"{found['memory'].median:.0f} MB, a minibatch in {found['minibatch'].median:.2f} ms, a "
                        f"checkpoint holds it up {found['next checkpoint, at the barrier'].median:.1f} ms"
                    )
                },
            },
            tables=[replay_buffer.table(bench, measured)],
        )
        publish(record, self.output)
        return 0

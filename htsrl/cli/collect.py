"""`htsrl collect`: write a dataset of episodes, of a run's policy or of random actions."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Literal

import tyro

from htsrl.cli.folder import CodeFlags, VersionFlags, find_modules_here
from htsrl.cli.train import Repeatable, parse_env_arg
from htsrl.config.file import resolve_typed_env
from htsrl.datasets.dataset import Dataset
from htsrl.datasets.minari import check_id, write_minari
from htsrl.datasets.write import check_can_be_made, write_dataset
from htsrl.errors import ConfigError
from htsrl.metrics.episode_progress import EpisodeProgress
from htsrl.metrics.line_progress import LineProgress
from htsrl.plain_files import printable
from htsrl.runs.collect import Collected, collect, collect_at_random
from htsrl.runs.play import Watch

Format = Literal["htsrl", "minari"]


@dataclass(frozen=True)
class Collect:
    """Play episodes with a run's policy, or at random, and write them as a dataset to learn from."""

    run_dir: Annotated[tyro.conf.Positional[str], tyro.conf.arg(metavar="RUN_DIR|ENV_ID")]
    """Folder of the run; with --random, an environment."""
    out: Annotated[str, tyro.conf.arg(metavar="FOLDER")]
    """Folder to make, which must not exist yet; with --format minari a Minari id, such as pendulum/expert-v0."""
    episodes: int = 100
    """How many episodes."""
    seed: int = 0
    """Which episodes: those that `htsrl eval` plays with this seed. The same seed writes the same bytes."""
    sampled: bool = False
    """Sample actions instead of taking the most likely ones."""
    random: bool = False
    """Act at random in the environment ENV_ID."""
    format: Format = "htsrl"
    """htsrl: docs/offline.md describes it. minari: a local Minari dataset (`pip install 'htsrl[minari]'`)."""
    env_arg: Annotated[Repeatable, tyro.conf.arg(metavar="KEY=VALUE")] = ()
    """An argument for the environment's constructor, the value in JSON, beside the run's or in place of one of them."""
    policy: VersionFlags = field(default_factory=VersionFlags)
    code: CodeFlags = field(default_factory=CodeFlags)

    def run(self) -> int:
        check_target(self.out, self.format)
        asked = Collected(self.episodes, self.seed, self.sampled, dict(map(parse_env_arg, self.env_arg)))
        with EpisodeProgress(self.episodes) as progress:
            dataset = self._at_random(asked, progress.update) if self.random else self._of_run(asked, progress.update)
        write(dataset, self.out, self.format)
        describe(dataset, self.out)
        return 0

    def _of_run(self, asked: Collected, watch: Watch) -> Dataset:
        run_dir = Path(self.run_dir)
        self.code.open(run_dir)
        code = self.code
        return collect(run_dir, asked, self.policy.choice, code.named_env, code.imports, code.trust, watch)

    def _at_random(self, asked: Collected, watch: Watch) -> Dataset:
        if self.policy.choice != "newest" or self.code.env is not None:
            raise ConfigError("--random plays without a policy, in the environment that is named first; leave the rest")
        find_modules_here()
        return collect_at_random(resolve_typed_env(self.run_dir), asked, self.code.imports, watch)


@dataclass(frozen=True)
class MergeDatasets:
    """Put datasets of equal spaces together, or one into another format, and write the result."""

    sources: Annotated[tyro.conf.Positional[tuple[str, ...]], tyro.conf.arg(metavar="FOLDER|minari:NAME")]
    """Datasets, in the order in which their episodes will stand."""
    out: Annotated[str, tyro.conf.arg(metavar="FOLDER")]
    """Folder to make, which must not exist yet; with --format minari a Minari id, such as pendulum/expert-v0."""
    format: Format = "htsrl"
    """htsrl: docs/offline.md describes it. minari: a local Minari dataset (`pip install 'htsrl[minari]'`)."""

    def run(self) -> int:
        from htsrl.datasets.open import open_dataset
        from htsrl.datasets.write import merged

        if not self.sources:
            raise ConfigError("no dataset is named; give one or more folders")
        check_target(self.out, self.format)
        with LineProgress() as progress:
            opened = []
            for number, source in enumerate(self.sources, start=1):
                progress.show(printable(f"opening {number} of {len(self.sources)}, {source}"))
                opened.append(open_dataset(source))
            progress.show(f"putting {sum(of.num_steps for of in opened):,} steps together")
            whole = merged(opened)
            progress.show(f"writing {whole.num_steps:,} steps")
            write(whole, self.out, self.format)
        describe(whole, self.out)
        return 0


def check_target(out: str, to: Format) -> None:
    """Whether a dataset can be made there, before anything is played."""
    check_id(out) if to == "minari" else check_can_be_made(Path(out))


def write(dataset: Dataset, out: str, to: Format) -> None:
    if to == "minari":
        write_minari(dataset, out)
    else:
        write_dataset(dataset, Path(out))


def describe(dataset: Dataset, out: str) -> None:
    """Say what was written."""
    returns = dataset.returns()
    print(f"episodes {dataset.num_episodes:,}, {dataset.num_steps:,} steps")
    print(f"return   {returns.mean():.2f}, from {returns.min():.2f} to {returns.max():.2f}")
    if dataset.has_dt:
        periods = sorted(set(dataset.arrays["dt"].tolist()))
        print(f"dt       {', '.join(f'{dt:g}' for dt in periods[:8])}{', ...' if len(periods) > 8 else ''} s")
    print(f"identity {dataset.manifest.identity}")
    print(printable(f"dataset  {out}"))

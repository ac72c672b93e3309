"""`htsrl eval` of a run on text: scores of held-out prompts, and samples."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from htsrl.cli.folder import CodeFlags, VersionFlags
from htsrl.errors import ConfigError
from htsrl.plain_files import printable

NUM_SAMPLES = 5


@dataclass(frozen=True)
class TextPrompts:
    """Which prompts are completed, and how completions are drawn and scored."""

    count: int
    seed: int
    sampled: bool
    rewards: Sequence[str] = ()
    """In place of the run's own."""


def print_text_evaluation(run_dir: Path, prompts: TextPrompts, policy: VersionFlags, code: CodeFlags) -> int:
    """Print what the model makes of prompts; returns the exit code."""
    from htsrl.language.evaluate import evaluate_text

    if policy.best:
        raise ConfigError("--best is for runs with environments; a run on text has its newest model and --version 0")
    how = prompts.count, prompts.seed, prompts.sampled, policy.version, code.trust, prompts.rewards or None
    found = evaluate_text(run_dir, *how)
    for sample in found.samples[:NUM_SAMPLES]:
        print(printable(f"{sample.score:8.3g}  {_one_line(sample.prompt)} -> {_one_line(sample.completion)}"))
    print(f"reward   {found.mean_score:.4g} over {found.num_scored} prompts")
    for name, mean in found.mean_rewards.items() if len(found.mean_rewards) > 1 else ():
        print(printable(f"         {name} {mean:.4g}"))
    if found.win_rate is not None:
        print(f"win rate {found.win_rate:.1%} against the references")
    print(f"ended    {found.ended:.1%} of the completions")
    print(f"model    {found.model}")
    return 0


def _one_line(text: str) -> str:
    return text.replace("\n", "\\n")

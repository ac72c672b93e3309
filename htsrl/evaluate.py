"""Evaluation: episodes of a trained policy, apart from training and without an effect on it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from htsrl.config import EnvFactory
from htsrl.errors import ConfigError
from htsrl.metrics.evaluation import Evaluation
from htsrl.runs.folder import RunFolder
from htsrl.runs.load_policy import policy_of
from htsrl.runs.play import Episodes, Watch, play
from htsrl.runs.saved_policy import Choice
from htsrl.runs.trust import Vouched, admitted_config


def evaluate(
    run_dir: Path | str,
    episodes: int = 100,
    seed: int = 0,
    sampled: bool = False,
    env: str | EnvFactory | None = None,
    watch: Watch | None = None,
    checkpoint: Choice = "newest",
    imports: Sequence[str] = (),
    trust: bool = False,
    env_args: Mapping[str, Any] | None = None,
    log_info: Sequence[str] = (),
) -> Evaluation:
    """Play `episodes` with a run's policy: its most likely actions, or `sampled` ones.

    Episode i depends on the policy, the seed and i alone. `checkpoint` chooses the newest whole version, the best, or
    version N; the run may still be under way. `env_args` go before the run's. Numbers of an episode's last `info` are
    kept: `is_success`, those that the run logs, and `log_info`. docs/security.md tells of `imports` and `trust`.
    """
    if episodes < 1:
        raise ConfigError(f"episodes={episodes} must be at least 1")
    if not 0 <= seed < 2**63:
        raise ConfigError(f"seed={seed} must be from 0 to 2**63 - 1")
    folder = RunFolder.existing(Path(run_dir))
    config = admitted_config(folder.config_file, env, Vouched(imports=imports, everything=trust))
    experiment = replace(config.experiment, env_args={**config.experiment.env_args, **(env_args or {})})
    policy = policy_of(folder, experiment, folder.interface(), checkpoint)
    asked = Episodes(episodes, seed, sampled, log_info=(*config.placement.log_info, *log_info))
    return play(policy, experiment, asked, watch)

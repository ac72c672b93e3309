"""From the folder of a run to a policy in one's hands."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from htsrl.config import EnvFactory, Experiment
from htsrl.envs.lanes.as_env import single_env
from htsrl.envs.look import interface_of
from htsrl.numerics import single_threaded
from htsrl.placements.collector import check_has_envs
from htsrl.runs.folder import RunFolder
from htsrl.runs.saved_policy import Choice, saved_policy
from htsrl.runs.trust import Vouched, admitted_config, admitted_network
from htsrl.spaces import Interface

if TYPE_CHECKING:
    from htsrl.runs.trained_policy import TrainedPolicy


def load_policy(
    run_dir: Path | str,
    checkpoint: Choice = "newest",
    env: str | EnvFactory | None = None,
    imports: Sequence[str] = (),
    trust: bool = False,
) -> TrainedPolicy:
    """The policy of a run, also while the run continues: its newest whole version, the best checkpoint, or version N.

    No code of the environment runs, unless the folder does not describe its spaces, as those of older versions of htsrl
    do not: then one environment is made, the folder's or `env`. docs/security.md tells of `imports` and `trust`.
    """
    folder, vouched = RunFolder.existing(Path(run_dir)), Vouched(imports=tuple(imports), everything=trust)
    interface = folder.interface()
    if interface is not None:
        return policy_of(folder, admitted_network(folder.config_file, vouched).experiment, interface, checkpoint)
    return policy_of(folder, admitted_config(folder.config_file, env, vouched).experiment, None, checkpoint)


def policy_of(
    folder: RunFolder, experiment: Experiment, interface: Interface | None, checkpoint: Choice
) -> TrainedPolicy:
    """The policy of an experiment whose code may run; without an interface an environment is looked at."""
    check_has_envs(experiment.env, folder.shown)
    saved = saved_policy(folder, checkpoint)
    from htsrl.runs.trained_policy import TrainedPolicy

    with single_threaded():
        return TrainedPolicy.of(experiment, interface or _interface_by_a_look(experiment), saved)


def _interface_by_a_look(experiment: Experiment) -> Interface:
    env = single_env(experiment)
    try:
        return interface_of(env, experiment.network)
    finally:
        env.close()

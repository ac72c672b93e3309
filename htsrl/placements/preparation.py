"""What a spare process does ahead, so that the start of a worker is short: imports, and environments.

The environment's constructor is the user's code. It may fail, hang or crash here, and none of that may harm the run:
the supervisor is told when it begins and when it is over, and takes nobody who is in the middle of it.
"""

from __future__ import annotations

from typing import Any

import gymnasium

from htsrl.placements.blueprint import Blueprint, read_blueprint
from htsrl.placements.messages import ReportWriter

PrebuiltEnvs = list[gymnasium.Env[Any, Any]]
"""Environments that were made and not used yet."""


def prepare(blueprint_fd: int, report_writer: ReportWriter) -> PrebuiltEnvs:
    import_what_computes()
    report_writer.preparing(done=False)
    try:
        prebuilt_envs = make_ahead(read_blueprint(blueprint_fd))
    except (Exception, SystemExit):
        prebuilt_envs = []  # if it goes wrong again when it is needed, it is said then
    report_writer.preparing(done=True)
    return prebuilt_envs


def import_what_computes() -> None:
    """All of it: an optimizer imports more when the first one is made."""
    import torch

    import htsrl.roles.gradient_worker
    import htsrl.roles.learner
    import htsrl.roles.torch_answers  # noqa: F401

    torch.optim.Adam([torch.zeros(1)], fused=True)


def make_ahead(blueprint: Blueprint) -> PrebuiltEnvs:
    """As many environments as any executor has, if an idle one costs next to nothing and says so.

    Of others, and of those that threads will make for themselves, a single one is made and closed, for what that
    imports and loads.
    """
    if blueprint.collector is not None:
        blueprint.collector.import_ahead()
        return []
    if not blueprint.executor_envs:
        return []
    if blueprint.lane:
        blueprint.make_lane().close()
        return []
    env = blueprint.make_env()
    may_be_made = env.has_wrapper_attr("may_be_made_ahead") and env.get_wrapper_attr("may_be_made_ahead")
    if blueprint.on_threads or not may_be_made:
        env.close()
        return []
    most = max(len(envs) for envs in blueprint.executor_envs)
    return [env, *(blueprint.make_env() for _ in range(most - 1))]

"""What a run needs to know of those who fill its storages, where they do not step Gymnasium environments.

Such a plan is plain data, like the blueprint that holds it, and imports what computes only when it builds.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from htsrl.errors import ConfigError
from htsrl.roles.role import Collector, Notify
from htsrl.roles.shared import Shared

if TYPE_CHECKING:
    from torch import nn

    from htsrl.dataflow.parameters import ParameterRing
    from htsrl.roles.rollout_finisher import Finisher

COLLECTORS = {"language/": "htsrl.language.survey:draw_text_blueprint"}
"""Environments that begin like this are none: MODULE:FUNCTION draws the blueprint of such a run."""


@dataclass(frozen=True)
class CollectorSite:
    """Where a collector works."""

    shared: Shared
    parameters: ParameterRing
    notify_learner: Notify
    beat: Callable[[], None]
    """Its sign of life in the middle of a rollout; ends the process where the run stops."""


class CollectorPlan(Protocol):
    """Who fills the columns of a run, and with which policy."""

    @property
    def name(self) -> str:
        """What one of its workers is called."""

    @property
    def libraries(self) -> Sequence[str]:
        """Modules that all of the run's processes need, none of the user's: they are imported once, for all."""

    def build_policy(self) -> nn.Module:
        """As the run begins with it."""

    def build_collector(self, columns: Sequence[int], site: CollectorSite) -> Collector: ...

    def build_finisher(self, shared: Shared, parameters: ParameterRing) -> Finisher | None:
        """Who adds what collectors leave to the learner."""

    def import_ahead(self) -> None:
        """What a spare process can do before anybody dies."""

    def save_result(self, run_dir: Path, policy: nn.Module) -> None:
        """What a run leaves behind beside the files that every run has."""


def collector_of(env: object) -> str | None:
    """MODULE:FUNCTION that draws the blueprint of a run with this environment, if it is none of Gymnasium's."""
    prefixes = [prefix for prefix in COLLECTORS if isinstance(env, str) and env.startswith(prefix)]
    return COLLECTORS[prefixes[0]] if prefixes else None


def check_has_envs(env: object, run_dir: Path) -> None:
    """ConfigError for a run without environments, for those who are about to look at them or at a policy for them."""
    if collector_of(env) is not None:
        raise ConfigError(
            f"{run_dir} is a run of {env}, which has no environments and no policy for them; its model is in "
            f"{run_dir / 'model'}, and `htsrl eval {run_dir}` shows what it does"
        )

"""How many files this process, and those that it starts, may have open."""

from __future__ import annotations

import resource

from htsrl.errors import ConfigError

SPARE_FILES = 256
"""For all else that a run opens."""


def allow_open_files(count: int) -> None:
    """Raise the soft limit to as many as are needed; ConfigError where the hard one forbids it."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    needed = count + SPARE_FILES
    if soft == resource.RLIM_INFINITY or soft >= needed:
        return
    if hard != resource.RLIM_INFINITY and hard < needed:
        raise ConfigError(
            f"{count} environments on threads need {needed} open files, and the limit is {hard}; use fewer "
            "environments, or raise it (ulimit -Hn)"
        )
    resource.setrlimit(resource.RLIMIT_NOFILE, (needed, hard))

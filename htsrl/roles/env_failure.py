"""What is said of an environment, or a lane of them, that raised or broke a rule."""

from __future__ import annotations

import traceback

from htsrl.errors import EnvironmentFailure, RuleBroken


def failure_of(who: str, index: int, call: str, where: str, error: BaseException) -> EnvironmentFailure:
    """To be raised from the handler of `error`, whose traceback is part of the text unless htsrl found it itself."""
    found_by_us = isinstance(error, RuleBroken)
    did = "broke a rule" if found_by_us else f"raised {type(error).__name__}"
    details = "" if found_by_us else f"\n\n{traceback.format_exc()}"
    return EnvironmentFailure(f"{who} {did} in {call} at {where}: {error}{details}", env=index)

"""Simulators that come as optional packages."""

from __future__ import annotations

import importlib
from typing import Any

from htsrl.errors import ConfigError


def import_simulator(package: str, extra: str) -> Any:
    """The imported package, which `pip install htsrl[extra]` brings."""
    try:
        return importlib.import_module(package)
    except ImportError as error:
        raise ConfigError(f"{package} cannot be imported: {error}; pip install htsrl[{extra}]") from error

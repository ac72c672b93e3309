"""Which environments this user's runs have looked at before, so that a look is taken once for each version of one.

A file of hashes in `$XDG_CACHE_HOME/htsrl` (`~/.cache/htsrl`). Without it, or where it cannot be written, every run
looks again.
"""

from __future__ import annotations

import json
import os
import platform
from collections.abc import Mapping
from contextlib import suppress
from importlib.metadata import version
from pathlib import Path
from typing import Any

import gymnasium
import xxhash

from htsrl.config import EnvFactory
from htsrl.envs.origins import SCRIPTS, Origins
from htsrl.plain_files import read_plain

MAX_BYTES = 64 * 1024
"""About two thousand hashes; then the file begins anew."""


def identity_of(env: str | EnvFactory, env_args: Mapping[str, Any], origins: Origins) -> str | None:
    """A hash of the environment's name, arguments and code; None where these do not tell which one it is.

    So it is with what a script or a notebook defines, whose code `origins` leaves out, and with what has no name.
    """
    spec = gymnasium.registry.get(env.rpartition(":")[2]) if isinstance(env, str) else None
    maker: Any = env if not isinstance(env, str) else spec.entry_point if spec else env
    name = maker if isinstance(maker, str) else f"{maker.__module__}:{getattr(maker, '__qualname__', '<object>')}"
    if name.partition(":")[0] in SCRIPTS or "<" in name:
        return None
    versions = [platform.python_version(), *map(version, ("htsrl", "gymnasium", "numpy", "torch"))]
    code = [dict(origins.packages), dict(origins.own_modules), versions]
    try:
        text = json.dumps([name, env if isinstance(env, str) else None, dict(env_args), code], sort_keys=True)
    except TypeError:  # an argument that is an object
        return None
    return xxhash.xxh3_128_hexdigest(text.encode())


def is_known(identity: str) -> bool:
    try:
        return identity.encode() in read_plain(_file(), 2 * MAX_BYTES).split()
    except (OSError, ValueError, RuntimeError):  # RuntimeError: there is no home folder
        return False


def remember(identity: str) -> None:
    with suppress(OSError, RuntimeError):
        path = _file()
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        is_full = path.exists() and path.stat().st_size > MAX_BYTES
        how = os.O_WRONLY | os.O_CREAT | (os.O_TRUNC if is_full else os.O_APPEND)
        fd = os.open(path, how, 0o600)
        try:
            os.write(fd, f"{identity}\n".encode())
        finally:
            os.close(fd)


def _file() -> Path:
    cache = os.environ.get("XDG_CACHE_HOME", "")
    # As the XDG specification says, a path that is not absolute counts as none.
    folder = Path(cache) if os.path.isabs(cache) else Path("~/.cache").expanduser()
    return folder / "htsrl" / "environments_that_repeat"

"""A virtual environment for every peer, made once and kept."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

from htsrl_bench.peers.failures import PeerFailed, last_words
from htsrl_bench.peers.frameworks import Peer

INSTALL_SECONDS = 1800.0
NO_DEPENDENCIES = "# --no-deps"
ASK_VERSIONS = (
    "import importlib.metadata, json, sys; print(json.dumps({p: importlib.metadata.version(p) for p in sys.argv[1:]}))"
)


def default_folder() -> Path:
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "htsrl" / "peers"


def prepare(name: str, peer: Peer, folder: Path) -> Path:
    """The Python of the peer's virtual environment in `folder`, which is made unless it is there and complete."""
    environment = folder / name
    python = environment / "bin" / "python"
    marker = environment / "installed.txt"
    wanted = peer.requirements.read_text()
    if marker.exists() and marker.read_text() == wanted:
        return python
    _say(f"{peer.title}: making a virtual environment in {environment}")
    shutil.rmtree(environment, ignore_errors=True)  # half of one, or one with other versions
    folder.mkdir(parents=True, exist_ok=True)
    _run([sys.executable, "-m", "venv", str(environment)], "a virtual environment cannot be made", folder)
    ordinary, _, over_their_wishes = wanted.partition(NO_DEPENDENCIES)
    for part, flags in ((ordinary, []), (over_their_wishes, ["--no-deps"])):
        packages = [line.strip() for line in part.splitlines() if line.strip() and not line.startswith("#")]
        if packages:
            _say(f"{peer.title}: pip installs {', '.join(packages)}")
            _run([str(python), "-m", "pip", "install", "--quiet", *flags, *packages], "pip cannot install it", folder)
    marker.write_text(wanted)
    return python


def versions(python: Path, peer: Peer) -> dict[str, str]:
    asked = _run([str(python), "-c", ASK_VERSIONS, *peer.packages], "its versions are unknown", python.parent)
    found: dict[str, str] = json.loads(asked)
    return found


def _run(command: list[str], failure: str, folder: Path) -> str:
    try:
        ended = subprocess.run(command, capture_output=True, text=True, timeout=INSTALL_SECONDS)
    except subprocess.TimeoutExpired:
        raise PeerFailed(f"{failure}: it took more than {INSTALL_SECONDS:g} s") from None
    if ended.returncode != 0:
        raise PeerFailed(f"{failure}: {last_words(ended.stderr or ended.stdout, [folder])}")
    return ended.stdout


def _say(line: str) -> None:
    print(line, file=sys.stderr, flush=True)

"""A virtual environment for every peer, made once and kept."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from tempfile import TemporaryDirectory

from htsrl_bench.peers.failures import PeerFailed, last_words
from htsrl_bench.peers.frameworks import Peer, Source

INSTALL_SECONDS = 1800.0
NO_DEPENDENCIES = "# --no-deps"
EMPTY_FOLDERS = """import os
if os.path.exists("setup.py"):
    for name in {names}:
        os.makedirs(name, exist_ok=True)
"""
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
    if peer.source is not None:
        _say(f"{peer.title}: pip builds {peer.source.requirement}")
        _build(python, peer.source)
    marker.write_text(wanted)
    return python


def _build(python: Path, source: Source) -> None:
    """From its source package, with nothing of CUDA on the path: set-ups that find a compiler for it want all of it."""
    folders = os.environ["PATH"].split(os.pathsep)
    path = os.pathsep.join(folder for folder in folders if not (Path(folder) / "nvcc").exists())
    with TemporaryDirectory(prefix="htsrl-bench-") as name:
        # Python runs it whenever it starts, and pip starts a set-up in the folder that it has unpacked the package to.
        (Path(name) / "sitecustomize.py").write_text(EMPTY_FOLDERS.format(names=source.empty_folders))
        command = ["install", "--quiet", "--no-deps", "--no-build-isolation", "--no-binary", ":all:"]
        variables = {"PATH": path, "PYTHONPATH": name}
        _run([str(python), "-m", "pip", *command, source.requirement], "it cannot be built", Path(name), variables)


def versions(python: Path, peer: Peer) -> dict[str, str]:
    asked = _run([str(python), "-c", ASK_VERSIONS, *peer.packages], "its versions are unknown", python.parent)
    found: dict[str, str] = json.loads(asked)
    return found


def _run(command: list[str], failure: str, folder: Path, variables: Mapping[str, str] | None = None) -> str:
    environment = {**os.environ, **(variables or {})}
    try:
        ended = subprocess.run(command, capture_output=True, text=True, timeout=INSTALL_SECONDS, env=environment)
    except subprocess.TimeoutExpired:
        raise PeerFailed(f"{failure}: it took more than {INSTALL_SECONDS:g} s") from None
    if ended.returncode != 0:
        raise PeerFailed(f"{failure}: {last_words(ended.stderr or ended.stdout, [folder])}")
    return ended.stdout


def _say(line: str) -> None:
    print(line, file=sys.stderr, flush=True)

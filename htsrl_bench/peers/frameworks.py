"""The peers: what each installs, which program trains in it, and in how many ways."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

SCRIPTS = Path(__file__).parent / "scripts"
"""On the path of every peer, which finds the package `peer` there and nothing else."""


@dataclass(frozen=True)
class Peer:
    """A framework."""

    title: str
    module: str
    """The program, `python -m MODULE JOB_FILE VARIANT READINGS_FILE`."""
    requirements: Path
    """Packages for pip, with versions. A second part, after a line `# --no-deps`, is installed over their wishes."""
    variants: tuple[str, ...]
    """Ways to run it; all are measured, and the best is the peer's number."""
    packages: tuple[str, ...]
    """Whose versions a record tells."""
    overlapping: tuple[str, ...] = ()
    """Variants that roll out beside learning, whose second update may find a rollout from before the clock started."""
    only: Mapping[str, tuple[str, ...]] | None = None
    """Variants that exist only for the work named."""
    scripts: Path = SCRIPTS

    def variants_of(self, work: str) -> list[str]:
        return [name for name in self.variants if work in (self.only or {}).get(name, (work,))]


def _requirements(name: str) -> Path:
    return SCRIPTS / "requirements" / f"{name}.txt"


ATARI = ("pong-a2c", "breakout-a2c", "pong-ppo", "breakout-ppo")

SHARED = ("torch", "gymnasium")

PEERS: Mapping[str, Peer] = {
    "sb3": Peer(
        "Stable-Baselines3",
        "peer.sb3",
        _requirements("sb3"),
        variants=("dummy", "subproc"),
        packages=("stable-baselines3", *SHARED),
    ),
    "cleanrl": Peer(
        "CleanRL style",
        "peer.cleanrl",
        _requirements("cleanrl"),
        variants=("native", "sync", "async"),
        packages=("ale-py", *SHARED),
        only={"native": (*ATARI, "cartpole-ppo")},
    ),
    "sample-factory": Peer(
        "Sample Factory",
        "peer.sample_factory_appo",
        _requirements("sample-factory"),
        variants=("async", "sync", "serial"),
        packages=("sample-factory", *SHARED),
        overlapping=("async",),
    ),
    "torchrl": Peer(
        "TorchRL",
        "peer.torchrl_onpolicy",
        _requirements("torchrl"),
        variants=("serial", "parallel"),
        packages=("torchrl", *SHARED),
    ),
    "rllib": Peer(
        "RLlib",
        "peer.rllib_ppo",
        _requirements("rllib"),
        variants=("local", "remote"),
        packages=("ray", *SHARED),
    ),
}

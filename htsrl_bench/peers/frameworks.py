"""The peers: what each installs, which program trains in it, and in how many ways."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

SCRIPTS = Path(__file__).parent / "scripts"
"""On the path of every peer, which finds the package `peer` there and nothing else."""


WIDEST = "cartpole-4096-ppo"
"""Thousands of environments, which only who steps them in batches can do."""
ONE_THREAD = "-one-thread"
"""How the names of variants end that get OMP_NUM_THREADS=1."""


@dataclass(frozen=True)
class Source:
    """What pip cannot install by itself: it is built where its set-up finds what it would download."""

    requirement: str
    empty_folders: tuple[str, ...]
    """That its set-up looks for before it downloads them."""


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
    works: tuple[str, ...] | None = None
    """All the work that it can do; None: any but the widest."""
    off_policy_module: str | None = None
    """The program for work with a replay buffer; None where the peer does none of it."""
    source: Source | None = None
    """A package that has to be built here."""
    scripts: Path = SCRIPTS

    def variants_of(self, work: str) -> list[str]:
        can_do_it = work in self.works if self.works is not None else work != WIDEST
        if work in OFF_POLICY:
            can_do_it = self.off_policy_module is not None
        return [name for name in self.variants if can_do_it and work in (self.only or {}).get(name, (work,))]

    def module_of(self, work: str) -> str:
        return (self.off_policy_module or self.module) if work in OFF_POLICY else self.module


def _requirements(name: str) -> Path:
    return SCRIPTS / "requirements" / f"{name}.txt"


OFF_POLICY = ("pendulum-sac", "halfcheetah-sac")

ATARI = ("pong-a2c", "breakout-a2c", "pong-ppo", "breakout-ppo")
EVERYWHERE = (*ATARI, "cartpole-ppo", "halfcheetah-ppo")

SHARED = ("torch", "gymnasium")

PEERS: Mapping[str, Peer] = {
    "sb3": Peer(
        "Stable-Baselines3",
        "peer.sb3",
        _requirements("sb3"),
        variants=("dummy", "subproc", "dummy" + ONE_THREAD, "subproc" + ONE_THREAD),
        packages=("stable-baselines3", *SHARED),
        off_policy_module="peer.sb3_off_policy",
    ),
    "cleanrl": Peer(
        "CleanRL style",
        "peer.cleanrl",
        _requirements("cleanrl"),
        variants=("native", "sync", "async"),
        packages=("ale-py", *SHARED),
        only={"native": (*ATARI, "cartpole-ppo", WIDEST)} | dict.fromkeys(("sync", "async"), EVERYWHERE),
        works=(*EVERYWHERE, WIDEST),
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
    "pufferlib": Peer(
        "PufferLib",
        "peer.pufferlib_ppo",
        _requirements("pufferlib"),
        variants=("own", "same", "own" + ONE_THREAD, "same" + ONE_THREAD),
        packages=("pufferlib", *SHARED),
        works=("cartpole-ppo", WIDEST),
        source=Source(
            "pufferlib==3.0.0",
            ("raylib-5.5_webassembly", "box2d-web", "box2d-linux-amd64"),
        ),
    ),
}

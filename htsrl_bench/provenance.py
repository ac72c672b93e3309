"""What a measurement depends on besides its settings: machine, versions, code. Nothing that tells whose machine."""

from __future__ import annotations

import os
import platform
import subprocess
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path

import htsrl
from htsrl.source_hashes import code_hashes, in_one

PACKAGES = ("torch", "numpy", "gymnasium")
GIBIBYTE = 2**30


@dataclass(frozen=True)
class Provenance:
    """Where numbers come from."""

    cpu: str
    cores: int
    memory_gib: float
    load_average: float
    """Processes that wanted to run during the minute before: near 0 on a quiet machine."""
    versions: dict[str, str]
    commit: str | None
    """None where htsrl was not run from its repository."""
    code: str
    """Hash of the sources of htsrl that can change bits."""

    @classmethod
    def take(cls) -> Provenance:
        return cls(
            cpu=_cpu_model(),
            cores=_usable_cores(),
            memory_gib=round(os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") / GIBIBYTE, 1),
            load_average=round(os.getloadavg()[0], 2),
            versions={
                "python": platform.python_version(),
                **{package: version(package) for package in PACKAGES},
                "htsrl": htsrl.__version__,
            },
            commit=current_commit(),
            code=in_one(code_hashes()),
        )

    def lines(self) -> list[str]:
        versions = ", ".join(f"{name} {number}" for name, number in self.versions.items())
        return [
            f"{self.cpu}, {self.cores} cores, {self.memory_gib:g} GiB; load before the start {self.load_average:g}",
            f"{versions}; commit {self.commit or 'unknown'}, code of htsrl {self.code}",
        ]


def _cpu_model() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:  # not Linux
        lines = []
    models = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return models[0] if models else platform.processor() or platform.machine()


def _usable_cores() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def current_commit() -> str | None:
    """The commit that the running code was checked out from, and whether it was changed since."""
    return commit_of(Path(htsrl.__file__).parent)


def commit_of(package: Path) -> str | None:
    """The same of the code in this folder."""
    commit = _git(package, "rev-parse", "HEAD")
    # An installed htsrl may lie inside somebody else's repository, whose commit says nothing.
    if commit is None or not _git(package, "ls-files", "__init__.py"):
        return None
    changed = _git(package, "status", "--porcelain", "--untracked-files=no", "--", ".")
    return f"{commit} with local changes" if changed else commit


def _git(folder: Path, *arguments: str) -> str | None:
    try:
        ended = subprocess.run(["git", *arguments], cwd=folder, capture_output=True, text=True, timeout=10, check=True)
    except (OSError, subprocess.SubprocessError):
        return None
    return ended.stdout.strip()

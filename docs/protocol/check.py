"""Has Spin check the models of this folder, and the models with an error in them, which it must find.

python3 docs/protocol/check.py            everything, some minutes; `make model` does this
python3 docs/protocol/check.py --quick    the smallest sizes, some seconds
python3 docs/protocol/check.py --large    two kills in rollouts of two steps, 2.1 GB
"""

from __future__ import annotations

import argparse
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

FOLDER = Path(__file__).parent
MEMORY_MEGABYTES = 3500
MAX_DEPTH = 100_000
TOOLS = ("spin", "gcc")
# No partial order reduction: every interleaving is looked at, not one of each class.
COMPILE = ("gcc", "-w", "-DCOLLAPSE", "-DNOREDUCE", f"-DMEMLIM={MEMORY_MEGABYTES}", "-o", "pan", "pan.c")


@dataclass(frozen=True)
class Check:
    """A model, its sizes, and what is to come of it."""

    model: str
    sizes: Mapping[str, int] = field(default_factory=dict)
    seeded: str | None = None
    """The error that was put into the model, and has to be found."""
    cycles: bool = False
    """Whether it is looked for runs that never end instead."""

    @property
    def name(self) -> str:
        sizes = " ".join(f"{name}={size}" for name, size in self.sizes.items())
        what = f" {self.seeded}" if self.seeded else " cycles" if self.cycles else ""
        return f"{self.model}{what} {sizes}".rstrip()

    @property
    def defines(self) -> list[str]:
        seeded = [f"-D{self.seeded}"] if self.seeded else []
        return [*(f"-D{name}={size}" for name, size in self.sizes.items()), *seeded]


@dataclass(frozen=True)
class Outcome:
    """What Spin's verifier says."""

    errors: int
    complete: bool
    """Whether all that can be reached was looked at."""
    states: int
    depth: int
    megabytes: float
    seconds: float
    error: str


SMALL = {"KILLS": 1, "STEPS": 1}
CORRECT = (
    Check("run", {"K": 1, "KILLS": 2, "STEPS": 1}),
    Check("run", {"K": 1, "KILLS": 1, "STEPS": 2}),
    Check("run", {"K": 0, "KILLS": 2, "STEPS": 1}),
    Check("run", {"K": 2, "KILLS": 1, "STEPS": 1, "ROLLOUTS": 4}),
    Check("run", {"K": 1, **SMALL}, cycles=True),
    Check("orders", {"KILLS": 2}),
    Check("orders", {"KILLS": 1}, cycles=True),
    Check("bells", {"KILLS": 2}),
    Check("bells", {"KILLS": 1}, cycles=True),
    Check("meetings", {"KILLS": 2}),
    Check("meetings", {"KILLS": 1}, cycles=True),
    Check("islands", {"K": 1, "KILLS": 2, "ROLLOUTS": 5}),
    Check("islands", {"K": 0, "KILLS": 2, "ROLLOUTS": 5}),
    Check("islands", {"K": 2, "KILLS": 2, "ROLLOUTS": 5}),
    Check("islands", {"K": 1, "KILLS": 1}, cycles=True),
)
SEEDED = (
    Check("run", SMALL, "SEEDED_PUBLISH_FIRST"),
    Check("run", SMALL, "SEEDED_ANSWER_FIRST"),
    Check("run", SMALL, "SEEDED_COUNT_FIRST"),
    Check("run", SMALL, "SEEDED_CAPSULE_LAST"),
    Check("run", SMALL, "SEEDED_STORAGE_TOO_EARLY"),
    Check("run", SMALL, "SEEDED_NO_HANDSHAKE"),
    Check("run", SMALL, "SEEDED_NO_PUBLISHING_FOR_THE_DEAD"),
    Check("run", SMALL, "SEEDED_NO_LAST_LISTENING"),
    Check("run", SMALL, "SEEDED_ONE_SLOT_LESS"),
    Check("run", {"K": 0, **SMALL}, "SEEDED_ONE_STORAGE"),
    Check("run", {"K": 2, **SMALL}, "SEEDED_TWO_CAPSULES"),
    Check("orders", {"KILLS": 1}, "SEEDED_NUMBER_FIRST"),
    Check("orders", {"KILLS": 1}, "SEEDED_ANSWER_FIRST"),
    Check("orders", {"KILLS": 1}, "SEEDED_SUM_FIRST"),
    Check("orders", {"KILLS": 1}, "SEEDED_NO_WAIT_FOR_THE_DEAD"),
    Check("bells", {"KILLS": 1}, "SEEDED_RING_FIRST"),
    Check("bells", {"KILLS": 1}, "SEEDED_CLEAR_LAST"),
    Check("bells", {"KILLS": 1}, "SEEDED_NO_RING_AFTER_DEATH"),
    Check("meetings", {"KILLS": 1}, "SEEDED_WORD_FIRST"),
    Check("meetings", {"KILLS": 1}, "SEEDED_MERGED_LATE"),
    Check("meetings", {"KILLS": 1}, "SEEDED_NO_WAIT"),
    Check("islands", {"KILLS": 1}, "SEEDED_VERSION_FIRST"),
    Check("islands", {"KILLS": 1}, "SEEDED_COUNT_FIRST"),
    Check("islands", {"KILLS": 1}, "SEEDED_SENT_AGAIN"),
)
QUICK = (
    Check("run", {"ROLLOUTS": 2, **SMALL}),
    Check("orders", {"KILLS": 1}),
    Check("bells", {"KILLS": 1, "ROLLOUTS": 1}),
    Check("run", {"ROLLOUTS": 2, **SMALL}, "SEEDED_PUBLISH_FIRST"),
    Check("run", {"ROLLOUTS": 2, **SMALL}, "SEEDED_ANSWER_FIRST"),
)
LARGE = (Check("run", {"K": 1, "KILLS": 2, "STEPS": 2}),)


def missing_tools() -> list[str]:
    return [tool for tool in TOOLS if shutil.which(tool) is None]


def verify(check: Check) -> Outcome:
    """Let Spin make a verifier of the model, and run it to the end or to the first error."""
    # A long search is worth an optimising compiler; a short one is over before that is done.
    optimise, kind = ("-O1", "-O2")[check in (*CORRECT, *LARGE)], ("-DSAFETY", "-DNP")[check.cycles]
    with tempfile.TemporaryDirectory() as folder:
        _run(["spin", "-a", *check.defines, str((FOLDER / f"{check.model}.pml").resolve())], folder)
        _run([*COMPILE[:1], optimise, kind, *COMPILE[1:]], folder)
        return outcome_of(_run(["./pan", f"-m{MAX_DEPTH}", "-n", *(["-l"] if check.cycles else [])], folder))


def _run(command: Sequence[str], folder: str) -> str:
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True)
    if done.returncode:
        sys.exit(f"{' '.join(command)} failed:\n{done.stdout}{done.stderr}")
    return done.stdout


def outcome_of(text: str) -> Outcome:
    """Read what the verifier printed."""
    cut_short = re.search(r"max search depth too small|Search not completed|out of memory", text)
    error = re.search(r"^pan:1: (.*)", text, re.MULTILINE)
    return Outcome(
        errors=int(_number(r"errors: (\d+)", text)),
        complete=cut_short is None,
        states=int(_number(r"(\d+) states, stored", text)),
        depth=int(_number(r"depth reached (\d+)", text)),
        megabytes=_number(r"([\d.]+)\s+total actual memory usage", text),
        seconds=_number(r"elapsed time ([\d.e+-]+) seconds", text),
        error=error.group(1)[:60] if error else "",
    )


def _number(pattern: str, text: str) -> float:
    found = re.search(pattern, text)
    if found is None:
        sys.exit(f"the verifier printed nothing like {pattern!r}:\n{text}")
    return float(found.group(1))


def is_as_expected(check: Check, outcome: Outcome) -> bool:
    return outcome.errors > 0 if check.seeded else outcome.errors == 0 and outcome.complete


def describe(check: Check, outcome: Outcome) -> str:
    if outcome.errors:
        verdict = f"{'found' if check.seeded else 'ERROR'}: {outcome.error}"
    else:
        verdict = "NOT FOUND" if check.seeded else "no error" if outcome.complete else "NOT COMPLETE"
    size = f"{outcome.states:>10,} states, depth {outcome.depth:>3}, {outcome.megabytes:>5.0f} MB"
    return f"{check.name:48} {size}, {outcome.seconds:>5.1f} s  {verdict}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_const", dest="checks", const=QUICK, help="the smallest sizes only")
    parser.add_argument("--large", action="store_const", dest="checks", const=LARGE, help="the largest size only")
    parser.set_defaults(checks=(*CORRECT, *SEEDED))
    checks: Sequence[Check] = parser.parse_args().checks
    if missing := missing_tools():
        sys.exit(f"the models need {' and '.join(missing)}, which {'is' if len(missing) == 1 else 'are'} not installed")
    unexpected = 0
    for check in checks:
        outcome = verify(check)
        unexpected += not is_as_expected(check, outcome)
        print(describe(check, outcome), flush=True)
    if unexpected:
        sys.exit(f"{unexpected} of the checks did not end as they must")


if __name__ == "__main__":
    main()

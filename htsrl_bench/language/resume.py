"""What becomes of a run on text that is killed in the middle and resumed: in htsrl, and in TRL."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from htsrl.config.file import to_json
from htsrl.digest import read_links
from htsrl.errors import HtsrlError, RunFolderError
from htsrl.metrics.sinks import read_json_lines
from htsrl_bench.language.speed import PATIENCE_SECONDS, TRL, TextWork, htsrl_environment, trl_call, watched

LOOK_SECONDS = 0.02


@dataclass(frozen=True)
class Kill:
    """When."""

    minibatches: int
    """Optimizer steps on each rollout."""
    after: int
    """Optimizer steps."""
    save: int
    """Optimizer steps between checkpoints, or a rollout's where that is more."""


@dataclass(frozen=True)
class Resumed:
    """A run that was killed after an update and resumed, beside one that was not."""

    side: str
    minibatches: int
    killed_after: int
    done_again: int
    """Updates that had been done before the kill, and were done again."""
    too_often: int
    """Completions of prompts that the resumed run learned from, and the whole one did not, or less often."""
    missing: int
    """Completions of prompts that the whole run learned from, and the resumed one did not, or less often."""
    same_result: bool
    """Whether both ended with the same weights, to the bit."""


def resume_htsrl(work: TextWork, kill: Kill, folder: Path) -> Resumed:
    """Equal chains of digests are equal prompts, completions and weights in every update."""
    config, environment = work.config("side by side", kill.minibatches), htsrl_environment()
    per_rollout = kill.minibatches
    placement = replace(config.placement, checkpoint_every_updates=max(kill.save // per_rollout, 1))
    (folder / "config.json").write_text(to_json(replace(config, placement=placement)))
    begin = [sys.executable, "-m", "htsrl", "train", "--config", str(folder / "config.json"), "--trust", "--run-dir"]
    whole, broken = folder / "whole", folder / "broken"
    watched([*begin, str(whole)], folder, environment)
    _kill_when([*begin, str(broken)], environment, folder, lambda: _links(broken) * per_rollout >= kill.after)
    reached = _links(broken)
    kept = max((int(path.name) for path in (broken / "checkpoints").iterdir() if path.name.isdigit()), default=0)
    watched([sys.executable, "-m", "htsrl", "resume", str(broken), "--trust"], folder, environment)
    if read_links(whole) != read_links(broken):
        raise HtsrlError("a resumed run has another chain of digests than one that was never killed")
    return Resumed("htsrl", kill.minibatches, reached * per_rollout, (reached - kept) * per_rollout, 0, 0, True)


def resume_trl(work: TextWork, kill: Kill, folder: Path, python: Path) -> Resumed:
    """The batches before the checkpoint, and those after it, beside those of a run that was not killed."""
    command, environment = trl_call(python)
    jobs = {name: work.job(folder / name, kill.minibatches, kill.save) for name in ("whole", "broken")}
    for name, job in jobs.items():
        (folder / name).mkdir()
        (folder / f"{name}.json").write_text(json.dumps(job))
    readings, trained = (Path(jobs["broken"][name]) for name in ("readings", "trained"))
    watched([*command, str(folder / "whole.json")], folder, environment)
    _kill_when([*command, str(folder / "broken.json")], environment, folder, lambda: _lines(readings) >= kill.after)
    reached, before = _lines(readings), _batches(trained)
    (folder / "broken.json").write_text(json.dumps({**jobs["broken"], "resume": True}))
    watched([*command, str(folder / "broken.json")], folder, environment)
    kept = reached - reached % kill.save
    resumed = _counted(before[:kept] + _batches(trained)[len(before) :])
    whole = _counted(_batches(Path(jobs["whole"]["trained"])))
    same = _weights(jobs["whole"]) == _weights(jobs["broken"])
    more, fewer = (resumed - whole).total(), (whole - resumed).total()
    return Resumed(TRL, kill.minibatches, reached, reached - kept, more, fewer, same)


def _counted(batches: Sequence[Sequence[str]]) -> Counter[str]:
    return Counter(prompt for batch in batches for prompt in batch)


def _batches(trained: Path) -> list[list[str]]:
    return [json.loads(line) for line in trained.read_text().splitlines()]


def _weights(job: Mapping[str, Any]) -> bytes:
    """Of the last checkpoint."""
    checkpoints = sorted(Path(job["output"]).glob("checkpoint-*"), key=lambda path: int(path.name.split("-")[1]))
    return (checkpoints[-1] / "model.safetensors").read_bytes()


def _lines(path: Path) -> int:
    return len(read_json_lines(path)) if path.exists() else 0


def _links(run_dir: Path) -> int:
    try:
        return len(read_links(run_dir))
    except RunFolderError:  # nothing is written yet
        return 0


def _kill_when(command: Sequence[str], env: Mapping[str, str], folder: Path, condition: Callable[[], bool]) -> None:
    """SIGKILL, once the condition holds."""
    deadline = time.monotonic() + PATIENCE_SECONDS
    with (folder / "killed").open("w") as log:
        process = subprocess.Popen(command, env=dict(env), stdout=log, stderr=subprocess.STDOUT)
        try:
            while not condition():
                if process.poll() is not None or time.monotonic() > deadline:
                    raise HtsrlError(f"the run ended before it was killed: {(folder / 'killed').read_text()[-600:]}")
                time.sleep(LOOK_SECONDS)
        finally:
            process.kill()
            process.wait()

"""What evaluations beside training have found: `evaluations.jsonl`, the best policy, and whether a goal is held."""

from __future__ import annotations

import json
import math
import os
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from htsrl.checkpoint.policy_file import with_facts
from htsrl.errors import RunFolderError
from htsrl.metrics.evaluation import Evaluation
from htsrl.metrics.line_file import LineFile, Warn
from htsrl.plain_files import parsed, read_plain
from htsrl.processes.kill_points import kill_point
from htsrl.runs.folder import RunFolder
from htsrl.runs.saved_policy import read_policy_file

RETURN = "eval/mean_reward"


@dataclass(frozen=True)
class PastEvaluation:
    """A line of `evaluations.jsonl`, as far as a run that is resumed needs it."""

    version: int
    steps: int
    mean_return: float | None
    """None where it was not finite."""
    metrics: dict[str, float]


def read_evaluations(path: Path) -> list[PastEvaluation]:
    """The evaluations of a run, in the order of their versions; those that it was resumed over included."""
    if not path.exists():
        return []
    try:
        *lines, _unfinished = read_plain(path).split(b"\n")
    except OSError as error:
        raise RunFolderError(f"{path} cannot be read: {error.strerror}") from error
    found = {past.version: past for number, line in enumerate(lines, start=1) for past in [_past(path, number, line)]}
    return [found[version] for version in sorted(found)]


class EvaluationRecord:
    """Keeps them; the best policy first and then the line: no line speaks of a policy that is not there."""

    def __init__(self, folder: RunFolder, say: Warn) -> None:
        self._folder = folder
        self._say = say
        self.past = read_evaluations(folder.evaluations_file)
        self.versions = {past.version for past in self.past}
        best = best_evaluated(folder)
        self.best_version: int | None = None if best is None else best[0]
        self.best_return: float | None = None if best is None else best[1]
        self._file: LineFile | None = None

    def add(self, evaluation: Evaluation, seed: int, seconds: float, cpu_seconds: float) -> dict[str, float]:
        """Returns its metrics, for sinks."""
        assert evaluation.steps is not None
        self._keep_if_best(evaluation, seed)
        kill_point("before an evaluation's line")
        metrics = evaluation.metrics()
        times = {"ended_at": round(time.time(), 3), "seconds": round(seconds, 3), "cpu_seconds": round(cpu_seconds, 3)}
        document = {
            "version": evaluation.version,
            "step": evaluation.steps,
            "episodes": len(evaluation.returns),
            "seed": seed,
            **metrics,
            **times,
            "returns": evaluation.returns,
            "lengths": evaluation.lengths,
            **({"infos": dict(evaluation.infos)} if evaluation.infos else {}),
        }
        if self._file is None:
            self._file = LineFile(self._folder.evaluations_file, self._say)
        self._file.write(json.dumps(_without_nan(document), allow_nan=False))
        mean_return = evaluation.mean_return if math.isfinite(evaluation.mean_return) else None
        self.past.append(PastEvaluation(evaluation.version, evaluation.steps, mean_return, metrics))
        self.past.sort(key=lambda past: past.version)  # those that a resumed run comes to once more are there already
        self.versions.add(evaluation.version)
        return metrics

    def holds(self, goal: float | None, times: int, version: int) -> bool:
        """Whether the last so many evaluations up to a version all reached the goal."""
        if goal is None:
            return False
        last = [past for past in self.past if past.version <= version][-times:]
        return len(last) == times and all(x.mean_return is not None and x.mean_return >= goal for x in last)

    def close(self) -> None:
        if self._file is not None:
            self._file.close()

    def _keep_if_best(self, evaluation: Evaluation, seed: int) -> None:
        mean_return = evaluation.mean_return
        if not math.isfinite(mean_return) or (self.best_return is not None and mean_return < self.best_return):
            return
        facts = {
            "eval_return": repr(mean_return),
            "eval_episodes": str(len(evaluation.returns)),
            "eval_seed": str(seed),
        }
        try:
            self._folder.keep_best_policy(with_facts(evaluation.source.read_bytes(), facts))
        except OSError as error:
            self._say(
                f"warning: {self._folder.best_policy_file.name} could not be written: {error}; training continues"
            )
            return
        self.best_version, self.best_return = evaluation.version, mean_return


def drop_evaluations_after(folder: RunFolder, version: int, say: Warn) -> None:
    """For a run that continues from there to other bits: what was found of later versions is not about it."""
    path = folder.evaluations_file
    past = read_evaluations(path)
    if any(one.version > version for one in past):
        lines = path.read_bytes().split(b"\n")[:-1]
        kept = [line for line in lines if _past(path, 0, line).version <= version]
        temporary = path.with_name(path.name + ".tmp")
        temporary.write_bytes(b"".join(line + b"\n" for line in kept))
        os.replace(temporary, path)
    best = best_evaluated(folder)
    if best is not None and best[0] > version:
        folder.best_policy_file.unlink(missing_ok=True)
        say(f"the best policy was of version {best[0]}, which this run may not come to again; the next best is kept")


def best_evaluated(folder: RunFolder) -> tuple[int, float] | None:
    """Version and return of the best policy; None where there is none, or none that can be read."""
    try:
        saved = read_policy_file(folder.best_policy_file)
    except (OSError, ValueError):
        return None
    return None if saved.mean_return is None else (saved.version, saved.mean_return)


def _past(path: Path, number: int, line: bytes) -> PastEvaluation:
    try:
        record = parsed(line)
        version, steps, mean_return = record["version"], record["step"], record[RETURN]
        if type(version) is not int or type(steps) is not int or not isinstance(mean_return, int | float | None):
            raise ValueError("its version, step and return are no numbers")
        metrics = {name: x for name, x in record.items() if name.startswith("eval/") and isinstance(x, int | float)}
    except (ValueError, TypeError, KeyError) as error:
        raise RunFolderError(f"{path}, line {number}: {error}; remove the line to read the others") from error
    return PastEvaluation(version, steps, mean_return, metrics)


def _without_nan(value: Any) -> Any:
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, dict):
        return {key: _without_nan(x) for key, x in value.items()}
    return [_without_nan(x) for x in value] if isinstance(value, Sequence) and not isinstance(value, str) else value

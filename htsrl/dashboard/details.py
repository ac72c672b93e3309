"""All that the page shows of one run beside its curves: configuration, digest, evaluations, videos, warnings."""

from __future__ import annotations

import os
import shlex
from typing import Any

from htsrl.dashboard.metrics_reader import Record
from htsrl.dashboard.run import EVALUATIONS_FILE, Run
from htsrl.dashboard.run_files import read_at
from htsrl.dashboard.run_state import stop_reason
from htsrl.dashboard.shown import finite, flat_settings, number, text
from htsrl.plain_files import parsed, printable

VIDEO_TYPES = {".mp4": "video/mp4", ".webm": "video/webm", ".gif": "image/gif"}
VIDEOS = "videos"
MAX_EVALUATIONS = 200
TAIL_BYTES = 2**18


def details(run: Run) -> dict[str, Any]:
    """As JSON for the page."""
    config, result = run.document("config.json"), run.document("result.json")
    links = _last_lines(run, "digest.jsonl", 1)
    digest = text(links[-1].get("chain")) if links else None
    return {
        "id": run.id,
        "name": run.name,
        "path": str(run.files.path),
        "row": run.row,
        "config": finite(config),
        "settings": flat_settings(config),
        "result": finite(result),
        "fingerprint": finite(run.document("fingerprint.json")),
        "digest": digest,
        "num_updates": number(links[-1].get("update")) if links else None,
        "commands": _commands(run),
        "evaluations": [_evaluation(line) for line in _last_lines(run, EVALUATIONS_FILE, MAX_EVALUATIONS)],
        "videos": videos(run),
        "warnings": warnings(run),
    }


def videos(run: Run) -> list[str]:
    return [name for name in run.files.names(VIDEOS) if _suffix(name) in VIDEO_TYPES]


def video_type(name: str) -> str | None:
    return VIDEO_TYPES.get(_suffix(name))


def warnings(run: Run) -> list[str]:
    """What a user of the run should know, from its files."""
    found = [*run.notes()]
    if waits := run.row.get("waits"):
        found.append(waits)
    result = run.document("result.json")
    if run.row.get("state") == "failed":
        found.append("the run ended without a result; `htsrl resume` continues it from its last checkpoint")
    if isinstance(result, dict):
        if reason := stop_reason(result):
            found.append(f"the run was stopped: {reason}")
        elif result.get("interrupted"):
            found.append("the run was interrupted; `htsrl resume` continues it")
        if num_errors := number(result.get("env_errors")):
            found.append(f"{num_errors:g} episodes were cut short by an exception of their environment")
        if num_restarts := number(result.get("restarts")):
            found.append(f"worker processes died and were replaced {num_restarts:g} times")
    changes = run.document("numerics_changes.json")
    for change in changes[:20] if isinstance(changes, list) else ():
        if isinstance(change, dict):
            what = "; ".join(map(str, change["changes"])) if isinstance(change.get("changes"), list) else "unknown"
            found.append(f"continues under other numerics after update {change.get('version')}: {what}"[:1000])
    if run.files.stamp("diverged_batch.safetensors"):
        found.append("training diverged; diverged_batch.safetensors has the batch that did it")
    return found


def _commands(run: Run) -> dict[str, str]:
    """To type into a shell; none where a name would not survive being copied."""
    path = str(run.files.path)
    if printable(path) != path or "\n" in path:
        return {}
    repeated = shlex.quote(path + "-again")
    return {
        "reproduce": f"htsrl train --config {shlex.quote(path + '/config.json')} --run-dir {repeated}",
        "compare": f"htsrl compare {shlex.quote(path)} {repeated}",
    }


def _evaluation(line: Record) -> dict[str, Any]:
    """Its numbers, and the returns of its episodes."""
    returns = line.get("returns")
    numbers = {name[:100]: known for name, value in line.items() if (known := number(value)) is not None}
    known_returns = [number(value) for value in returns[:1000]] if isinstance(returns, list) else []
    return {"numbers": numbers, "returns": [value for value in known_returns if value is not None]}


def _last_lines(run: Run, name: str, num_lines: int) -> list[Record]:
    """The last objects of a file of JSON lines, as far as they can be read."""
    try:
        with run.files.opened(name) as descriptor:
            num_bytes = os.fstat(descriptor).st_size
            begin = max(0, num_bytes - TAIL_BYTES)
            lines = read_at(descriptor, begin, TAIL_BYTES).split(b"\n")[:-1]
    except OSError:
        return []
    found: list[Record] = []
    for line in lines[-num_lines:]:
        try:
            document = parsed(line)
        except ValueError:
            continue
        if isinstance(document, dict):
            found.append(document)
    return found


def _suffix(name: str) -> str:
    return os.path.splitext(name)[1].lower()

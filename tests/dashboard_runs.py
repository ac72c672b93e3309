"""Run folders as runs leave them behind, made by hand and small, for tests of what shows them."""

from __future__ import annotations

import json
import time
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

HOSTILE = "<img src=x onerror=\"document.title='pwned'\"><script>document.title='pwned'</script>"


def make_run(
    path: Path,
    seed: int = 1,
    algorithm: str = "ppo",
    returns: Iterable[float] = (10.0, 20.0, 30.0),
    finished: bool = True,
    **experiment: Any,
) -> Path:
    """A run that logged each of the returns, 1,000 steps and a second apart."""
    path.mkdir(parents=True)
    config = {
        "experiment": {
            "env": "CartPole-v1",
            "algorithm": {"name": algorithm, "learning_rate": 0.0003},
            "schedule": "hts",
            "seed": seed,
            "total_steps": 10_000,
            **experiment,
        },
        "placement": {"backend": "processes"},
    }
    (path / "config.json").write_text(json.dumps(config))
    add_metrics(path, ({"rollout/ep_rew_mean": value} for value in returns))
    (path / "digest.jsonl").write_text(json.dumps({"update": 2, "chain": f"{seed:032x}"}) + "\n")
    if finished:
        result = {"updates": 3, "interrupted": False, "restarts": 0, "digest": f"{seed:032x}", "seconds": 3.0}
        (path / "result.json").write_text(json.dumps(result))
    return path


def add_metrics(path: Path, lines: Iterable[Mapping[str, Any]]) -> None:
    """Write lines behind those that are there, each 1,000 steps after the one before."""
    file = path / "metrics.jsonl"
    before = len(file.read_text().splitlines()) if file.exists() else 0
    with open(file, "a") as out:
        for i, line in enumerate(lines, start=before + 1):
            common = {"step": 1000 * i, "time/time_elapsed": float(i), "time/fps": 1000.0, "hts/lag_max": 1.0}
            out.write(json.dumps({**common, **line}) + "\n")


def make_timeline(path: Path, straggler: int = 11) -> None:
    """16 environments in 4 executors, one of them four times as slow, and an executor that was killed."""
    spans = [["step", 0.1 * i, 0.06, None] for i in range(20)]
    waits = [["wait_slowest", 0.1 * i + 0.06, 0.04, straggler] for i in range(20)]
    workers = [
        {"name": f"executor {i}", "pid": 100 + i, "spans": spans + waits, "totals": {"step": 1.2, "wait_slowest": 0.8}}
        for i in range(4)
    ]
    environments = [
        {
            "env": env,
            "worker": f"executor {env // 4}",
            "steps": 1000,
            "seconds": 0.4 if env == straggler else 0.1,
            "max_seconds": 0.01,
            "histogram": [[0.0001, 900], [0.001, 100]],
        }
        for env in range(16)
    ]
    document = {
        "format": 1,
        "written_at": time.time(),
        "workers": workers,
        "environments": environments,
        "events": [["restart", 1.5, "executor 1"]],
    }
    (path / "timeline.json").write_text(json.dumps(document))


def make_hostile_run(folder: Path) -> Path:
    """Everything that can be text is a script, and what should be numbers is not."""
    path = make_run(folder / HOSTILE.replace("/", "|"), env=HOSTILE, algorithm=HOSTILE, schedule=HOSTILE)
    add_metrics(path, [{HOSTILE: 1.0, "rollout/ep_rew_mean": HOSTILE}])
    with open(path / "metrics.jsonl", "a") as file:
        file.write(f'{{"step": "{0}"}}\nnot json\n{{"step": 1, "x": NaN}}\n[[]]\n')
    (path / "result.json").write_text(json.dumps({"interrupted": False, "stop_reason": HOSTILE, "digest": HOSTILE}))
    (path / "digest.jsonl").write_text(json.dumps({"update": HOSTILE, "chain": HOSTILE}) + "\n")
    (path / "fingerprint.json").write_text(json.dumps({"htsrl": HOSTILE}))
    (path / "numerics_changes.json").write_text(json.dumps([{"version": HOSTILE, "changes": [HOSTILE]}]))
    (path / "evaluations.jsonl").write_text(
        json.dumps({"step": 1000, HOSTILE: HOSTILE, "eval/mean_reward": HOSTILE}) + "\n"
    )
    timeline = {
        "workers": [{"name": HOSTILE, "spans": [[HOSTILE, 0, 1, HOSTILE], ["x"], 7], "totals": {HOSTILE: 1}}, 3],
        "environments": [{"env": i, "worker": HOSTILE, "steps": 1, "seconds": 1 + 9 * (i == 2)} for i in range(4)],
        "events": [[HOSTILE, 0.5, HOSTILE], []],
    }
    (path / "timeline.json").write_text(json.dumps(timeline))
    (path / "videos").mkdir()
    (path / "videos" / f"{HOSTILE.replace('/', '')}.mp4").write_bytes(b"no video")
    return path


def make_sweep(path: Path, num_trials: int = 6) -> Path:
    """A sweep of two settings that has ended, the last of its trials given up."""
    path.mkdir(parents=True)
    trials = [(i, 10.0**-i, ("tanh", "relu")[i % 2], 50.0 * i) for i in range(1, num_trials + 1)]
    states = ["complete"] * (num_trials - 1) + ["pruned"]

    def points(values: list[Any]) -> list[dict[str, Any]]:
        rows = zip(trials, values, states, strict=True)
        return [{"trial": t[0], "value": value, "objective": t[3], "state": state} for t, value, state in rows]

    slices = {"learning_rate": points([t[1] for t in trials]), "activation": points([t[2] for t in trials])}
    analysis = {"importance": {"activation": 0.25, "learning_rate": 0.75}, "slices": slices}
    (path / "analysis.json").write_text(json.dumps(analysis))
    return path

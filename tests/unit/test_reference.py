"""The reference pages are those of today's settings and metrics."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import gymnasium
import pytest
from offline_data import written

import htsrl
from htsrl.cli.reference import PAGES
from htsrl.dataflow.exchange import Cost
from htsrl.metrics.evaluation import Evaluation
from htsrl.metrics.names import EVAL_INFO_METRIC, INFO_METRIC, METRICS
from htsrl.metrics.sinks import read_json_lines

FOLDER = Path(htsrl.__file__).parent.parent / "docs" / "reference"


class Telling(gymnasium.Wrapper[Any, Any, Any, Any]):
    """Has all that an episode can tell in every `info`."""

    def step(self, action: Any) -> Any:
        observation, reward, terminated, truncated, info = super().step(action)
        return observation, reward, terminated, truncated, {**info, "is_success": True, "angle": float(observation[2])}


def make_env() -> gymnasium.Env[Any, Any]:
    return Telling(gymnasium.make("CartPole-v1"))


@pytest.mark.parametrize("page", PAGES)
def test_a_reference_page_is_current(page: str) -> None:
    assert (FOLDER / page).read_text() == PAGES[page](), "settings or metrics have changed; run `make reference`"


def test_the_table_of_metrics_has_exactly_those_of_runs(tmp_path: Path) -> None:
    metrics: set[str] = set()
    quiet = htsrl.Placement(backend="inline", log_info=("angle",), tensorboard=False, progress="off")
    once: dict[str, Any] = {"learning_starts": 0, "update_to_data": 0.01}  # a gradient step
    made: list[tuple[Any, Any]] = [
        (htsrl.PPO(epochs=1, num_minibatches=1), make_env),
        (htsrl.A2C(), make_env),
        (htsrl.DQN(**once), make_env),
        (htsrl.DiscreteSAC(**once), make_env),
        (htsrl.SAC(**once), "Pendulum-v1"),
        (htsrl.TD3(**once, policy_delay=1), "Pendulum-v1"),
    ]
    playing = htsrl.Experiment("", on_env_error="truncate", num_envs=2, sync_interval=64, total_steps=128)
    experiments = [replace(playing, env=env, algorithm=algorithm) for algorithm, env in made]
    source = str(written(tmp_path / "data"))
    experiments += [
        htsrl.Experiment("", algorithm=offline, source=source, sync_interval=1, total_steps=2)
        for offline in (htsrl.BC(), htsrl.CQL(sampled_actions=1), htsrl.IQL())
    ]
    for experiment in experiments:
        algorithm = experiment.algorithm
        run_dir = tmp_path / algorithm.name
        htsrl.train(htsrl.Config(experiment, replace(quiet, run_dir=run_dir)))
        names = {name for line in read_json_lines(run_dir / "metrics.jsonl") for name in line}
        assert {name for name in names if name.startswith("train/")} == {*algorithm.metrics, "train/n_updates"}
        metrics |= names
    known = {name for section in METRICS.values() for name in section}
    elsewhere = {name for name in known if name.startswith(("cluster/", "cpu/", "eval/", "sync/"))}
    elsewhere.add("wait/gradient_worker_seconds")  # of several workers
    assert {INFO_METRIC if name == "rollout/info/angle" else name for name in metrics - {"step"}} == known - elsewhere


def test_the_table_of_metrics_has_those_of_evaluations() -> None:
    found = Evaluation((1.0,), (1,), infos={"is_success": (1.0,), "angle": (0.5,)}).metrics()
    written = {EVAL_INFO_METRIC if name == "eval/info/angle" else name for name in found}
    assert written == {name for section in METRICS.values() for name in section if name.startswith("eval/")}


def test_the_table_of_metrics_has_all_costs() -> None:
    costs = {name for section in METRICS.values() for name in section if name.startswith("cpu/")}
    assert costs == {f"cpu/{cost.name.lower()}_seconds" for cost in Cost}

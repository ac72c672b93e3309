"""What cannot work on islands is one clear error before anything starts."""

from __future__ import annotations

import importlib.util
import subprocess
import sys
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import pytest

from htsrl import Config, ConfigError, Experiment, Placement, train
from htsrl.cluster import connection
from htsrl.cluster import run as cluster_run
from htsrl.cluster.connection import Node
from htsrl.cluster.nodes import check_alike
from htsrl.numerics import take_fingerprint

SMALL = Experiment("CartPole-v1", num_envs=4, sync_interval=8, total_steps=64)
needs_ray = pytest.mark.skipif(importlib.util.find_spec("ray") is None, reason="needs Ray: pip install 'htsrl[ray]'")


def error_of(tmp_path: Path, experiment: Experiment = SMALL, **placement: Any) -> str:
    run_dir = tmp_path / "run"
    config = Config(experiment, Placement("ray", run_dir=run_dir, progress="off", check_env=False, **placement))
    with pytest.raises(ConfigError) as caught:
        train(config)
    assert not run_dir.exists()
    return str(caught.value)


def test_without_ray_the_way_to_it_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connection, "is_installed", lambda: False)
    assert "pip install 'htsrl[ray]'" in error_of(tmp_path)


@pytest.mark.parametrize(("schedule", "way_out"), [("async", "use hts or sync"), ("lockstep", "use sync")])
def test_a_schedule_that_islands_cannot_follow_is_refused(tmp_path: Path, schedule: str, way_out: str) -> None:
    assert way_out in error_of(tmp_path, replace(SMALL, schedule=schedule))


@needs_ray
def test_an_address_that_is_none_is_refused(tmp_path: Path) -> None:
    assert "HOST:PORT" in error_of(tmp_path, ray_address="somewhere")


@needs_ray
def test_a_cluster_that_does_not_answer_is_given_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connection, "CONNECT_SECONDS", 1.0)
    assert "does not answer within 1 s" in error_of(tmp_path, ray_address="127.0.0.1:1")


@needs_ray
def test_a_cluster_that_asks_for_a_token_says_how_to_show_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tried = subprocess.CompletedProcess([], 1, "", "AuthenticationError: RPC error: InvalidAuthToken: missing\n")
    monkeypatch.setattr("htsrl.cluster.connection.subprocess.run", lambda *_, **__: tried)
    assert "RAY_AUTH_MODE=token in the environment" in error_of(tmp_path, ray_address="10.0.0.1:6379")


def test_nodes_without_room_or_cores_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    nodes = [Node("a", "10.0.0.2", cpus=4.0, store_bytes=1 << 30), Node("b", "10.0.0.3", cpus=4.0, store_bytes=1000.0)]
    monkeypatch.setattr(cluster_run, "connect", lambda address, store_bytes: None)
    monkeypatch.setattr(cluster_run, "alive_nodes", lambda ray: nodes)
    assert "`ray start --object-store-memory`" in error_of(tmp_path)
    nodes.clear()
    assert "no node of the Ray cluster has a core" in error_of(tmp_path)


def test_a_node_that_differs_is_named_with_what_differs() -> None:
    fingerprint = asdict(take_fingerprint("cpu"))
    own = {"fingerprint": fingerprint, "packages": {"ale-py": "0.11.2"}}
    check_alike("10.0.0.2", own, own)
    for harm, text in (
        ({"packages": {"ale-py": None}}, "node 10.0.0.2 lacks ale-py"),
        ({"packages": {"ale-py": "0.11.1"}}, "has ale-py 0.11.1, and 0.11.2 is here"),
        ({"fingerprint": {**fingerprint, "computation": "other"}}, "node 10.0.0.2 computes other bits"),
        ({"fingerprint": {**fingerprint, "python": "3.9.1"}}, "python: "),
        ({"fingerprint": {**fingerprint, "htsrl": "0.1"}}, "htsrl: "),
    ):
        with pytest.raises(ConfigError, match=text):
            check_alike("10.0.0.2", own, {**own, **harm})


def test_htsrl_imports_no_ray() -> None:
    """Its placements of one machine, and the command line, do without."""
    script = "import sys, htsrl, htsrl.cli.main, htsrl.cluster.plan; assert 'ray' not in sys.modules"
    subprocess.run([sys.executable, "-c", script], check=True, timeout=120)

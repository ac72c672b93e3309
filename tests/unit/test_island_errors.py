"""What cannot work on islands is one clear error before anything starts."""

from __future__ import annotations

import importlib.util
import json
import socket
import subprocess
import sys
from concurrent.futures import Future
from contextlib import nullcontext
from dataclasses import asdict, replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from htsrl import Config, ConfigError, Experiment, Placement, train
from htsrl.cluster import connection
from htsrl.cluster import run as cluster_run
from htsrl.cluster.connection import Node, connect, run_on
from htsrl.cluster.nodes import MISSING, Admission, check_nodes
from htsrl.cluster.plan import with_islands
from htsrl.cluster.room import check_room, island_bytes
from htsrl.fingerprint import ComparedNodes, Fingerprint
from htsrl.numerics import take_fingerprint
from htsrl.placements.survey import draw_blueprint

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
    """But not before it was asked: somebody listens there, hears a knock, and says nothing. Ray takes the loopback for
    this machine's own address, so it is on all."""

    def run(command: list[str], timeout: float, env: dict[str, str], **_: Any) -> None:
        assert timeout == connection.CONNECT_SECONDS
        trying = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, env=env)
        try:
            silent.accept()[0].close()
        finally:
            trying.kill()
            trying.wait()
        raise subprocess.TimeoutExpired(command, timeout)

    with socket.create_server(("", 0)) as silent:
        silent.settimeout(120.0)
        monkeypatch.setattr("htsrl.cluster.connection.subprocess.run", run)
        assert "does not answer within 60 s" in error_of(tmp_path, ray_address=f"127.0.0.1:{silent.getsockname()[1]}")


class ConnectedTo:
    """In the place of Ray: a process that is connected to one already."""

    address = "127.0.0.1:6379"
    was_shut_down = False
    util = SimpleNamespace(get_node_ip_address=lambda: "10.0.0.9")

    def is_initialized(self) -> bool:
        return True

    def shutdown(self) -> None:
        self.was_shut_down = True

    def get_runtime_context(self) -> Any:
        return SimpleNamespace(gcs_address=self.address, get_node_id=lambda: "a")


@pytest.mark.parametrize(("own", "is_used", "ends"), [(True, False, True), (True, True, False), (False, False, False)])
@needs_ray
def test_an_own_ray_that_is_too_small_for_the_next_run_is_begun_again(
    monkeypatch: pytest.MonkeyPatch, own: bool, is_used: bool, ends: bool
) -> None:
    """Not under a run that uses it."""
    ray: Any = ConnectedTo()
    started: list[int] = []
    monkeypatch.setattr(connection, "import_module", lambda name: ray)
    monkeypatch.setattr(connection, "_own_address", ray.address if own else None)
    monkeypatch.setattr(connection, "_own_store_bytes", 1000)
    monkeypatch.setattr(connection, "_start", lambda ray, store_bytes: started.append(store_bytes))
    with run_on(None) if is_used else nullcontext():
        connect(None, 1000)
        assert not ray.was_shut_down
        connect(None, 1001)
    assert ray.was_shut_down == ends
    assert started == ([1001] if ends else [])


@pytest.mark.parametrize("own", [True, False])
@needs_ray
def test_a_process_that_is_connected_to_another_ray_says_so(monkeypatch: pytest.MonkeyPatch, own: bool) -> None:
    ray: Any = ConnectedTo()
    monkeypatch.setattr(connection, "import_module", lambda name: ray)
    monkeypatch.setattr(connection, "_own_address", ray.address if own else None)
    assert connect(None) is ray
    for name in ("localhost:6379", "10.0.0.9:6379"):
        assert connect(name) is ray, "another name of the same"
    with pytest.raises(ConfigError, match=r"ray_address=127.0.0.1:6380, but .* 127.0.0.1:6379 already.*ray.shutdown"):
        connect("127.0.0.1:6380")
    if own:
        with pytest.raises(ConfigError, match="ray_address=auto, but"):
            connect("auto")
    else:
        assert connect("auto") is ray


@needs_ray
def test_a_cluster_that_asks_for_a_token_says_how_to_show_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tried = subprocess.CompletedProcess([], 1, "", "AuthenticationError: RPC error: InvalidAuthToken: missing\n")
    monkeypatch.setattr("htsrl.cluster.connection.subprocess.run", lambda *_, **__: tried)
    assert "RAY_AUTH_MODE=token in the environment" in error_of(tmp_path, ray_address="10.0.0.1:6379")


def test_nodes_without_room_or_cores_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    nodes = [Node("a", "10.0.0.2", cpus=4.0, store_bytes=1 << 30), Node("b", "10.0.0.3", cpus=4.0, store_bytes=1000.0)]
    monkeypatch.setattr(cluster_run, "connect", lambda address, store_bytes: ConnectedTo())
    monkeypatch.setattr(cluster_run, "all_alive", lambda ray: nodes)
    error = error_of(tmp_path)
    assert "the object store of node 10.0.0.3" in error
    assert "`ray start --object-store-memory`" in error
    nodes[:] = [replace(node, cpus=0.0) for node in nodes]
    assert "no node of the Ray cluster has a core" in error_of(tmp_path)


def test_each_node_needs_room_for_its_own_islands_and_the_learner_for_all() -> None:
    drawn = replace(draw_blueprint(Config(SMALL, Placement(check_env=False))), state_bytes=1000)
    small, large = Node("a", "10.0.0.2", cpus=1.0, store_bytes=0.0), Node("b", "10.0.0.3", cpus=3.0, store_bytes=0.0)
    placed = with_islands(drawn, [small.cpus, large.cpus])
    version = island_bytes(drawn, 0) // 2
    assert version > 4 * 4483, "the policy's two layers of 64 units, and those of the value"
    assert island_bytes(drawn, 2) - island_bytes(drawn, 1) > 1000 + 8 * (4 + 1) * 4, "states and observations"
    needs = {small: island_bytes(drawn, 1), large: island_bytes(drawn, 3)}
    for driver in (small, large, Node("c", "10.0.0.1", cpus=0.0, store_bytes=0.0)):
        stores = {**needs, driver: sum(needs.values())}
        enough = {node: replace(node, store_bytes=stores[node]) for node in stores}
        check_room(placed, [enough[small], enough[large]], enough[driver])
        for short in stores:
            less = {**enough, short: replace(short, store_bytes=stores[short] - 1)}
            with pytest.raises(ConfigError, match=f"node {short.address}, of"):
                check_room(placed, [less[small], less[large]], less[driver])


OWN = replace(take_fingerprint("cpu"), packages={"ale-py": "0.11.2"}, own_modules={"my_env": "12ab"})
OTHERS = [
    ({"packages": {"ale-py": MISSING}}, "node 10.0.0.2 lacks ale-py.*install ale-py==0.11.2 there"),
    ({"own_modules": {"my_env": MISSING}}, "node 10.0.0.2 lacks my_env.*every node's path"),
    ({"packages": {"ale-py": "0.11.1"}}, "ale-py: 0.11.2 / 0.11.1"),
    ({"own_modules": {"my_env": "34cd"}}, "own module my_env: 12ab / 34cd"),
    ({"computation": "other"}, "node 10.0.0.2 computes other bits"),
    ({"bfloat16": "other"}, "bfloat16: not used / other"),
    ({"python": "3.9.1"}, "python: "),
    ({"htsrl": "0.1"}, "htsrl: "),
]


class Answer:
    """In the place of a reference of Ray's: what a node has answered."""

    def __init__(self, found: Fingerprint | None) -> None:
        self.found = found

    def future(self) -> Future[bytes]:
        future: Future[bytes] = Future()
        if self.found is None:
            future.set_exception(NodeError(""))
        else:
            future.set_result(json.dumps(asdict(self.found)).encode())
        return future


class NodeError(Exception):
    """What Ray raises where a node cannot be asked."""


class Nodes:
    """In the place of Ray: nodes by their addresses, and what they compute by."""

    exceptions = SimpleNamespace(RayError=NodeError)

    def __init__(self, monkeypatch: pytest.MonkeyPatch, **found: Fingerprint | None) -> None:
        self.nodes = [Node(name, f"10.0.0.{number}", 1.0, 1e9) for number, name in enumerate(found, start=1)]
        monkeypatch.setattr("htsrl.cluster.nodes._ask", lambda ray, node, own, device: Answer(found[node.id]))

    def get(self, reference: Answer, timeout: float) -> bytes:
        return reference.future().result()


@pytest.mark.parametrize(("harm", "text"), OTHERS)
def test_a_node_that_differs_is_named_with_what_differs(
    monkeypatch: pytest.MonkeyPatch, harm: dict[str, Any], text: str
) -> None:
    ray: Any = Nodes(monkeypatch, alike=OWN, other=replace(OWN, **harm))
    with pytest.raises(ConfigError, match=f"(?s){text}"):
        check_nodes(ray, ray.nodes, OWN, "cpu", marks=False)
    if "lacks" in text:
        with pytest.raises(ConfigError, match="lacks"):
            check_nodes(ray, ray.nodes, OWN, "cpu", marks=True)
        return
    compared = check_nodes(ray, ray.nodes, OWN, "cpu", marks=True)
    assert not compared.differences["alike"]
    assert compared.differences["other"]


def test_a_node_that_cannot_be_asked_is_named_even_if_the_reason_is_empty(monkeypatch: pytest.MonkeyPatch) -> None:
    ray: Any = Nodes(monkeypatch, broken=None)
    with pytest.raises(ConfigError, match=r"node 10\.0\.0\.1 cannot run htsrl: NodeError;"):
        check_nodes(ray, ray.nodes, OWN, "cpu", marks=False)


@pytest.mark.parametrize("marks", [False, True])
def test_a_node_that_joins_has_no_island_before_it_was_compared(monkeypatch: pytest.MonkeyPatch, marks: bool) -> None:
    other = replace(OWN, computation="other")
    ray: Any = Nodes(
        monkeypatch, first=OWN, alike=OWN, other=other, lacks=replace(OWN, own_modules={"my_env": MISSING})
    )
    first, alike, differing, _ = ray.nodes
    lines: list[str] = []
    admission = Admission(ray, ComparedNodes(OWN, "cpu", {"first": ()}), marks, lines.append)
    rung: list[bool] = []
    for _ in range(2):
        admitted = admission.admitted(ray.nodes, lambda: rung.append(True))
        assert admitted == [first, alike, *([differing] if marks else [])]
    assert len(rung) == 3, "one for each that is new, and no node is asked twice"
    assert [line.partition("\n")[0] for line in lines] == [*admission.refusals] or not marks
    assert len(lines) == (1 if marks else 2)
    assert not admission.is_looking
    assert not marks or admission.differences_of(differing)


def test_htsrl_imports_no_ray() -> None:
    """Its placements of one machine, and the command line, do without."""
    script = "import sys, htsrl, htsrl.cli.main, htsrl.cluster.plan; assert 'ray' not in sys.modules"
    subprocess.run([sys.executable, "-c", script], check=True, timeout=120)

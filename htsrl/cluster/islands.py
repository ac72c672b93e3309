"""The learner's side: begins islands, takes what they send, sends them versions, and begins those that die again.

All of it happens in the turns of the supervisor that watches the learner (`Elsewhere.advance`), in its thread: a call
of an island is a future, which rings the doorbell when it is done.
"""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Collection, Hashable
from contextlib import suppress
from types import ModuleType
from typing import Any

from htsrl.cluster.call import Call
from htsrl.cluster.connection import Node, alive_nodes, on_node
from htsrl.cluster.crossing import Crossing, one_by_one, several
from htsrl.cluster.island import Island
from htsrl.cluster.nodes import Admission
from htsrl.cluster.parcel import Arrays, pack, unpack
from htsrl.dataflow.shared_arrays import SharedArrays
from htsrl.dataflow.signals import Doorbell
from htsrl.errors import HtsrlError, PeerDied
from htsrl.placements.blueprint import Blueprint, pickle_blueprint
from htsrl.placements.messages import error_of
from htsrl.placements.restarts import MAX_KILLS_AT_ONE_POINT
from htsrl.placements.signs import STARTING_SECONDS
from htsrl.placements.supervisor import Listeners

END_SECONDS = 5.0
AVOIDED_SECONDS = 60.0
"""Where an island has just died, the next is not begun if there is another node: Ray may be late to notice its end."""
NUM_METHODS = 4
"""Of an island that may be under way at once."""


class Islands:
    """All islands of a run, as the learner's supervisor sees them."""

    run_is_over = False

    def __init__(self, ray: ModuleType, blueprint: Blueprint, block: SharedArrays, listeners: Listeners) -> None:
        self.ray = ray
        self.pickled = pickle_blueprint(blueprint)
        placement = blueprint.config.placement
        self.deadline_seconds = placement.deadline_seconds
        self.listeners = listeners
        self._may_restart = placement.restart_workers
        assert blueprint.nodes is not None, "nodes are compared before a run begins"
        self.admission = Admission(ray, blueprint.nodes, placement.allow_different_numerics, listeners.on_line)
        self._other_nodes = set[str]()
        self._shared = shared = blueprint.shared(block)
        self.exchange = shared.exchange
        self.doorbell = Doorbell.create()
        self._ringing: threading.Lock = threading.Lock()
        self._is_closed = False
        self._deaths: Counter[tuple[int, Hashable]] = Counter()
        self._died_at: dict[str, float] = {}  # by node
        self.islands = [
            RemoteIsland(self, index, Crossing(blueprint, block, shared, index))
            for index in range(len(blueprint.islands))
        ]

    @property
    def workers(self) -> Collection[int]:
        return {number for island in self.islands for number in island.crossing.workers}

    def begin(self) -> None:
        for island in self.islands:
            island.begin()

    def advance(self) -> bool:
        turns = [island.advance() for island in self.islands]  # each has one
        return any(turns)

    def ring(self) -> None:
        """From Ray's threads, also when all is over."""
        with self._ringing:
            if not self._is_closed:
                self.doorbell.ring()

    def node_for(self, island: RemoteIsland) -> Node | None:
        """The one with the fewest islands for its cores, best none on which one has just died."""
        now = time.monotonic()
        hosted = Counter(other.node.id for other in self.islands if other.node and other is not island)

        def burden(node: Node) -> tuple[bool, float]:
            avoided = now < self._died_at.get(node.id, -AVOIDED_SECONDS) + AVOIDED_SECONDS
            return avoided, (hosted[node.id] + 1) / node.cpus

        return min(self.admission.admitted(alive_nodes(self.ray), self.ring), key=burden, default=None)

    def note_numerics_of(self, node: Node) -> None:
        """Of one that will have an island: where it computes otherwise, the run is marked before it does."""
        differences = self.admission.differences_of(node)
        if differences and node.id not in self._other_nodes:
            self._other_nodes.add(node.id)
            lines = [f"node {node.address}: {line}" for line in differences]
            self.listeners.on_other_numerics(self.exchange.published_version, lines)

    def judge(self, island: RemoteIsland, error: BaseException) -> None:
        """Raises where an island that died is not to be begun again."""
        reason = str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__
        text = f"{island.name} was lost while the learner waited for its rollouts ({reason})"
        if island.node:
            self._died_at[island.node.id] = time.monotonic()
        point = (island.index, island.progress())
        self._deaths[point] += 1
        if not self._may_restart or self._deaths[point] > MAX_KILLS_AT_ONE_POINT:
            raise PeerDied(text) from error
        self.listeners.on_restart(f"{text}; it is begun again from its capsules")

    def end(self) -> None:
        """All of them, in order as far as they let themselves."""
        calls = [call for island in self.islands if (call := island.ask_to_end())]
        with suppress(Exception):
            self.ray.wait(calls, num_returns=len(calls), timeout=END_SECONDS)
        deadline = time.monotonic() + END_SECONDS
        for killing in [thread for island in self.islands if (thread := island.kill())]:
            killing.join(max(deadline - time.monotonic(), 0.0))
        with self._ringing:
            self._is_closed = True
            self.doorbell.close()


class RemoteIsland:
    """One island, wherever it lives now."""

    def __init__(self, all_islands: Islands, index: int, crossing: Crossing) -> None:
        self._all = all_islands
        self.index = index
        self.crossing = crossing
        self.node: Node | None = None
        self._actor: Any = None
        self._beginning: Call | None = None
        self._collecting: Call | None = None
        self._publishing: Call | None = None
        self._sent_version = 0
        self._homeless_since: float | None = None

    @property
    def name(self) -> str:
        place = f" on {self.node.address}" if self.node else ""
        return f"island {self.index}{place}"

    def progress(self) -> bytes:
        """How far its environments have come, as far as that is known here."""
        return self._all.exchange.completed_rollouts[list(self.crossing.envs)].tobytes()

    def begin(self) -> None:
        """On some node, from where its environments stand; where there is no node, at a later turn."""
        ray, now = self._all.ray, time.monotonic()
        self._actor = self._beginning = self._collecting = self._publishing = None
        self.node = self._all.node_for(self)
        if self.node is None:
            self._wait_for_a_node(now)
            return
        self._homeless_since = None
        self._all.note_numerics_of(self.node)
        remote = ray.remote(Island).options(
            num_cpus=0,
            max_restarts=0,
            max_task_retries=0,
            max_concurrency=NUM_METHODS,
            scheduling_strategy=on_node(ray, self.node),
        )
        versions, arrays = self.crossing.acting_versions()
        rollouts = self.crossing.whole_rollouts()
        document = {"versions": [versions.start, versions.stop], "rollouts": len(rollouts)}
        self._actor = remote.remote()
        data = self._packed(document, {**arrays, **several(rollouts), **self.crossing.seconds()})
        seconds = STARTING_SECONDS + self._all.deadline_seconds
        reference = self._actor.begin.remote(self._all.pickled, self.index, data)
        self._beginning = Call(reference, self._all.ring, seconds)
        self._sent_version = versions[-1]

    def _wait_for_a_node(self, now: float) -> None:
        """As long as one is being looked at, and the deadline after that."""
        admission, seconds = self._all.admission, self._all.deadline_seconds
        if self._homeless_since is None or admission.is_looking:
            self._homeless_since = now
        elif now > self._homeless_since + seconds:
            lines = [f"no node of the Ray cluster that may have an island was alive for deadline_seconds={seconds:g}"]
            raise PeerDied("; ".join([*lines, *admission.refusals]))

    def advance(self) -> bool:
        """True when a rollout came."""
        try:
            return self._advance()
        except (TimeoutError, self._all.ray.exceptions.RayError) as error:
            if isinstance(error, self._all.ray.exceptions.RayTaskError):
                raise HtsrlError(f"{self.name} failed:\n{error}") from error
            self._all.judge(self, error)
            self.kill()
            self.begin()
            return False

    def _advance(self) -> bool:
        if self._actor is None:
            self.begin()
        if self._beginning is None or not self._beginning.is_done:
            return False
        self._beginning.result()
        if self._collecting is None:
            self._collect()
        came = False
        if self._collecting is not None and self._collecting.is_done:
            came = self._take_in(self._collecting.result())
            self._collect()
        self._publish()
        return came

    def _collect(self) -> None:
        self._collecting = Call(self._actor.collect.remote(), self._all.ring, self._all.deadline_seconds)

    def _publish(self) -> None:
        if self._publishing is not None:
            if not self._publishing.is_done:
                return
            self._publishing.result()
            self._publishing = None
        newest = self._all.exchange.published_version
        if newest > self._sent_version:
            versions = range(self._sent_version + 1, newest + 1)
            data = self._packed({"versions": [versions.start, versions.stop]}, self.crossing.versions(versions))
            self._publishing = Call(self._actor.publish.remote(data), self._all.ring, self._all.deadline_seconds)
            self._sent_version = newest

    def _packed(self, document: Any, arrays: Arrays) -> bytes:
        data = pack(document, arrays)
        self._all.exchange.crossed_bytes[1] += len(data)
        return data

    def _take_in(self, data: bytes) -> bool:
        document, arrays = unpack(data)
        self._all.exchange.crossed_bytes[0] += len(data)
        count = int(document["rollouts"])
        for rollout in one_by_one(arrays, count):
            self.crossing.put_next(rollout)
        self.crossing.put_watched(arrays)
        for news in document["news"]:
            if news["kind"] == "restart":
                self._all.listeners.on_restart(f"{self.name}: {news['line']}")
            else:
                if news["env"] is not None:
                    self.crossing.put_under_way(int(news["env"]), arrays)
                raise error_of({**news, "message": f"{self.name}: {news['message']}"})
        return count > 0

    def ask_to_end(self) -> Any:
        return self._actor.end.remote() if self._actor is not None else None

    def kill(self) -> threading.Thread | None:
        """On a thread, so that a node that cannot be reached holds up nobody who asks the other islands."""
        if self._actor is None:
            return None
        killing = threading.Thread(target=self._kill, args=(self._actor,), name="htsrl-kill", daemon=True)
        killing.start()
        return killing

    def _kill(self, actor: Any) -> None:
        with suppress(Exception):
            self._all.ray.kill(actor)

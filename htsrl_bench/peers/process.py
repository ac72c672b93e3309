"""One run of htsrl or of a peer: started, watched, ended."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import NamedTuple

from htsrl.errors import HtsrlError
from htsrl_bench.live_run import live_run
from htsrl_bench.peers.failures import PeerFailed, last_words
from htsrl_bench.peers.frameworks import ONE_THREAD, Peer
from htsrl_bench.peers.rate import Reading, Window, parse
from htsrl_bench.peers.work import Precision, htsrl_config, job
from htsrl_bench.process_tree import cpu_seconds, tree_of
from htsrl_bench.throughput import settle

PATIENCE_SECONDS = 180.0
"""Without an update; starting a framework with 16 processes takes a while on a small machine."""
LOOK_EVERY_SECONDS = 1.0
"""Seldom: looking takes time from what is measured."""


class Speed(NamedTuple):
    """What was seen of a run."""

    steps_per_second: float
    cpu_microseconds: float
    """Of all its processes, for a step: unlike the clock, it hardly depends on what else the machine does."""


def run_htsrl(work: str, precision: Precision, window: Window) -> Speed:
    with live_run(htsrl_config(work, precision)) as run:
        try:
            settle(run)
            begun = len(run.updates())
            return _watch(run.process, lambda: [Reading(u.steps, u.seconds) for u in run.updates()[begun:]], window)
        except (PeerFailed, HtsrlError) as failure:
            raise HtsrlError(f"htsrl itself did not train {work}: {failure}") from None


def run_peer(peer: Peer, python: Path, variant: str, work: str, window: Window) -> Speed:
    """Raises PeerFailed with the peer's last words if it ends or stops."""
    with TemporaryDirectory(prefix="htsrl-bench-", ignore_cleanup_errors=True) as name:
        folder = Path(name)
        job_file, readings_file, log_file = folder / "job.json", folder / "readings", folder / "log"
        job_file.write_text(json.dumps(job(work)))
        readings_file.touch()
        threads = {"OMP_NUM_THREADS": "1"} if variant.endswith(ONE_THREAD) else {}
        module = peer.module_of(work)
        with log_file.open("w") as log:
            process = subprocess.Popen(
                [str(python), "-m", module, str(job_file), variant.removesuffix(ONE_THREAD), str(readings_file)],
                cwd=folder,
                env={**os.environ, "PYTHONPATH": str(peer.scripts), **threads},
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,  # so that its workers end with it
            )
        try:
            return _watch(process, lambda: parse(readings_file.read_text()), window)
        except PeerFailed as failure:
            said = last_words(log_file.read_text(errors="replace"), [folder, python.parent.parent])
            raise PeerFailed(f"{failure}: {said}") from None
        finally:
            _end(process)


def _watch(process: subprocess.Popen[bytes], readings: Callable[[], Sequence[Reading]], window: Window) -> Speed:
    updates, changed_at = 0, time.monotonic()
    cpu, cpu_since = 0.0, None
    while True:
        is_over = process.poll() is not None
        seen = readings()
        rate = window.rate(seen)
        if rate is not None and cpu_since is not None:
            cores = (cpu_seconds(tree_of(process.pid)) - cpu) / max(time.monotonic() - cpu_since, 1e-9)
            return Speed(rate, 1e6 * cores / rate)
        if cpu_since is None and len(seen) >= max(window.skipped_updates, 1):
            cpu, cpu_since = cpu_seconds(tree_of(process.pid)), time.monotonic()
        if is_over:
            raise PeerFailed(f"it ended after {len(seen)} updates")
        if len(seen) > updates:
            updates, changed_at = len(seen), time.monotonic()
        if time.monotonic() - changed_at > PATIENCE_SECONDS:
            raise PeerFailed(f"no update in {PATIENCE_SECONDS:g} s")
        time.sleep(LOOK_EVERY_SECONDS)


def _end(process: subprocess.Popen[bytes]) -> None:
    """The whole group: frameworks have workers that wait for a leader who is gone."""
    try:
        os.killpg(process.pid, signal.SIGKILL)
    except ProcessLookupError:
        pass  # all of it has ended already
    process.wait()

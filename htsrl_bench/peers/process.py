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

from htsrl.errors import HtsrlError
from htsrl_bench.live_run import live_run
from htsrl_bench.peers.failures import PeerFailed, last_words
from htsrl_bench.peers.frameworks import Peer
from htsrl_bench.peers.rate import Reading, Window, parse
from htsrl_bench.peers.work import htsrl_config, job
from htsrl_bench.throughput import settle

PATIENCE_SECONDS = 180.0
"""Without an update; starting a framework with 16 processes takes a while on a small machine."""
LOOK_EVERY_SECONDS = 1.0
"""Seldom: looking takes time from what is measured."""


def run_htsrl(work: str, window: Window) -> float:
    with live_run(htsrl_config(work)) as run:
        try:
            settle(run)
            begun = len(run.updates())
            return _watch(run.process, lambda: [Reading(u.steps, u.seconds) for u in run.updates()[begun:]], window)
        except (PeerFailed, HtsrlError) as failure:
            raise HtsrlError(f"htsrl itself did not train {work}: {failure}") from None


def run_peer(peer: Peer, python: Path, variant: str, work: str, window: Window) -> float:
    """Raises PeerFailed with the peer's last words if it ends or stops."""
    with TemporaryDirectory(prefix="htsrl-bench-", ignore_cleanup_errors=True) as name:
        folder = Path(name)
        job_file, readings_file, log_file = folder / "job.json", folder / "readings", folder / "log"
        job_file.write_text(json.dumps(job(work)))
        readings_file.touch()
        with log_file.open("w") as log:
            process = subprocess.Popen(
                [str(python), "-m", peer.module, str(job_file), variant, str(readings_file)],
                cwd=folder,
                env={**os.environ, "PYTHONPATH": str(peer.scripts)},
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


def _watch(process: subprocess.Popen[bytes], readings: Callable[[], Sequence[Reading]], window: Window) -> float:
    updates, changed_at = 0, time.monotonic()
    while True:
        is_over = process.poll() is not None
        seen = readings()
        rate = window.rate(seen)
        if rate is not None:
            return rate
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

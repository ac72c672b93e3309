"""All runs below a folder: found again and again, and read in the background as far as somebody looks at them."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from htsrl.dashboard.run import Run
from htsrl.dashboard.run_files import RunFiles
from htsrl.dashboard.run_state import held_locks
from htsrl.dashboard.sweeps import ANALYSIS, MAX_SWEEPS, SWEEP, stamp_text, sweep_name, sweep_view

Parts = tuple[str, ...]
MAX_DEPTH = 4
MAX_RUNS = 2_000
MAX_FOLDERS = 20_000
REFRESH_SECONDS = 1.0
WANTED_SECONDS = 20.0
"""Metrics of a run are read for so long after its curves were last asked for."""
READ_AT_ONCE_SECONDS = 0.1
READ_AT_ONCE_BYTES = 2**22
"""Of an answer's time goes at most so much into reading metrics, and none into longer files: of those some lines are
looked at first, and all are read afterwards."""


class Catalog:
    """What the page is served from."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self._runs: dict[tuple[str, ...], Run] = {}
        self._by_id: dict[str, Run] = {}
        self._generation = 0
        self._changed_at: dict[str, int] = {}
        self._refreshed_at = -REFRESH_SECONDS
        self._note: str | None = None
        self._sweeps: list[RunFiles] = []
        self._wanted: dict[str, float] = {}
        self._refreshing = threading.Lock()
        self._counting = threading.Lock()
        self._num_asking = 0
        self._closing = threading.Event()
        self._work = threading.Event()
        self._thread = threading.Thread(target=self._read_in_background, name="dashboard-reader", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def close(self) -> None:
        self._closing.set()
        self._work.set()
        if self._thread.is_alive():
            self._thread.join(timeout=10)

    def run(self, run_id: str) -> Run | None:
        return self._by_id.get(run_id)

    def rows(self, since: int) -> dict[str, Any]:
        """What has changed since a generation that an earlier answer named; 0 for all."""
        with self.asking(), self._refreshing:
            if time.monotonic() - self._refreshed_at >= REFRESH_SECONDS:
                self._refresh()
            runs = list(self._runs.values())
            return {
                "generation": self._generation,
                "root": str(self.root),
                "note": self._note,
                "ids": [run.id for run in runs],
                "rows": [run.row for run in runs if self._changed_at[run.id] > since],
                "sweeps": [[sweep_name(files), stamp_text(files)] for files in self._sweeps],
            }

    def sweeps(self) -> list[dict[str, Any]]:
        """What came of the sweeps so far, as far as it can be read."""
        return [view for files in self._sweeps if (view := sweep_view(files)) is not None]

    def _refresh(self) -> None:
        found, sweeps, self._note = find_runs(self.root)
        self._sweeps = [RunFiles(self.root, parts) for parts in sweeps]
        self._runs = {parts: self._runs.get(parts) or Run(RunFiles(self.root, parts)) for parts in found}
        self._by_id = {run.id: run for run in self._runs.values()}
        locks = held_locks()
        changed = [run.id for run in self._runs.values() if run.refresh(locks)]
        if changed or self._changed_at.keys() - self._by_id.keys():
            self._generation += 1
        self._changed_at = {
            run_id: self._generation if run_id in changed else self._changed_at[run_id] for run_id in self._by_id
        }
        self._refreshed_at = time.monotonic()

    def curves(self, metric: str, known: Sequence[tuple[str, str]], max_buckets: int) -> dict[str, Any]:
        """Of every run the metric's curve and its version; only the version where that is the known one."""
        runs = [(run, version) for run_id, version in known if (run := self.run(run_id))]
        answers: dict[str, dict[str, Any]] = {}
        with self.asking():
            self._read_at_once([run for run, _ in runs])
            for run, version in runs:
                now = run.curve_version()
                answers[run.id] = {"version": now}
                if now != version:
                    answers[run.id]["curve"] = run.curve(metric, max_buckets)
        return {"metric": metric, "curves": answers}

    def metric_names(self, run_ids: Sequence[str]) -> list[str]:
        runs = [run for run_id in run_ids if (run := self.run(run_id))]
        with self.asking():
            self._read_at_once(runs)
        return sorted({name for run in runs for name in run.metric_names()})

    def _read_at_once(self, runs: Sequence[Run]) -> None:
        """What little time allows, short files first; the rest is left to the background."""
        until = time.monotonic() + READ_AT_ONCE_SECONDS
        for num_bytes, run in sorted(((run.num_bytes_unread, run) for run in runs), key=lambda pair: pair[0]):
            self._wanted[run.id] = time.monotonic()
            if num_bytes <= READ_AT_ONCE_BYTES:
                run.read_while(lambda: time.monotonic() < until)
        self._work.set()

    def _read_in_background(self) -> None:
        """A piece of each in turn: all of them get better, and nobody who asks waits for long."""
        while not self._closing.is_set():
            self._work.wait()
            self._work.clear()
            recently = time.monotonic() - WANTED_SECONDS
            waiting = [run for run_id, at in list(self._wanted.items()) if at > recently and (run := self.run(run_id))]
            while waiting and not self._closing.is_set():
                waiting = [run for run in waiting if self._read_in_turn(run)]

    def _read_in_turn(self, run: Run) -> bool:
        """A piece of it, when nobody waits for an answer."""
        while self._num_asking and not self._closing.is_set():
            time.sleep(0.005)
        has_more = not self._closing.is_set() and run.read_more()
        time.sleep(0.0005)
        return has_more

    @contextmanager
    def asking(self) -> Iterator[None]:
        """While somebody waits for an answer."""
        with self._counting:
            self._num_asking += 1
        try:
            yield
        finally:
            with self._counting:
                self._num_asking -= 1


def find_runs(root: Path) -> tuple[list[Parts], list[Parts], str | None]:
    """Folders with a config.json, and those of sweeps, by the names that lead to them and through no links; and a note
    where some are left out."""
    runs: list[Parts] = []
    sweeps: list[Parts] = []
    for number, (parts, is_run, is_sweep) in enumerate(_folders(root)):
        if number >= MAX_FOLDERS or len(runs) >= MAX_RUNS:
            return runs, sweeps, f"only the first {len(runs):,} runs are shown; give a folder with fewer"
        if is_run:
            runs.append(parts)
        elif is_sweep and len(sweeps) < MAX_SWEEPS:
            sweeps.append(parts)
    return runs, sweeps, None


def _folders(root: Path, parts: Parts = ()) -> Iterator[tuple[Parts, bool, bool]]:
    try:
        with os.scandir(root.joinpath(*parts)) as entries:
            listed = sorted(entries, key=lambda entry: entry.name)
    except OSError:
        return
    files = {entry.name for entry in listed if entry.is_file(follow_symlinks=False)}
    is_run = "config.json" in files
    yield parts, is_run, bool({ANALYSIS, SWEEP} & files)
    if not is_run and len(parts) < MAX_DEPTH:
        for entry in listed:
            if entry.is_dir(follow_symlinks=False):
                yield from _folders(root, (*parts, entry.name))

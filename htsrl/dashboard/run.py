"""One run of the page: its row in the table, its curves, and notes on what could not be read."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import xxhash

from htsrl.dashboard.metrics_reader import METRICS_FILE, SECONDS, MetricsReader, Record, last_record, sampled
from htsrl.dashboard.run_files import RunFiles, Stamp
from htsrl.dashboard.run_state import HeldLocks, run_state, stop_reason
from htsrl.dashboard.series import Series
from htsrl.dashboard.shown import flat_settings, number, text

NUM_SAMPLES = 200
"""Lines that are looked at first where a file is too long to be read at once."""
MAX_CURVE_NAMES = 400
EVALUATIONS_FILE = "evaluations.jsonl"
STALL_FILE = "stall.json"


class Run:
    """Reads of a folder what is asked for, and again only what has changed."""

    def __init__(self, files: RunFiles) -> None:
        self.files = files
        self.id = xxhash.xxh3_64_hexdigest("\0".join(files.parts).encode(errors="surrogateescape"))
        self.row: dict[str, Any] = {}
        self._documents: dict[str, tuple[Stamp, Any, str | None]] = {}
        self._last: tuple[Stamp | None, Record] = (None, {})
        self._reader = MetricsReader(files)
        self._evaluations = MetricsReader(files, EVALUATIONS_FILE, prefix="eval/")
        self._samples: dict[str, Series] | None = None
        self._reading = threading.Lock()

    @property
    def name(self) -> str:
        return "/".join(self.files.parts) or self.files.root.name

    def refresh(self, locks: HeldLocks) -> bool:
        """Look at the folder again; whether the row has changed."""
        config, result = self.document("config.json"), self.document("result.json")
        experiment = config.get("experiment") if isinstance(config, dict) else None
        experiment = experiment if isinstance(experiment, dict) else {}
        settings = flat_settings(experiment)
        last, outcome = self._last_record(), result if isinstance(result, dict) else {}
        evaluation = last_record(self.files, EVALUATIONS_FILE)
        begun = self.files.stamp("config.json")
        stamp = self.files.stamp(METRICS_FILE) or begun
        waits, state = self._waits(), run_state(self.files, result, locks)
        restarts = outcome.get("restarts", self._num_restarts() if state == "running" else None)
        row = {
            "id": self.id,
            "name": self.name,
            "state": state,
            "stop_reason": stop_reason(result),
            "env": settings.get("env"),
            "algorithm": settings.get("algorithm.name"),
            "schedule": settings.get("schedule"),
            "seed": settings.get("seed"),
            "step": number(last.get("step")),
            "total_steps": number(experiment.get("total_steps")),
            "return": _first_number(last.get("rollout/ep_rew_mean"), outcome.get("mean_return")),
            "evaluation": number(evaluation.get("eval/mean_reward", last.get("eval/mean_reward"))),
            "fps": _first_number(outcome.get("steps_per_second"), last.get("time/fps")),
            "lag": number(last.get("hts/lag_max")),
            "restarts": number(restarts),
            "digest": text(outcome.get("digest")),
            "started": begun.modified_ns / 1e9 if begun else None,
            "updated": stamp.modified_ns / 1e9 if stamp else None,
            "settings": settings,
            "waits": waits if state == "running" else None,
            "notes": self.notes(),
        }
        changed = row != self.row
        self.row = row
        return changed

    def _num_restarts(self) -> int | None:
        """So far, of a run whose timeline says so."""
        timeline = self.document("timeline.json")
        events = timeline.get("events") if isinstance(timeline, dict) else None
        return sum(isinstance(x, list) and x[:1] == ["restart"] for x in events) if isinstance(events, list) else None

    def _waits(self) -> str | None:
        """What a run waits for that has had no update for a while."""
        stall = self.document(STALL_FILE)
        if not isinstance(stall, dict) or (seconds := number(stall.get("seconds"))) is None:
            return None
        return f"no update for {seconds:.0f} s: {text(stall.get('reason')) or 'the run does not say why'}"

    def document(self, name: str) -> Any:
        """A file's JSON as it is now; None where it is absent or none, with a note about the latter."""
        stamp = self.files.stamp(name)
        if stamp is None:
            self._documents.pop(name, None)
            return None
        known = self._documents.get(name)
        if known is None or known[0] != stamp:
            known = (stamp, *self._read_document(name))
            self._documents[name] = known
        return known[1]

    def _read_document(self, name: str) -> tuple[Any, str | None]:
        try:
            return self.files.document(name), None
        except OSError as error:
            return None, f"{name} cannot be read: {error.strerror}"
        except ValueError as error:
            return None, f"{name} is not JSON: {error}"

    def notes(self) -> list[str]:
        """What could not be read, in words."""
        notes = [note for _, _, note in list(self._documents.values()) if note]
        return [*notes, *self._reader.notes(), *self._evaluations.notes()]

    def _last_record(self) -> Record:
        stamp = self.files.stamp(METRICS_FILE)
        if stamp != self._last[0]:
            self._last = stamp, last_record(self.files)
        return self._last[1]

    def read_more(self) -> bool:
        """Read a piece of the metrics; whether there is more."""
        with self._reading:
            has_more = self._reader.advance()
            if not has_more:
                self._samples = None
            return self._evaluations.advance() or has_more

    def read_while(self, may_read: Callable[[], bool]) -> None:
        """Read the metrics to their end, or as far as time allows."""
        while may_read() and self.read_more():
            pass

    @property
    def num_bytes_unread(self) -> int:
        stamp = self.files.stamp(METRICS_FILE)
        return max(0, stamp.num_bytes - self._reader.num_bytes_read) if stamp else 0

    def metric_names(self) -> list[str]:
        last = [name for name in self._last_record() if name != "step"]
        return list(dict.fromkeys([*self._evaluations.series, *self._reader.series, *last]))[:MAX_CURVE_NAMES]

    def curve(self, metric: str, max_buckets: int) -> dict[str, Any] | None:
        """One metric as far as it was read, or a sample of it until then; None where the run has none."""
        with self._reading:
            if metric in self._evaluations.series:
                return self._evaluation_curve(metric, max_buckets)
            is_whole = self._reader.is_up_to_date
            if not is_whole and self._samples is None:
                self._samples = sampled(self.files, NUM_SAMPLES)
            found = (self._reader.series if is_whole else self._samples or {}).get(metric)
            if found is None:
                return None
            share = 1.0 if is_whole else self._reader.num_bytes_read / max(1, self._reader.num_bytes)
            return {**found.view(max_buckets), "read": share}

    def _evaluation_curve(self, metric: str, max_buckets: int) -> dict[str, Any]:
        """Evaluations know the step that they are of; when that was, the other metrics know."""
        view = self._evaluations.series[metric].view(max_buckets)
        clock = self._reader.series.get(SECONDS)
        return {**view, "seconds": clock.seconds_at(view["step"]) if clock else view["step"], "read": 1.0}

    def curve_version(self) -> str:
        """Changes whenever a curve may have; what is sampled stays until all is read."""
        version = self._reader.version if self._reader.is_up_to_date else "sampled"
        return f"{version}.{self._evaluations.version}"


def _first_number(*values: Any) -> float | None:
    return next((found for value in values if (found := number(value)) is not None), None)

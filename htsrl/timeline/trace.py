"""A timeline in the trace event format, which Perfetto and Chrome's `about:tracing` show: a lane for each worker.

https://docs.google.com/document/d/1CvAClvFfyA5R-PhYUmn5OOQtYMH4h6I0nSsKchNAySU
"""

from __future__ import annotations

import json
import os
import tempfile
from pathlib import Path
from typing import Any

from htsrl.errors import RunFolderError
from htsrl.timeline.kinds import SHARES, Kind
from htsrl.timeline.read import Span, Timeline

PROCESS = 1
"""All lanes are shown as threads of one process, the run."""
CATEGORIES = {kind: share for share, kinds in SHARES.items() for kind in kinds}
SUBJECTS = {
    Kind.STEP: "environment",
    Kind.RESET: "environment",
    Kind.SAVE_STATE: "environment",
    Kind.WAIT_SLOWEST: "environment",
    Kind.INFERENCE: "rows",
    Kind.UPDATE: "version",
}


def trace_document(timeline: Timeline, title: str) -> dict[str, Any]:
    lanes = {worker.name: lane for lane, worker in enumerate(timeline.workers, start=1)}
    events: list[dict[str, Any]] = [_metadata("process_name", 0, name=title)]
    for lane, worker in enumerate(timeline.workers, start=1):
        events.append(_metadata("thread_name", lane, name=worker.name))
        events.append(_metadata("thread_sort_index", lane, sort_index=lane))
        events += [_complete_event(span, lane) for span in worker.spans]
    for event in timeline.events:
        lane, scope = lanes.get(event.worker, 0), "t" if event.worker in lanes else "p"
        about = {"name": event.what, "ph": "i", "ts": event.time * 1e6, "pid": PROCESS, "tid": lane, "s": scope}
        events.append({**about, "args": {"worker": event.worker}})
    return {"traceEvents": events, "displayTimeUnit": "ms"}


def write_trace(timeline: Timeline, title: str, path: Path) -> None:
    """All of it or nothing, and never through a link that lies there."""
    data = json.dumps(trace_document(timeline, title), separators=(",", ":")).encode()
    temporary: str | None = None
    try:
        descriptor, temporary = tempfile.mkstemp(prefix=f".{path.name}.", dir=path.parent)
        with open(descriptor, "wb") as file:
            file.write(data)
        os.replace(temporary, path)
    except OSError as error:
        if temporary is not None:
            Path(temporary).unlink(missing_ok=True)
        raise RunFolderError(
            f"the trace cannot be written to {path}: {error.strerror}; choose another file with --output"
        ) from error


def _complete_event(span: Span, lane: int) -> dict[str, Any]:
    subject = {} if span.subject is None else {SUBJECTS.get(span.kind, "subject"): span.subject}
    return {
        "name": _name(span),
        "cat": CATEGORIES.get(span.kind, "overhead"),
        "ph": "X",
        "ts": round(span.start * 1e6, 3),
        "dur": round(span.seconds * 1e6, 3),
        "pid": PROCESS,
        "tid": lane,
        "args": subject,
    }


def _name(span: Span) -> str:
    """With the environment where there is one, so that a straggler can be read off the lanes."""
    label = span.kind.label.replace("_", " ")
    return f"{label} {span.subject}" if SUBJECTS.get(span.kind) == "environment" and span.subject is not None else label


def _metadata(what: str, lane: int, **arguments: Any) -> dict[str, Any]:
    return {"name": what, "ph": "M", "pid": PROCESS, "tid": lane, "args": arguments}

"""The sinks of a run beside metrics.jsonl, none of which can stop it."""

from __future__ import annotations

import json
from functools import partial

from htsrl.config import Config
from htsrl.config.file import to_json
from htsrl.metrics.csv_file import CsvFile
from htsrl.metrics.guarded_sinks import GuardedSink, ThreadedSink
from htsrl.metrics.line_file import Warn
from htsrl.metrics.sinks import TensorBoard
from htsrl.metrics.trackers import TRACKERS, TrackedRun
from htsrl.runs.folder import RunFolder


def open_sinks(config: Config, folder: RunFolder, steps: int, warn: Warn) -> list[GuardedSink | ThreadedSink]:
    """Those that the placement asks for, of a run that is resumed after so many steps."""
    placement, found = config.placement, list[GuardedSink | ThreadedSink]()
    if placement.tensorboard:
        make_tensorboard = partial(TensorBoard, folder.tensorboard_dir, warn, purge_step=steps + 1)
        found.append(GuardedSink("tensorboard", make_tensorboard, warn))
    for name in dict.fromkeys(placement.sinks):
        if name == "csv":
            found.append(GuardedSink(name, partial(CsvFile, folder.csv_file, warn, steps), warn))
        else:
            run = TrackedRun(folder.path, json.loads(to_json(config)))
            found.append(ThreadedSink(name, partial(TRACKERS[name], run), warn))
    return found

"""A process that reads damaged run folders in every way there is, and dies at once if anything is executed for one.

It is given a good folder, a first number, a count and a seed, and prints a line for each way of reading that raised
something without a name.
"""

from __future__ import annotations

import io
import json
import os
import sys
import tempfile
from collections.abc import Callable, Iterable
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path
from typing import Any

import numpy as np
from run_folder_damage import CANARY, DAMAGES, Files

from htsrl.checkpoint.files import newest_valid, whole_documents
from htsrl.cli.folder import CodeFlags
from htsrl.cli.main import Compare, Digest
from htsrl.config import Experiment
from htsrl.dashboard.details import details
from htsrl.dashboard.run import Run
from htsrl.dashboard.run_files import RunFiles
from htsrl.dashboard.timeline_view import timeline_view
from htsrl.errors import HtsrlError
from htsrl.reports.gather import gather
from htsrl.runs.folder import RunFolder
from htsrl.runs.load_policy import load_policy
from htsrl.runs.saved_policy import Choice
from htsrl.runs.trust import admitted_config
from htsrl.runs.warm_start import read_source
from htsrl.sources.provenance import read_provenances
from htsrl.timeline.read import read_timeline
from htsrl.timeline.summary import summary_lines
from htsrl.timeline.trace import write_trace
from htsrl_bench.learned import read_curve

CHOICES: tuple[Choice, ...] = ("newest", "best", 2, "newest", 3)
FORBIDDEN = ("os.system", "os.exec", "os.posix_spawn", "os.spawn", "os.fork", "subprocess.Popen", "pickle.find_class")


LOOKS = ("open", "os.listdir", "os.scandir")
looked_at: set[str] = set()
"""Every path that was opened or listed."""


class Executed(BaseException):
    """Code of the folder was about to run."""


def watch(event: str, arguments: tuple[Any, ...]) -> None:
    """An audit hook sees what no code can hide."""
    if event in LOOKS:
        looked_at.add(str(arguments[0]))
    source = getattr(arguments[0], "co_filename", arguments[0]) if event in ("exec", "open", "import") else ""
    if event in FORBIDDEN or CANARY in str(source):
        raise Executed(f"{event} {arguments}")


def files_of(folder: Path) -> Files:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def parts(names: Iterable[str]) -> set[str]:
    """Files of a run's folder; all checkpoints are one part of it."""
    return {name.partition("/")[0] for name in names}


def differing(a: Files, b: Files) -> set[str]:
    return {name for name in a.keys() | b.keys() if a.get(name) != b.get(name)}


def write(folder: Path, files: Files, there: Files) -> None:
    """Make the folder hold these files, and nothing else of what is there."""
    for name in differing(files, there):
        path = folder / name
        if name in files:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(files[name])
        else:
            path.unlink()


def parts_read(run: Path, read: Callable[[], Any]) -> set[str]:
    """Which parts of the folder a way of reading looks at: damage elsewhere cannot change what it finds.

    All of them where it opens files from their folder on, so that their paths are not seen.
    """
    looked_at.clear()
    outcome(read)
    seen = parts(str(Path(path).relative_to(run)) for path in looked_at if Path(path).is_relative_to(run))
    return seen or parts(files_of(run))


def outcome(read: Callable[[], Any]) -> BaseException | None:
    """What a way of reading raised, unless it has a name."""
    try:
        with redirect_stdout(io.StringIO()), redirect_stderr(io.StringIO()):
            read()
    except HtsrlError:
        return None
    except BaseException as error:
        return error
    return None


def ways(good: Path, other: Path, run: Path, checkpoint: Choice) -> dict[str, Callable[[], Any]]:
    folder = RunFolder(run)
    return {
        "digest": Digest(run).run,
        "compare": Compare(good, run).run,
        "compare with a run that parts at once": Compare(run, other).run,
        "result": folder.result,
        "fingerprint": folder.fingerprint,
        "changes of numerics": folder.numerics_changes,
        "curve": lambda: read_curve(run),
        "schedule": lambda: read_provenances(folder.schedule_file),
        "checkpoint": lambda: newest_valid(folder.checkpoints_dir, lambda line: None),
        "documents": lambda: list(whole_documents(folder.checkpoints_dir)),
        "what eval asks before it makes an environment": lambda: admitted_config(folder.config_file),
        "what eval says first": lambda: CodeFlags().open(run),
        f"policy {checkpoint}": lambda: load_policy(run, checkpoint),
        "warm start": lambda: read_source(Experiment("CartPole-v1", init_from=str(run))),
        "timeline": lambda: look_at_timeline(run),
        "report": lambda: gather([str(run)]),
        "dashboard": lambda: look_at_dashboard(run),
    }


def look_at_timeline(run: Path) -> None:
    timeline = read_timeline(run)
    summary_lines(timeline)
    write_trace(timeline, "a run", run.with_name("trace.json"))


def look_at_dashboard(run: Path) -> None:
    """All that the page asks of a run."""
    shown = Run(RunFiles(run.parent, (run.name,)))
    shown.refresh(frozenset())
    while shown.read_more():
        pass
    for metric in shown.metric_names():
        shown.curve(metric, 64)
    json.dumps([shown.row, details(shown), timeline_view(shown.document("timeline.json"))], allow_nan=False)


def main(good: Path, first: int, count: int, seed: int) -> None:
    files = files_of(good)
    sys.path.insert(0, str(good.parent))  # where the canary waits
    load_policy(good)  # what htsrl itself imports is imported by now
    sys.addaudithook(watch)
    with tempfile.TemporaryDirectory() as scratch:
        run, other = Path(scratch) / "run", Path(scratch) / "other"
        parting = files["digest.jsonl"].replace(b'"chain":"', b'"chain":"0')
        write(other, files | {"digest.jsonl": parting}, there={})
        write(run, files, there={})
        kinds = {choice: ways(good, other, run, choice) for choice in CHOICES}
        read_by = {name: parts_read(run, read) for of in kinds.values() for name, read in of.items()}
        there = files
        for index in range(first, first + count):
            damage = DAMAGES[index % len(DAMAGES)]
            damaged = damage(np.random.default_rng([seed, index]), files)
            write(run, damaged, there)
            there, changed = damaged, parts(differing(damaged, files))
            for name, read in kinds[CHOICES[index % len(CHOICES)]].items():
                if changed & read_by[name] and (error := outcome(read)) is not None:
                    what = repr(error).replace("\n", " ")[:300]
                    os.write(1, f"{damage.__name__}, drawn from [{seed}, {index}], {name}: {what}\n".encode())


if __name__ == "__main__":
    main(Path(sys.argv[1]), *map(int, sys.argv[2:]))

"""A process that reads damaged run folders in every way there is, and dies at once if anything is executed for one.

It is given a good folder, a first number, a count and a seed, and prints a line for each way of reading that raised
something without a name.
"""

from __future__ import annotations

import io
import os
import shutil
import sys
import tempfile
from collections.abc import Callable
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path
from typing import Any

import numpy as np
from run_folder_damage import CANARY, DAMAGES, Files

from htsrl.checkpoint.files import newest_valid, whole_documents
from htsrl.cli.folder import CodeFlags
from htsrl.cli.main import Compare, Digest
from htsrl.errors import HtsrlError
from htsrl.runs.folder import RunFolder
from htsrl.runs.load_policy import load_policy
from htsrl.runs.saved_policy import Choice
from htsrl.runs.trust import admitted_config
from htsrl.sources.provenance import read_provenances
from htsrl_bench.learned import read_curve

CHOICES: tuple[Choice, ...] = ("newest", "best", 2, "newest", 3)
FORBIDDEN = ("os.system", "os.exec", "os.posix_spawn", "os.spawn", "os.fork", "subprocess.Popen", "pickle.find_class")


class Executed(BaseException):
    """Code of the folder was about to run."""


def watch(event: str, arguments: tuple[Any, ...]) -> None:
    """An audit hook sees what no code can hide."""
    source = getattr(arguments[0], "co_filename", arguments[0]) if event in ("exec", "open", "import") else ""
    if event in FORBIDDEN or CANARY in str(source):
        raise Executed(f"{event} {arguments}")


def files_of(folder: Path) -> Files:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def write(folder: Path, files: Files) -> None:
    shutil.rmtree(folder, ignore_errors=True)
    for name, data in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(data)


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
    }


def main(good: Path, first: int, count: int, seed: int) -> None:
    files = files_of(good)
    sys.path.insert(0, str(good.parent))  # where the canary waits
    load_policy(good)  # what htsrl itself imports is imported by now
    sys.addaudithook(watch)
    with tempfile.TemporaryDirectory() as scratch:
        write(
            Path(scratch) / "other",
            files | {"digest.jsonl": files["digest.jsonl"].replace(b'"chain":"', b'"chain":"0')},
        )
        for index in range(first, first + count):
            damage = DAMAGES[index % len(DAMAGES)]
            run, other = Path(scratch) / "run", Path(scratch) / "other"
            write(run, damage(np.random.default_rng([seed, index]), files))
            for name, read in ways(good, other, run, CHOICES[index % len(CHOICES)]).items():
                try:
                    with redirect_stdout(io.StringIO()), redirect_stderr(io.StringIO()):
                        read()
                except HtsrlError:
                    pass
                except BaseException as error:
                    what = repr(error).replace("\n", " ")[:300]
                    os.write(1, f"{damage.__name__}, drawn from [{seed}, {index}], {name}: {what}\n".encode())


if __name__ == "__main__":
    main(Path(sys.argv[1]), *map(int, sys.argv[2:]))

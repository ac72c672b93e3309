"""A real disk of one MiB fills up under a run's results and is freed again: nothing is missing, nothing doubled."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

import htsrl

PACKAGE_ROOT = Path(htsrl.__file__).parents[1]
SECONDS = 100.0
IN_A_WORLD_OF_ITS_OWN = ("unshare", "--map-root-user", "--mount")
MOUNT = 'mount -t tmpfs -o size=1m tmpfs "$0" && exec "$@"'

# What every script below starts with. It runs on the small disk, in the only process that can see it.
COMMON = """
import os, sys, threading
from pathlib import Path
from htsrl.metrics.line_file import LineFile, drop_lines_after
from htsrl.metrics.sinks import JsonLines, TensorBoard, read_json_lines

os.chdir(sys.argv[1])
said = []

def fill_disk():
    with open("ballast", "wb", buffering=0) as ballast:
        try:
            while True:
                ballast.write(bytes(4096))
        except OSError:
            pass

def free_disk():
    os.remove("ballast")

def refused_and_taken_again(path):
    return [
        f"{path}: No space left on device; training continues, and what belongs there is kept",
        f"{path} can be written again; nothing of it is missing",
    ]
"""


def run_on_small_disk(folder: Path, script: str) -> None:
    """Run a script on a disk that is gone with it; it must say nothing and succeed."""
    ended = subprocess.run(
        [*IN_A_WORLD_OF_ITS_OWN, "sh", "-c", MOUNT, str(folder), sys.executable, "-c", COMMON + script, str(folder)],
        cwd=PACKAGE_ROOT,
        capture_output=True,
        text=True,
        timeout=SECONDS,
        check=False,
    )
    assert (ended.returncode, ended.stdout, ended.stderr) == (0, "", "")


@pytest.fixture(autouse=True, scope="module")
def _small_disks_can_be_made(tmp_path_factory: pytest.TempPathFactory) -> None:
    attempt = [*IN_A_WORLD_OF_ITS_OWN, "sh", "-c", MOUNT, str(tmp_path_factory.mktemp("disk")), "true"]
    try:
        subprocess.run(attempt, check=True, capture_output=True, text=True, timeout=SECONDS)
    except (OSError, subprocess.CalledProcessError) as error:
        pytest.skip(f"no file system can be mounted here: {getattr(error, 'stderr', None) or error}")


def test_lines_written_to_a_full_disk_are_all_there_once_and_in_order_when_it_has_room_again(tmp_path: Path) -> None:
    script = """
path = Path("lines")
file, lines = LineFile(path, said.append), []

def write(num_lines):
    for _ in range(num_lines):
        lines.append(f"line {len(lines)} of a run that nobody wants to do again")
        file.write(lines[-1])

write(10)
fill_disk()
write(5000)
on_full_disk = path.read_text()
assert 10 < on_full_disk.count("\\n") < 500, "the last page of the file had some room left"
assert not on_full_disk.endswith("\\n"), "the disk took a part of a line"
free_disk()
write(1)
assert path.read_text().splitlines() == lines
write(10)
file.close()
assert path.read_text().splitlines() == lines
assert said == refused_and_taken_again(path), said
"""
    run_on_small_disk(tmp_path, script)


def test_a_warning_that_goes_to_a_file_on_the_full_disk_stops_nothing(tmp_path: Path) -> None:
    script = """
fill_disk()
os.dup2(os.open("log", os.O_WRONLY | os.O_CREAT | os.O_APPEND), sys.stderr.fileno())
file = LineFile(Path("lines"))
file.write("one")
file.write("two")
free_disk()
file.close()
assert Path("lines").read_text() == "one\\ntwo\\n"
assert Path("log").read_text().endswith("lines can be written again; nothing of it is missing\\n")
"""
    run_on_small_disk(tmp_path, script)


def test_a_run_killed_on_a_full_disk_goes_on_behind_its_last_whole_line(tmp_path: Path) -> None:
    script = """
path = Path("metrics.jsonl")
killed = JsonLines(path, said.append)
fill_disk()
os.truncate("ballast", os.path.getsize("ballast") - 8192)
for step in range(1000):
    killed.write(step, {"time/fps": 8123.25})
assert not path.read_text().endswith("\\n"), "the disk took a part of a line"
num_whole = path.read_text().count("\\n")

assert drop_lines_after(path, "step", 1000) == num_whole - 1, "there is room enough to cut"
assert drop_lines_after(path, "step", 99) == 99
free_disk()
resumed = JsonLines(path, said.append)
for step in range(100, 200):
    resumed.write(step, {"time/fps": 8123.25})
resumed.close()
assert [record["step"] for record in read_json_lines(path)] == list(range(200))
"""
    run_on_small_disk(tmp_path, script)


def test_metrics_can_be_read_at_any_time_and_are_complete_in_the_end(tmp_path: Path) -> None:
    script = """
path = Path("metrics.jsonl")
sink, step = JsonLines(path, said.append), 0

def write(num_lines):
    global step
    for _ in range(num_lines):
        sink.write(step, {"time/fps": 8123.25, "rollout/ep_rew_mean": float("nan")})
        step += 1
        steps_read = [record["step"] for record in read_json_lines(path)]
        assert steps_read == list(range(len(steps_read)))

for _ in range(2):
    write(10)
    fill_disk()
    write(200)
    free_disk()
    write(1)
    assert len(read_json_lines(path)) == step
sink.close()
assert read_json_lines(path)[-1] == {"step": step - 1, "time/fps": 8123.25, "rollout/ep_rew_mean": None}
assert said == refused_and_taken_again(path) * 2, said
"""
    run_on_small_disk(tmp_path, script)


TENSORBOARD = """
folder = Path("tensorboard")

def steps_shown():
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    events = EventAccumulator(str(folder), size_guidance={"scalars": 0}).Reload()
    assert events.Tags()["scalars"] == ["hts/lag", "time/fps"]
    assert [event.value for event in events.Scalars("hts/lag")] == [1.0] * len(events.Scalars("time/fps"))
    return [(event.step, event.value) for event in events.Scalars("time/fps")]

def write(sink, steps):
    for step in steps:
        sink.write(step, {"hts/lag": 1.0, "time/fps": 2.0 * step})
"""


def test_tensorboard_shows_everything_once_the_disk_has_room_again(tmp_path: Path) -> None:
    script = """
sink = TensorBoard(folder, said.append)
write(sink, range(10))
fill_disk()
write(sink, range(10, 500))
assert 10 <= len(steps_shown()) < 200
free_disk()
write(sink, range(500, 510))
sink.close()
assert steps_shown() == [(step, 2.0 * step) for step in range(510)]
assert said == refused_and_taken_again(next(folder.iterdir())), said
assert threading.active_count() == 1
"""
    run_on_small_disk(tmp_path, TENSORBOARD + script)


def test_tensorboard_closes_on_a_full_disk_without_a_traceback_and_says_what_is_lost(tmp_path: Path) -> None:
    script = """
fill_disk()
sink = TensorBoard(folder, said.append)
write(sink, range(500))
sink.close()
path, = folder.iterdir()
first, lost = said
assert first == refused_and_taken_again(path)[0], first
assert lost.startswith(f"{path} lacks its last ") and lost.endswith(" bytes: No space left on device"), lost
"""
    run_on_small_disk(tmp_path, TENSORBOARD + script)


def test_a_folder_on_a_full_disk_is_locked_like_any_other(tmp_path: Path) -> None:
    script = """
from htsrl.errors import RunFolderError
from htsrl.runs.lock import RunLock

fill_disk()
with RunLock.acquire(Path(".")):
    try:
        RunLock.acquire(Path("."))
    except RunFolderError as error:
        said.append(str(error))
assert said == [". is in use by another process; wait until that has ended, or choose another folder"], said
"""
    run_on_small_disk(tmp_path, script)


def test_training_goes_on_over_a_full_disk_keeps_the_old_checkpoint_and_catches_up(tmp_path: Path) -> None:
    script = """
# The disk is full from update 5 to update 20, while a checkpoint is due at every update.
import contextlib, io
from htsrl import A2C, Config, Experiment, Placement, resume, train
from htsrl.checkpoint.files import newest_valid
from htsrl.digest import read_links
from htsrl.runs.recorder import Recorder

record = Recorder.record

def record_and_meddle(self, report):
    if report.version == 5:
        fill_disk()
    record(self, report)
    if report.version == 20:
        path, _ = newest_valid(Path("run/checkpoints"), warn=said.append)
        assert int(path.name) < 15 and not said, (path, said)
        free_disk()

Recorder.record = record_and_meddle
experiment = Experiment("CartPole-v1", algorithm=A2C(), num_envs=2, total_steps=2 * 5 * 40)
quiet = Placement("inline", run_dir=Path("run"), tensorboard=False, progress="off", log_every_steps=1,
                  checkpoint_every_updates=1)
heard = io.StringIO()
with contextlib.redirect_stderr(heard):
    result = train(Config(experiment, quiet))
warnings = heard.getvalue()
assert "warning: no checkpoint of version" in warnings and "No space left on device" in warnings, warnings
assert warnings.count("checkpoints are being written again") == 1, warnings
assert (result.updates, result.interrupted) == (40, False)
assert len(read_links(Path("run"))) == 40
steps = [line["step"] for line in read_json_lines(Path("run/metrics.jsonl"))]
assert steps == [10 * n for n in range(1, 41)]
path, checkpoint = newest_valid(Path("run/checkpoints"), warn=said.append)
assert path.name == "000000040" and not said
"""
    run_on_small_disk(tmp_path, script)


def test_a_replay_buffer_outlives_a_full_disk_and_is_whole_in_the_next_checkpoint(tmp_path: Path) -> None:
    script = """
# Each checkpoint writes what the buffer has that is new. From update 5 to update 20 there is no room for it.
import contextlib, io
import numpy as np
from htsrl import SAC, Config, Experiment, Network, Placement, train
from htsrl.checkpoint.files import newest_valid, read_checkpoint
from htsrl.runs.recorder import Recorder

record = Recorder.record

def record_and_meddle(self, report):
    if self.is_meddled_with and report.version == 5:
        fill_disk()
    record(self, report)
    if self.is_meddled_with and report.version == 20:
        path, _ = newest_valid(Path("disturbed/checkpoints"), warn=said.append)
        assert int(path.name) <= 5 and not said, (path, said)
        free_disk()

def arrays_after(name, is_meddled_with):
    Recorder.is_meddled_with = is_meddled_with
    algorithm = SAC(learning_starts=24, minibatch_size=4, update_to_data=0.25, replay_capacity=64)
    experiment = Experiment("Pendulum-v1", algorithm=algorithm, network=Network(hidden_sizes=(4,)), num_envs=2,
                            sync_interval=4, total_steps=8 * 25)
    quiet = Placement("inline", run_dir=Path(name), tensorboard=False, progress="off", log_every_steps=1,
                      checkpoint_every_updates=1)
    with contextlib.redirect_stderr(io.StringIO()) as heard:
        result = train(Config(experiment, quiet))
    checkpoint = read_checkpoint(Path(name) / "checkpoints" / "000000025")
    return result.digest, checkpoint.arrays, heard.getvalue()

Recorder.record = record_and_meddle
digest, arrays, warnings = arrays_after("disturbed", True)
assert "No space left on device" in warnings and warnings.count("are being written again") == 1, warnings
undisturbed, expected, warnings = arrays_after("undisturbed", False)
assert digest == undisturbed and not warnings, warnings
names = [name for name in expected if name.startswith("replay/")]
assert len(names) == 6 and all(np.array_equal(arrays[name], expected[name]) for name in names), names
"""
    run_on_small_disk(tmp_path, script)


START = """
from htsrl import A2C, Config, Experiment, Placement, resume, train
from htsrl.errors import RunFolderError

experiment = Experiment("CartPole-v1", algorithm=A2C(), num_envs=2, total_steps=2 * 5 * 4)
quiet = Placement("inline", run_dir=Path("run"), tensorboard=False, progress="off")

def refused(command, *arguments, **named):
    try:
        command(*arguments, **named)
    except RunFolderError as error:
        return str(error)
"""


def test_a_run_that_begins_on_a_full_disk_is_refused_in_words_and_begins_once_there_is_room(tmp_path: Path) -> None:
    script = """
fill_disk()
said = refused(train, Config(experiment, quiet))
assert said == (
    "cannot write to run_dir=run: No space left on device; make room there, or choose another folder"
), said
assert not Path("run").exists()
free_disk()
assert train(Config(experiment, quiet)).updates == 4
"""
    run_on_small_disk(tmp_path, START + script)


def test_a_run_that_is_resumed_on_a_full_disk_is_refused_in_words_and_goes_on_once_there_is_room(
    tmp_path: Path,
) -> None:
    script = """
train(Config(experiment, quiet))
before = Path("run/config.json").read_bytes()
Path("run/result.json").unlink()  # a resume removes it first, which would make room
import os, sys
sys.stderr = open(os.devnull, "w")  # what becomes of an annealed learning rate is said there
fill_disk()
said = refused(resume, "run", total_steps=2 * 5 * 8)
assert said == (
    "cannot write to run: No space left on device; make room there and resume again, nothing is lost"
), said
assert Path("run/config.json").read_bytes() == before
free_disk()
assert resume("run", total_steps=2 * 5 * 8).updates == 8
"""
    run_on_small_disk(tmp_path, START + script)

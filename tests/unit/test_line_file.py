"""Lines reach the file once, in order and whole, however often the disk refuses them in between."""

from __future__ import annotations

import errno
import os
import signal
import stat
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from htsrl.metrics.line_file import LineFile, PatientFile, drop_lines_after

write_to_disk, open_on_disk = os.write, os.open


class SmallDisk:
    """Stands between a file and the disk, and lets only so many bytes through."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.room = 1 << 30
        self.refusal = errno.ENOSPC
        self.opens_files = True
        monkeypatch.setattr(os, "write", self._write)
        monkeypatch.setattr(os, "open", self._open)

    def _write(self, fd: int, data: bytes) -> int:
        if self.room == 0:
            raise OSError(self.refusal, os.strerror(self.refusal))
        num_written = write_to_disk(fd, bytes(data[: self.room]))
        self.room -= num_written
        return num_written

    def _open(self, path: Path, flags: int, mode: int = 0o777) -> int:
        if not self.opens_files:
            raise OSError(self.refusal, os.strerror(self.refusal))
        return open_on_disk(path, flags, mode)


@pytest.fixture
def disk(monkeypatch: pytest.MonkeyPatch) -> SmallDisk:
    return SmallDisk(monkeypatch)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "lines"


@pytest.fixture
def said() -> list[str]:
    return []


def test_a_line_is_in_the_file_as_soon_as_it_is_written(path: Path) -> None:
    file = LineFile(path)
    file.write("one")
    assert path.read_text() == "one\n"
    file.write("zwölf")
    assert path.read_text() == "one\nzwölf\n"
    file.close()


def test_only_its_user_can_read_the_file(path: Path) -> None:
    umask = os.umask(0)
    try:
        LineFile(path).close()
    finally:
        os.umask(umask)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600


@pytest.mark.parametrize("refusal", ["ENOSPC", "EDQUOT", "EIO", "EROFS", "EFBIG", "ESTALE"])
def test_refused_lines_follow_in_order_when_there_is_room_again(
    path: Path, disk: SmallDisk, said: list[str], refusal: str
) -> None:
    file = LineFile(path, said.append)
    file.write("one")
    disk.room, disk.refusal = 0, getattr(errno, refusal)
    file.write("two")
    file.write("three")
    assert path.read_text() == "one\n"
    disk.room = 1 << 30
    file.write("four")
    assert path.read_text() == "one\ntwo\nthree\nfour\n"
    file.close()


@pytest.mark.parametrize("room", range(8))
def test_a_line_that_the_disk_took_a_part_of_is_continued(path: Path, disk: SmallDisk, room: int) -> None:
    file = LineFile(path, lambda line: None)
    disk.room = room
    file.write("a line")
    assert path.read_text() == "a line\n"[:room]
    disk.room = 1 << 30
    file.flush()
    file.close()
    assert path.read_text() == "a line\n"


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(st.tuples(st.text("abc", max_size=9), st.integers(0, 12))))
def test_at_any_time_the_file_is_the_beginning_of_what_was_written(
    path: Path, disk: SmallDisk, writes: list[tuple[str, int]]
) -> None:
    path.unlink(missing_ok=True)
    disk.room = 0
    file, written = LineFile(path, lambda line: None), ""
    for line, room in writes:
        disk.room += room
        written += line + "\n"
        file.write(line)
        assert written.startswith(path.read_text())
        assert disk.room == 0 or path.read_text() == written
    disk.room = 1 << 30
    file.close()
    assert path.read_text() == written


def test_a_refusal_and_the_recovery_are_told_once_each(path: Path, disk: SmallDisk, said: list[str]) -> None:
    file = LineFile(path, said.append)
    for _ in range(2):
        disk.room = 0
        for _ in range(5):
            file.write("a line")
        disk.room = 1 << 30
        for _ in range(5):
            file.write("a line")
    file.close()

    refusal = f"{path}: No space left on device; training continues, and what belongs there is kept"
    recovery = f"{path} can be written again; nothing of it is missing"
    assert said == [refusal, recovery] * 2


def test_what_the_disk_never_took_is_told_at_the_end(path: Path, disk: SmallDisk, said: list[str]) -> None:
    disk.room = 4
    file = LineFile(path, said.append)
    file.write("one")
    file.write("two")
    file.close()
    file.close()
    assert said[1:] == [f"{path} lacks its last 4 bytes: No space left on device"]
    assert path.read_text() == "one\n"


def test_a_disk_too_full_for_a_new_file_gets_it_later(path: Path, disk: SmallDisk, said: list[str]) -> None:
    disk.opens_files = False
    file = LineFile(path, said.append)
    file.write("one")
    disk.opens_files = True
    file.write("two")
    file.close()
    assert path.read_text() == "one\ntwo\n"
    assert len(said) == 2


def test_lines_that_wait_for_the_disk_are_not_called_synced(
    path: Path, disk: SmallDisk, monkeypatch: pytest.MonkeyPatch
) -> None:
    lines_synced = []
    monkeypatch.setattr(os, "fsync", lambda fd: lines_synced.append(path.read_text()))
    file = LineFile(path, lambda line: None)
    file.write("one")
    file.sync()
    disk.room = 0
    file.write("two")
    with pytest.raises(OSError, match=r"No space left on device: .+lines"):
        file.sync()
    disk.room = 1 << 30
    file.sync()
    file.close()
    assert lines_synced == ["one\n", "one\ntwo\n"]


def test_an_error_that_waiting_cannot_cure_is_raised(path: Path, disk: SmallDisk) -> None:
    file = LineFile(path)
    disk.room, disk.refusal = 0, errno.EINVAL
    with pytest.raises(OSError, match="Invalid argument"):
        file.write("one")


def test_ctrl_c_right_after_the_disk_took_a_line_does_not_write_it_twice(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupted_write(fd: int, data: bytes) -> int:
        num_written = write_to_disk(fd, data)
        signal.raise_signal(signal.SIGINT)
        return num_written

    file = PatientFile(path)
    with monkeypatch.context() as patch:
        patch.setattr(os, "write", interrupted_write)
        with pytest.raises(KeyboardInterrupt):
            file.write(b"one\n")
    file.write(b"two\n")
    file.close()
    assert path.read_text() == "one\ntwo\n"


@pytest.mark.parametrize("cut", ["", "t", "two"])
def test_the_line_that_a_kill_left_unfinished_is_gone_when_the_file_is_continued(path: Path, cut: str) -> None:
    path.write_text("one\n" + cut)
    file = LineFile(path)
    file.write("two")
    file.close()
    assert path.read_text() == "one\ntwo\n"


LINES = "".join(f'{{"step": {step}}}\n' for step in (0, 8, 16, 24))


@pytest.mark.parametrize(
    ("last", "steps_left"), [(-1, []), (0, [0]), (7, [0]), (8, [0, 8]), (16, [0, 8, 16]), (24, [0, 8, 16, 24])]
)
@pytest.mark.parametrize("cut", ["", '{"step": 3', '{"step": 1}'])
def test_lines_up_to_the_last_stay_and_all_others_are_dropped(
    path: Path, last: int, steps_left: list[int], cut: str
) -> None:
    path.write_text(LINES + cut)
    assert drop_lines_after(path, "step", last) == (steps_left[-1] if steps_left else None)
    assert path.read_text() == "".join(f'{{"step": {step}}}\n' for step in steps_left)


def test_lines_that_were_never_written_show_in_what_is_left(path: Path) -> None:
    path.write_text(LINES)
    assert drop_lines_after(path, "step", 4096) == 24
    assert path.read_text() == LINES


@pytest.mark.parametrize("damage", ["\0\0\0\n", "[8]\n", "\n", '{"step": null}\n', '{"update": 1}\n'])
def test_damage_behind_the_last_line_is_dropped_and_before_it_stays(path: Path, damage: str) -> None:
    path.write_text(damage + LINES + damage)
    assert drop_lines_after(path, "step", 24) == 24
    assert path.read_text() == damage + LINES


def test_where_no_file_is_nothing_is_dropped_and_none_is_made(path: Path) -> None:
    assert drop_lines_after(path, "step", 0) is None
    assert not path.exists()

"""`htsrl dashboard`: what it prints, how it ends, and who gets to know the token."""

from __future__ import annotations

import os
import queue
import re
import signal
import socket
import stat
import subprocess
import sys
import threading
import urllib.request
import webbrowser
from pathlib import Path
from urllib.parse import urlparse

import pytest
from dashboard_runs import make_run

from htsrl.dashboard import serve as serving
from htsrl.dashboard.serve import serve
from htsrl.errors import ConfigError


@pytest.mark.parametrize("ending", [signal.SIGINT, signal.SIGTERM])
def test_it_serves_at_the_address_that_it_prints_until_it_is_ended(tmp_path: Path, ending: signal.Signals) -> None:
    make_run(tmp_path / "run")
    command = [sys.executable, "-m", "htsrl", "dashboard", str(tmp_path), "--no-browser"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        try:
            line = process.stdout.readline()
            found = re.fullmatch(r"dashboard (http://127\.0\.0\.1:\d+/[\w-]{32}/)\n", line)
            assert found, line
            with urllib.request.urlopen(f"{found[1]}api/runs", timeout=60) as answer:
                assert b'"name": "run"' in answer.read()
            process.send_signal(ending)
            _, errors = process.communicate(timeout=60)
        finally:
            process.kill()
    assert process.returncode == 0
    assert "Traceback" not in errors


def test_a_folder_that_is_none_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="give the one that holds your runs"):
        serve(tmp_path / "nothing", 0, False, print)


def test_a_port_that_is_taken_is_refused(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        with pytest.raises(ConfigError, match="leave it out for any free one"):
            serve(tmp_path, taken.getsockname()[1], False, print)
        with pytest.raises(ConfigError, match="port=123456"):
            serve(tmp_path, 123_456, False, print)


def test_the_browser_is_started_without_the_token_in_its_arguments(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Those can be read by every user of the machine."""
    opened: queue.SimpleQueue[str] = queue.SimpleQueue()
    monkeypatch.setattr(webbrowser, "open", opened.put)
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    with serving._browser("http://127.0.0.1:1/secret/", lambda: True):
        address = opened.get(timeout=60)
        page = Path(urlparse(address).path)
        assert "secret" not in address
        assert page.is_relative_to(tmp_path / "htsrl"), "a browser in a sandbox cannot read /tmp"
        assert "http://127.0.0.1:1/secret/" in page.read_text()
        assert stat.S_IMODE(os.stat(page).st_mode) == 0o600
        assert stat.S_IMODE(os.stat(page.parent).st_mode) == 0o700
    assert not page.exists()


def test_a_browser_that_blocks_is_opened_once_the_server_answers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    is_up, asked, opened, closed = (threading.Event() for _ in range(4))

    def answers() -> bool:
        asked.set()
        return is_up.is_set()

    def blocking(_: str) -> None:
        opened.set()
        closed.wait(60)

    monkeypatch.setattr(webbrowser, "open", blocking)
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    with serving._browser("http://127.0.0.1:1/", answers):
        assert asked.wait(60)
        assert not opened.is_set()
        is_up.set()
        assert opened.wait(60)
    closed.set()


@pytest.mark.skipif(sys.platform == "darwin", reason="there is always a display")
def test_a_browser_is_opened_only_where_there_is_a_display(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("DISPLAY", "WAYLAND_DISPLAY"):
        monkeypatch.delenv("DISPLAY", raising=False)
        monkeypatch.delenv("WAYLAND_DISPLAY", raising=False)
        assert not serving._has_display()
        monkeypatch.setenv(name, ":0")
        assert serving._has_display()

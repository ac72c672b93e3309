"""Serving the page on this machine until it is interrupted."""

from __future__ import annotations

import html
import os
import secrets
import socket
import sys
import tempfile
import threading
import webbrowser
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from htsrl.errors import ConfigError
from htsrl.runs.signatures import state_folder

HOST = "127.0.0.1"
POLL_SECONDS = 0.05


def serve(root: Path, port: int, opens_browser: bool, announce: Callable[[str], None]) -> None:
    """Returns after Ctrl-C or SIGTERM."""
    try:
        import uvicorn

        from htsrl.dashboard.app import make_app
    except ImportError as error:
        raise ConfigError(f"the dashboard needs {error.name}; pip install 'htsrl[dashboard]'") from error
    if not root.is_dir():
        raise ConfigError(f"{root} is not a folder; give the one that holds your runs")
    with _bound(port) as listener:
        token = secrets.token_urlsafe(24)
        address = f"http://{HOST}:{listener.getsockname()[1]}/{token}/"
        announce(address)
        config = uvicorn.Config(
            make_app(root.resolve(), token),
            access_log=False,  # it would have the token
            log_level="warning",
            server_header=False,
            date_header=False,
            ws="none",
        )
        server = uvicorn.Server(config)
        with _browser(address, lambda: server.started) if opens_browser and _has_display() else _nothing():
            try:
                server.run(sockets=[listener])
            except KeyboardInterrupt:
                pass  # the way to end it


@contextmanager
def _bound(port: int) -> Iterator[socket.socket]:
    with socket.socket() as listener:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            listener.bind((HOST, port))
            listener.listen()  # whoever reads the address may ask at once
        except (OSError, OverflowError) as error:
            raise ConfigError(f"port={port} cannot be used: {error}; leave it out for any free one") from error
        yield listener


def _has_display() -> bool:
    """Without one, a browser of the console would take the terminal."""
    return sys.platform == "darwin" or bool(os.environ.get("DISPLAY") or os.environ.get("WAYLAND_DISPLAY"))


@contextmanager
def _browser(address: str, is_up: Callable[[], bool]) -> Iterator[None]:
    """Open a file of the user's own that leads on: what a program is started with can be read by every other user."""
    try:
        state_folder().mkdir(0o700, parents=True, exist_ok=True)
        # Not in /tmp, of which a browser in a sandbox sees one of its own.
        folder = tempfile.TemporaryDirectory(prefix="dashboard-", dir=state_folder(), ignore_cleanup_errors=True)
    except (OSError, RuntimeError):  # RuntimeError: nobody knows where home is
        yield  # the address was printed
        return
    with folder as name:
        page = Path(name) / "open.html"
        with open(page, "w", opener=lambda path, flags: os.open(path, flags, 0o600)) as file:
            file.write(f'<!doctype html><meta http-equiv="refresh" content="0; url={html.escape(address)}">\n')
        ends = threading.Event()
        # A browser may return only when it is closed.
        threading.Thread(target=_open_once, args=(page.as_uri(), is_up, ends), daemon=True).start()
        try:
            yield
        finally:
            ends.set()


def _open_once(address: str, is_up: Callable[[], bool], ends: threading.Event) -> None:
    while not is_up():
        if ends.wait(POLL_SECONDS):
            return
    try:
        webbrowser.open(address)
    except webbrowser.Error:
        pass  # the address was printed


@contextmanager
def _nothing() -> Iterator[None]:
    yield

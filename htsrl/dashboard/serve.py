"""Serving the page on this machine until it is interrupted."""

from __future__ import annotations

import html
import os
import secrets
import socket
import tempfile
import webbrowser
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from htsrl.errors import ConfigError

HOST = "127.0.0.1"


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
        with _browser(address) if opens_browser else _nothing():
            try:
                uvicorn.Server(config).run(sockets=[listener])
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


@contextmanager
def _browser(address: str) -> Iterator[None]:
    """Open a file of the user's own that leads on: what a program is started with can be read by every other user."""
    with tempfile.TemporaryDirectory(prefix="htsrl-dashboard-") as folder:
        page = Path(folder) / "open.html"
        with open(page, "w", opener=lambda path, flags: os.open(path, flags, 0o600)) as file:
            file.write(f'<!doctype html><meta http-equiv="refresh" content="0; url={html.escape(address)}">\n')
        try:
            webbrowser.open(page.as_uri())
        except webbrowser.Error:
            pass  # the address was printed
        yield


@contextmanager
def _nothing() -> Iterator[None]:
    yield

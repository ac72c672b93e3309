"""A dashboard that serves in a thread, and questions to it as a browser or an attacker would put them."""

from __future__ import annotations

import http.client
import json
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import uvicorn

from htsrl.dashboard.app import make_app

TOKEN = "a-token-for-tests"


@dataclass(frozen=True)
class Answer:
    status: int
    headers: Mapping[str, str]
    body: bytes

    @property
    def document(self) -> Any:
        assert self.status == 200, self.body
        return json.loads(self.body, parse_constant=_refuse_constant)


def _refuse_constant(name: str) -> None:
    raise AssertionError(f"{name} is not JSON, and no browser reads it")


@dataclass(frozen=True)
class Dashboard:
    port: int

    @property
    def address(self) -> str:
        return f"http://127.0.0.1:{self.port}/{TOKEN}/"

    def ask(
        self, path: str, body: Any = None, headers: Mapping[str, str] | None = None, token: str = f"/{TOKEN}"
    ) -> Answer:
        """GET, or POST of what is given as JSON; the path is sent as it is."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=30)
        sent = None if body is None else body if isinstance(body, bytes) else json.dumps(body).encode()
        try:
            connection.request("GET" if body is None else "POST", token + path, sent, dict(headers or {}))
            answer = connection.getresponse()
            return Answer(answer.status, {name.lower(): value for name, value in answer.getheaders()}, answer.read())
        finally:
            connection.close()

    def rows(self) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = self.ask("/api/runs").document["rows"]
        return found

    def details(self) -> dict[str, Any]:
        """Of the only run."""
        (row,) = self.rows()
        found: dict[str, Any] = self.ask(f"/api/run/{row['id']}").document
        return found


@contextmanager
def serving(root: Path) -> Iterator[Dashboard]:
    server = uvicorn.Server(
        uvicorn.Config(make_app(root, TOKEN), host="127.0.0.1", port=0, log_level="warning", ws="none")
    )
    thread = threading.Thread(target=server.run)
    thread.start()
    try:
        while not server.started:
            assert thread.is_alive()
            time.sleep(0.01)
        yield Dashboard(server.servers[0].sockets[0].getsockname()[1])
    finally:
        server.should_exit = True
        thread.join()

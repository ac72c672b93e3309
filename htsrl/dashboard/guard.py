"""Who may ask: only who knows the token, under a name of this machine, and a page that runs only its own code."""

from __future__ import annotations

import re
import secrets
from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any

Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]
App = Callable[[Scope, Receive, Send], Awaitable[None]]

LOCAL_HOST = re.compile(rb"(127\.0\.0\.1|localhost)(:\d{1,5})?", re.ASCII)
"""Other names lead here only where somebody made them do so (DNS rebinding)."""
HEADERS = {
    "content-security-policy": "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; "
    "media-src 'self'; connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
    "x-content-type-options": "nosniff",
    "referrer-policy": "no-referrer",
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
    "x-frame-options": "DENY",
    "cache-control": "no-store",
}


class Guard:
    """Lets requests below `/TOKEN/` through, without that, and answers all others with 403.

    The token is part of the path and no cookie: cookies of 127.0.0.1 would go to every other server on it as well.
    """

    def __init__(self, app: App, token: str) -> None:
        self._app = app
        self._token = token.encode()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            await self._app(scope, receive, send)
        elif scope["type"] == "http" and self._is_allowed(scope):
            rest = scope["path"][1 + len(self._token) :]
            await self._app({**scope, "path": rest, "raw_path": rest.encode()}, receive, _with_headers(send))
        elif scope["type"] == "http":
            await _refuse(_with_headers(send))
        # Anything else, a websocket, is closed by the server when nobody answers.

    def _is_allowed(self, scope: Scope) -> bool:
        hosts = [value for name, value in scope["headers"] if name == b"host"]
        if len(hosts) != 1 or not LOCAL_HOST.fullmatch(hosts[0]):
            return False
        token, slash, _ = scope["path"][1:].encode(errors="surrogatepass").partition(b"/")
        return bool(slash) and secrets.compare_digest(token, self._token)


async def _refuse(send: Send) -> None:
    body = b"403: the address must have the token that `htsrl dashboard` printed\n"
    headers = [(b"content-type", b"text/plain; charset=utf-8"), (b"content-length", str(len(body)).encode())]
    await send({"type": "http.response.start", "status": 403, "headers": headers})
    await send({"type": "http.response.body", "body": body})


def _with_headers(send: Send) -> Send:
    async def send_with_headers(message: MutableMapping[str, Any]) -> None:
        if message["type"] == "http.response.start":
            extra = [(name.encode(), value.encode()) for name, value in HEADERS.items()]
            message = {**message, "headers": [*message.get("headers", ()), *extra]}
        await send(message)

    return send_with_headers

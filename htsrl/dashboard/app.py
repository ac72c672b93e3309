"""The page's server as an application: its own files, and what runs hold as JSON. No request changes anything."""

from __future__ import annotations

import json
import os
import re
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse
from starlette.routing import Route

from htsrl.dashboard.catalog import Catalog
from htsrl.dashboard.details import VIDEOS, details, video_type, videos
from htsrl.dashboard.guard import App, Guard
from htsrl.dashboard.run import STALL_FILE, Run
from htsrl.dashboard.timeline_view import timeline_view
from htsrl.metrics.names import meaning_of
from htsrl.plain_files import parsed

STATIC = Path(__file__).parent / "static"
STATIC_TYPES = {
    ".html": "text/html; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".css": "text/css; charset=utf-8",
    ".svg": "image/svg+xml",
}
MAX_QUESTION_BYTES = 2**20
MAX_BUCKETS = 1024
PIECE_BYTES = 2**18


def make_app(root: Path, token: str) -> App:
    """Serves the runs below `root` to whoever has the token."""
    server = _Server(Catalog(root))
    routes = [
        Route("/", server.static),
        Route("/api/runs", server.runs),
        Route("/api/sweeps", server.sweeps),
        Route("/api/curves", server.curves, methods=["POST"]),
        Route("/api/metrics", server.metrics, methods=["POST"]),
        Route("/api/run/{run_id}", server.details),
        Route("/api/run/{run_id}/timeline", server.timeline),
        Route("/video/{run_id}/{number:int}", server.video),
        Route("/{name}", server.static),
    ]
    return Guard(Starlette(routes=routes, lifespan=server.lifespan), token)


class _Server:
    def __init__(self, catalog: Catalog) -> None:
        self._catalog = catalog

    @asynccontextmanager
    async def lifespan(self, _app: Any) -> AsyncIterator[None]:
        self._catalog.start()
        yield
        await run_in_threadpool(self._catalog.close)

    def static(self, request: Request) -> Response:
        """A file of the page by its name, which is looked up and never made into a path."""
        name = request.path_params.get("name", "index.html")
        if name not in os.listdir(STATIC) or (kind := STATIC_TYPES.get(Path(name).suffix)) is None:
            raise HTTPException(404)
        return Response((STATIC / name).read_bytes(), media_type=kind)

    def runs(self, request: Request) -> Response:
        since = request.query_params.get("since", "0")
        return _json(self._catalog.rows(int(since) if re.fullmatch(r"\d{1,12}", since, re.ASCII) else 0))

    def sweeps(self, request: Request) -> Response:
        return _json(self._catalog.sweeps())

    async def curves(self, request: Request) -> Response:
        """Of `{"metric": ..., "known": [[run, version], ...], "buckets": ...}`."""
        question = await _question(request)
        metric, buckets, known = question.get("metric"), question.get("buckets"), _pairs(question.get("known"))
        if not isinstance(metric, str) or type(buckets) is not int or known is None:
            raise HTTPException(400)
        max_buckets = min(max(buckets, 2), MAX_BUCKETS)
        return _json(await run_in_threadpool(self._catalog.curves, metric, known, max_buckets))

    async def metrics(self, request: Request) -> Response:
        """The names of the metrics of some runs, with what is known of each."""
        question = await _question(request)
        ids = question.get("runs")
        if not isinstance(ids, list) or not all(isinstance(run_id, str) for run_id in ids):
            raise HTTPException(400)
        names = await run_in_threadpool(self._catalog.metric_names, ids)
        return _json([{"name": name, "meaning": meaning_of(name)} for name in names])

    def details(self, request: Request) -> Response:
        return _json(details(self._run(request)))

    def timeline(self, request: Request) -> Response:
        run = self._run(request)
        stall = run.document(STALL_FILE) if run.row.get("waits") else None
        return _json({**timeline_view(run.document("timeline.json"), stall), "waits": run.row.get("waits")})

    def video(self, request: Request) -> Response:
        run, number = self._run(request), request.path_params["number"]
        names = videos(run)
        if number >= len(names) or (kind := video_type(names[number])) is None:
            raise HTTPException(404)
        try:
            descriptor = run.files.open(VIDEOS, names[number])
        except OSError:
            raise HTTPException(404) from None
        return _part_of_file(descriptor, request.headers.get("range"), kind)

    def _run(self, request: Request) -> Run:
        run = self._catalog.run(request.path_params["run_id"])
        if run is None:
            raise HTTPException(404)
        return run


def _part_of_file(descriptor: int, asked: str | None, kind: str) -> Response:
    """All of it or the range asked for, as players do; closes the descriptor."""
    num_bytes = os.fstat(descriptor).st_size
    begin, end, status = 0, num_bytes, 200
    if (found := re.fullmatch(r"bytes=(\d{1,18})-(\d{0,18})", asked or "", re.ASCII)) and int(found[1]) < num_bytes:
        begin, status = int(found[1]), 206
        end = min(num_bytes, int(found[2]) + 1) if found[2] else num_bytes
    headers = {"accept-ranges": "bytes", "content-length": str(max(0, end - begin))}
    if status == 206:
        headers["content-range"] = f"bytes {begin}-{end - 1}/{num_bytes}"
    return StreamingResponse(_pieces(descriptor, begin, end), status, headers, kind)


def _pieces(descriptor: int, begin: int, end: int) -> Iterator[bytes]:
    with open(descriptor, "rb") as file:
        while begin < end and (piece := os.pread(file.fileno(), min(PIECE_BYTES, end - begin), begin)):
            begin += len(piece)
            yield piece


async def _question(request: Request) -> dict[str, Any]:
    body = b""
    async for piece in request.stream():
        body += piece
        if len(body) > MAX_QUESTION_BYTES:
            raise HTTPException(413)
    try:
        question = parsed(body)
    except ValueError:
        raise HTTPException(400) from None
    if not isinstance(question, dict):
        raise HTTPException(400)
    return question


def _pairs(known: Any) -> list[tuple[str, str]] | None:
    """Runs with the versions that are known of them; None where it is anything else."""
    are_pairs = isinstance(known, list) and all(
        isinstance(pair, list) and len(pair) == 2 and all(isinstance(part, str) for part in pair) for pair in known
    )
    return [(run_id, version) for run_id, version in known] if are_pairs else None


def _json(document: Any) -> Response:
    return Response(json.dumps(document, allow_nan=False), media_type="application/json")

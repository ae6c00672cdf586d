"""The server: a page, and answers to what it asks, one at a time.

Nothing is loaded from the network: page, style and script lie beside this file, and a policy in
every answer forbids the browser anything else. A browser names what it was offered; it never
names a file.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.middleware.trustedhost import TrustedHostMiddleware
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from carso.errors import CarsoError
from carso.play.answers import answer
from carso.play.exhibition import Exhibition
from carso.play.visitor_requests import MOST_BYTES, REACH, attack_request
from carso.report import html, record_tables
from carso.report.certificates import certificate_title, is_certificate

PAGE = Path(__file__).parent / "page"
STYLE = Path(html.__file__).parent / "colours.css"
FILES = {
    "/": (PAGE / "index.html", "text/html"),
    "/play.css": (PAGE / "play.css", "text/css"),
    "/colours.css": (STYLE, "text/css"),
    "/play.js": (PAGE / "play.js", "text/javascript"),
    "/drawing.js": (PAGE / "drawing.js", "text/javascript"),
    "/charts.js": (PAGE / "charts.js", "text/javascript"),
}
POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src data:; connect-src 'self'; "
    "frame-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
RECORD_POLICY = (
    "default-src 'none'; img-src data:; style-src 'unsafe-inline'; frame-ancestors 'self'"
)
LONGEST_QUEUE = 200


class Refusal(CarsoError):
    """A request that is not answered, with the status that says so."""

    def __init__(self, status: int, words: str) -> None:
        super().__init__(words)
        self.status = status


@dataclass(slots=True)
class Queue:
    """One request after the other: a defence's noise belongs to one of them at a time."""

    worker: ThreadPoolExecutor = field(default_factory=lambda: ThreadPoolExecutor(max_workers=1))
    waiting: int = 0

    async def done(self, work: Callable[[], Any]) -> Any:
        if self.waiting >= LONGEST_QUEUE:
            raise Refusal(503, f"{self.waiting} requests are waiting already: try again later")
        self.waiting += 1
        try:
            return await asyncio.get_running_loop().run_in_executor(self.worker, work)
        finally:
            self.waiting -= 1


def application(
    shown: Exhibition, records: Sequence[dict[str, Any]] = (), hosts: Sequence[str] = ("localhost",)
) -> Starlette:
    """The page for these defences and records, answered to who calls it by one of `hosts`."""
    queue = Queue()
    pages: dict[int, str] = {}

    async def offered(request: Request) -> Response:
        titles = [record_title(record) for record in records]
        return JSONResponse({"defences": shown.shapes(), "reach": REACH, "records": titles})

    async def defence(request: Request) -> Response:
        name = request.query_params.get("name", "")
        return JSONResponse(await queue.done(lambda: shown[name].described()))

    async def images(request: Request) -> Response:
        name, start = request.query_params.get("defence", ""), number(request, "start")
        return JSONResponse(await queue.done(lambda: shown[name].pictures(start)))

    async def attack(request: Request) -> Response:
        asked = attack_request(await body(request), shown.names)
        return JSONResponse(await queue.done(lambda: answer(asked, shown)))

    async def record(request: Request) -> Response:
        which = number(request, "number")
        if which >= len(records):
            raise Refusal(404, f"there are {len(records)} records")
        if which not in pages:
            pages[which] = await queue.done(lambda: html.page([records[which]]))
        headers = {"Content-Security-Policy": RECORD_POLICY}
        return Response(pages[which], media_type="text/html", headers=headers)

    routes = [
        *(Route(path, file_answer(*file)) for path, file in FILES.items()),
        Route("/api/offered", offered),
        Route("/api/defence", defence),
        Route("/api/images", images),
        Route("/api/attack", attack, methods=["POST"]),
        Route("/record", record),
    ]
    return Starlette(
        routes=routes,
        exception_handlers={CarsoError: said},
        middleware=[Middleware(TrustedHostMiddleware, allowed_hosts=list(hosts))],
    )


def file_answer(path: Path, kind: str) -> Callable[[Request], Any]:
    """One file of the page."""
    headers = {
        "Content-Security-Policy": POLICY,
        "X-Content-Type-Options": "nosniff",
        "Cache-Control": "no-cache",
    }
    content = path.read_bytes()

    async def send(request: Request) -> Response:
        return Response(content, media_type=kind, headers=headers)

    return send


async def said(request: Request, error: Exception) -> Response:
    """A mistake in one line, as everywhere else."""
    status = error.status if isinstance(error, Refusal) else 400
    return JSONResponse({"error": str(error)}, status_code=status)


async def body(request: Request) -> Any:
    """What was sent, read no further than the limit. Only JSON, which a page of another site
    cannot send without asking first."""
    if request.headers.get("content-type", "").partition(";")[0] != "application/json":
        raise Refusal(415, "a request is application/json")
    content = b""
    async for part in request.stream():
        content += part
        if len(content) > MOST_BYTES:
            raise Refusal(413, f"a request has at most {MOST_BYTES} bytes, an image file less")
    try:
        return json.loads(content)
    except (ValueError, RecursionError):
        raise CarsoError("a request is JSON, and this is none") from None


def number(request: Request, name: str) -> int:
    text = request.query_params.get(name, "0")
    if not (text.isdecimal() and len(text) < 9):
        raise CarsoError(f"{name} must be a whole number from 0 on")
    return int(text)


def record_title(record: dict[str, Any]) -> str:
    if is_certificate(record):
        return certificate_title(record)
    return f"{record_tables.title(record)}: {record['suite']['name']}"

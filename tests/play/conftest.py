# ruff: noqa: E402
"""A page that is really served, on a free port of this machine."""

import json
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("starlette", reason="carso[play] is not installed")
uvicorn = pytest.importorskip("uvicorn", reason="carso[play] is not installed")

from carso.cli.play_command import LOCAL, bound
from carso.evaluation import record
from carso.play.exhibition import Exhibition, exhibition
from carso.play.server import application

RECORD = Path(__file__).parents[2] / "docs" / "results" / "fashion-adaptive.json"


@pytest.fixture(scope="session")
def shown() -> Exhibition:
    return exhibition(["fashion"])


@pytest.fixture(scope="session")
def address(shown: Exhibition) -> Iterator[str]:
    app = application(shown, [record.read(RECORD)], hosts=LOCAL)
    server = uvicorn.Server(uvicorn.Config(app, log_level="warning"))
    with bound("127.0.0.1", 0) as listening:
        thread = threading.Thread(target=server.run, kwargs={"sockets": [listening]})
        thread.start()
        while not server.started:
            time.sleep(0.01)
        yield f"http://127.0.0.1:{listening.getsockname()[1]}"
        server.should_exit = True
        thread.join(timeout=30)


Ask = Callable[..., tuple[int, Any]]


@pytest.fixture(scope="session")
def ask(address: str) -> Ask:
    """Status and answer of a request; JSON goes in, JSON or text comes out."""

    def asked(path: str, sent: Any = None, **headers: str) -> tuple[int, Any]:
        content = sent if isinstance(sent, bytes | None) else json.dumps(sent).encode()
        kind = {"Content-Type": "application/json"} if sent is not None else {}
        request = urllib.request.Request(
            address + path,
            data=content,
            headers={**kind, **{k.replace("_", "-"): v for k, v in headers.items()}},
        )
        try:
            with urllib.request.urlopen(request, timeout=300) as response:
                status, text = response.status, response.read().decode()
        except urllib.error.HTTPError as error:
            status, text = error.code, error.read().decode()
        try:
            return status, json.loads(text)
        except ValueError:
            return status, text

    return asked

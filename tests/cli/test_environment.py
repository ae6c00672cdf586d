"""Poor surroundings: no home, no name, an ASCII terminal, a full device, an unwritable cache. Each
works, or is one line."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

import carso
from carso.data import locations
from carso.data.locations import search_roots
from carso.storage import files

SOURCE = Path(carso.__file__).parents[1]


def started(
    *words: str,
    out: int | None = subprocess.PIPE,
    err: int | None = subprocess.PIPE,
    **changes: str | None,
) -> subprocess.CompletedProcess[bytes]:
    """A command in another process, with changes of its environment (None: not set)."""
    table = {**os.environ, "PYTHONPATH": str(SOURCE), **changes}
    environment = {name: value for name, value in table.items() if value is not None}
    command = [sys.executable, "-m", "carso", *words]
    return subprocess.run(
        command, env=environment, stdout=out, stderr=err, timeout=300, check=False
    )


def one_line(result: subprocess.CompletedProcess[bytes], *says: str) -> None:
    said = result.stderr.decode()
    assert result.returncode == 2, said
    assert said.startswith("carso: ")
    assert said.count("\n") == 1, said
    for word in says:
        assert word in said


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="the system has no /dev/full")
@pytest.mark.parametrize("words", [("scenarios",), ("--help",), ("--version",)])
def test_a_full_device_as_standard_output_is_one_line(words: tuple[str, ...]) -> None:
    with Path("/dev/full").open("wb") as full:
        one_line(started(*words, out=full.fileno()), "No space left on device")


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="the system has no /dev/full")
@pytest.mark.parametrize("words", [("scenarios",), ("train", "nosuch")])
def test_where_nothing_can_be_said_the_exit_code_says_it(words: tuple[str, ...]) -> None:
    with Path("/dev/full").open("wb") as full:
        assert started(*words, out=full.fileno(), err=full.fileno()).returncode == 2


def test_a_reader_that_has_seen_enough_is_no_mistake() -> None:
    reading, writing = os.pipe()
    os.close(reading)
    result = started("scenarios", out=writing)
    os.close(writing)
    assert result.stderr == b""
    assert result.returncode in (0, 1)


def test_an_ascii_terminal_gets_what_it_can_show() -> None:
    record = next((SOURCE / "docs" / "results").glob("*-adaptive.json"))
    ascii_only = {"PYTHONIOENCODING": "ascii", "LANG": "C", "LC_ALL": "C"}
    result = started("train", "no-such-scenário", **ascii_only)
    one_line(result, "no scenario")
    result = started("report", str(record), "--out", os.devnull + "/x", **ascii_only)
    one_line(result, "cannot write")


def test_without_a_home_data_is_looked_for_elsewhere(monkeypatch: pytest.MonkeyPatch) -> None:
    def homeless() -> Path:
        raise RuntimeError("Could not determine home directory.")

    monkeypatch.setattr(Path, "home", homeless)
    for name in ("XDG_CACHE_HOME", "CARSO_DATA"):
        monkeypatch.delenv(name, raising=False)
    assert search_roots() == [locations.SYSTEM_ROOT]
    with pytest.raises(files.NoCacheError, match="set XDG_CACHE_HOME"):
        files.cache()


NAMELESS = """
import os, sys
os.setgid(54321); os.setuid(54321)
sys.argv = ["carso", "doctor"]
from carso.cli.main import main
main()
"""


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can become a user without a name")
def test_a_user_without_a_name_or_a_home_is_served() -> None:
    probe = "import os; os.setgid(54321); os.setuid(54321); import typing, typer, carso"
    environment = {"PATH": os.environ["PATH"], "PYTHONPATH": str(SOURCE)}
    if subprocess.run(
        [sys.executable, "-c", probe], env=environment, capture_output=True
    ).returncode:
        pytest.skip("others may not read this Python")
    result = subprocess.run(
        [sys.executable, "-c", NAMELESS], env=environment, capture_output=True, text=True, cwd="/"
    )
    assert result.returncode == 0, result.stderr
    assert "fashion-embedded" in result.stdout


def test_an_unwritable_cache_is_done_without(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("no folder")
    result = started("doctor", XDG_CACHE_HOME=str(tmp_path / "file"))
    assert result.returncode == 0, result.stderr


def test_shell_completion_can_be_had() -> None:
    result = started("--show-completion", "bash", _TYPER_COMPLETE_TEST_DISABLE_SHELL_DETECTION="1")
    assert b"_CARSO_COMPLETE" in result.stdout or b"_COMPLETE=" in result.stdout, result.stderr

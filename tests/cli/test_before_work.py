"""A mistake is found before work, and before torch is imported, which takes longer."""

import sys
from pathlib import Path

import pytest
from support import fails

from carso.cli import before_work
from carso.cli.before_work import REGISTRIES, names_of
from carso.data import DATA_SETS
from carso.defence.aggregation import AGGREGATIONS
from carso.distributed.launchers import PRECISIONS
from carso.errors import CarsoError
from carso.evaluation.suites import SUITES
from carso.reproduction.paper_tables import TABLES
from carso.storage.files import check_writable
from carso.threats.norms import THREATS

NOWHERE = "/proc/none/x"


def test_the_names_of_a_registry_are_those_that_its_source_says() -> None:
    found = {
        "suite": SUITES,
        "aggregation": AGGREGATIONS,
        "norm": THREATS,
        "data set": DATA_SETS,
        "table": TABLES,
        "precision": PRECISIONS,
    }
    assert {kind: names_of(kind) for kind in REGISTRIES} == {k: tuple(v) for k, v in found.items()}


MISTAKES = [
    ("train nosuch", "no scenario 'nosuch'"),
    (f"train fashion --run {NOWHERE}", f"cannot write {NOWHERE}"),
    ("train fashion --on nosuch", "unknown data set 'nosuch'"),
    ("train fashion --data /none", "there is no folder /none"),
    ("train fashion --classifier /none.pt", "there is no file /none.pt"),
    ("train fashion --precision odd", "there is no precision 'odd'"),
    ("train fashion --preset odd", "no preset 'odd'"),
    ("harden --classifier /none.py", "there is no file /none.py"),
    (f"harden --classifier README.md --run {NOWHERE}", f"cannot write {NOWHERE}"),
    ("harden --classifier README.md --on nosuch", "unknown data set 'nosuch'"),
    ("evaluate nosuch", "no defence 'nosuch'"),
    ("evaluate fashion --suite nosuch", "there is no suite 'nosuch'"),
    ("evaluate fashion --norm L7", "there is no norm 'L7'"),
    ("evaluate fashion --aggregation odd", "there is no aggregation 'odd'"),
    ("evaluate fashion --on nosuch", "unknown data set 'nosuch'"),
    ("evaluate fashion --split odd", "the split is test or validation"),
    ("evaluate fashion --examples nosuch", "there is no file nosuch"),
    (f"evaluate fashion --out {NOWHERE}.json", f"cannot write {NOWHERE}.json"),
    (f"evaluate fashion --save-examples {NOWHERE}.safetensors", f"cannot write {NOWHERE}"),
    ("predict nosuch x.png", "no defence 'nosuch'"),
    ("predict fashion x.png", "there is no file x.png"),
    (f"predict fashion README.md --candidates {NOWHERE}", f"cannot write {NOWHERE}"),
    ("report none.json", "there is no file none.json"),
    (f"report README.md --out {NOWHERE}", f"cannot write {NOWHERE}"),
    ("reproduce odd", "there is no table 'odd'"),
    ("reproduce all --scale odd", "there is no scale 'odd'"),
    (f"reproduce all --out {NOWHERE}", f"cannot write {NOWHERE}"),
    ("import /none", "there is no folder /none"),
    ("layers /none.py", "there is no file /none.py"),
    (f"demo --out {NOWHERE}", f"cannot write {NOWHERE}"),
    ("doctor --data /none", "there is no folder /none"),
]


@pytest.mark.skipif(not Path("/proc/self").exists(), reason="the system has no /proc")
@pytest.mark.parametrize(("words", "says"), MISTAKES, ids=[words for words, _ in MISTAKES])
def test_a_mistake_is_found_without_torch(
    words: str, says: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(Path(__file__).parents[2])
    hidden = [name for name in sys.modules if name.partition(".")[0] in ("torch", "numpy")]
    for name in hidden:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "torch", None)  # an import of it would be an ImportError
    fails(capsys, *words.split(), says=[says])


def test_without_its_source_a_registry_is_asked_later(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(before_work, "PACKAGE", Path("/none"))
    assert names_of("suite") == ()
    before_work.check_name("suite", "odd")


def test_a_place_is_written_to_before_it_is_believed(tmp_path: Path) -> None:
    check_writable(tmp_path / "new" / "deep" / "file.json")
    check_writable(tmp_path / "new" / "deep", folder=True)
    assert list(tmp_path.iterdir()) == []
    (tmp_path / "file").touch()
    for place, folder in (("file", True), ("file/x", True), ("file/x.json", False), ("", False)):
        with pytest.raises(CarsoError, match="cannot write"):
            check_writable(tmp_path / place, folder=folder)

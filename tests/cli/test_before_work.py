"""A mistake is found before work, and before torch is imported, which takes longer."""

import sys
from pathlib import Path

import pytest
import typer
from support import fails

import carso
from carso import arguments
from carso.cli import before_work
from carso.cli.before_work import REGISTRIES, names_of
from carso.cli.main import app
from carso.data import DATA_SETS
from carso.defence.aggregation import AGGREGATIONS
from carso.distributed.launchers import PRECISIONS
from carso.errors import CarsoError
from carso.evaluation.attack_names import SINGLE_NAMES, SUITE_NAMES
from carso.evaluation.planned_attacks import SINGLE
from carso.evaluation.suites import SUITES
from carso.export.export_files import SUFFIXES
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
        "format": SUFFIXES,
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
    ("layers /tmp", "/tmp is a folder, and a file is meant"),
    (f"demo --out {NOWHERE}", f"cannot write {NOWHERE}"),
    ("doctor --data /none", "there is no folder /none"),
    ("evaluate fashion --attacks odd", "suite quick has no attack 'odd'"),
    ("evaluate fashion --bare --attacks margin@score", "suite standard has no attack"),
    (
        "evaluate fashion --suite adaptive --attacks square,odd",
        "suite adaptive has no attack 'odd'",
    ),
    ("evaluate fashion --backward none.py", "--backward: there is no file none.py"),
    ("evaluate fashion --classifier none.py", "--classifier: there is no file none.py"),
    ("evaluate fashion --threads 100000", "--threads 100000 is too many"),
    ("certify nosuch", "no defence 'nosuch'"),
    ("certify fashion --split odd", "the split is test or validation"),
    ("certify fashion --on nosuch", "unknown data set 'nosuch'"),
    ("certify fashion --data /none", "there is no folder /none"),
    ("certify fashion --classifier none.py", "there is no file none.py"),
    (f"certify fashion --out {NOWHERE}.json", f"cannot write {NOWHERE}.json"),
    ("export nosuch", "no defence 'nosuch'"),
    ("export fashion --to odd", "there is no format 'odd'; there are onnx, torch"),
    ("export fashion --classifier none.py", "there is no file none.py"),
    (f"export fashion --out {NOWHERE}.onnx", f"cannot write {NOWHERE}.onnx"),
    ("play nosuch", "no defence 'nosuch'"),
    ("play --record none.json", "there is no file none.json"),
    ("play --classifier none.py", "there is no file none.py"),
    ("play --host 192.0.2.1 --port 0", "cannot listen on 192.0.2.1"),
    ("harden --classifier README.md --norm L7", "there is no norm 'L7'"),
    ("harden --classifier README.md --start nosuch", "no defence 'nosuch'"),
    ("harden --classifier README.md --start none.safetensors", "there is no file none"),
    ("harden --classifier README.md --sigma 0", "--sigma is a number above 0, got 0"),
    ("train fashion-certified --sigma nan", "--sigma is a number above 0, got nan"),
    ("harden --classifier README.md --against odd", "--against is attacks or noise"),
    ("train fashion --sigma 0.5 --on nosuch", "unknown data set 'nosuch'"),
    ("reproduce all --records README.md", "cannot write README.md: it is no folder"),
    ("demo --threads 100000", "--threads 100000 is too many"),
    *(
        (f"{words} --device {device}", f"--device is cpu, cuda, cuda:N or auto, got '{device}'")
        for words in (
            "train fashion",
            "harden --classifier README.md",
            "predict fashion README.md",
            "evaluate fashion",
            "certify fashion",
            "reproduce all",
        )
        for device in ("abacus", "cpu:x")
    ),
]


def test_the_names_of_attacks_are_those_of_the_suites() -> None:
    assert tuple(SINGLE) == SINGLE_NAMES
    for samples in (1, 8):
        found = {
            name: tuple(planned.name for planned in make(0, samples).attacks)
            for name, make in SUITES.items()
        }
        assert found == SUITE_NAMES


def options_of_paths() -> list[tuple[str, str]]:
    """Every command, with each of its options and arguments that is a path."""
    commands = typer.main.get_command(app).commands  # type: ignore[attr-defined]
    return [
        (name, one.opts[-1] if one.opts[-1].startswith("--") else "")
        for name, command in commands.items()
        for one in command.params
        if "Path" in str(one.type_descriptor.annotation)
    ]


@pytest.mark.parametrize(("command", "option"), options_of_paths())
@pytest.mark.parametrize("empty", ["", " "])
def test_an_empty_path_is_refused(
    command: str, option: str, empty: str, capsys: pytest.CaptureFixture[str]
) -> None:
    words = [command, option, empty] if option else [command, empty]
    fails(capsys, *words, says=[f"what follows {words[-2]} on the command line is empty"])
    if option:
        fails(capsys, command, f"{option}=", says=[f"{option}= has no value"])


def test_an_empty_path_is_refused_in_python() -> None:
    for empty in ("", " "):
        with pytest.raises(CarsoError, match="out is an empty path"):
            arguments.place("out", empty)
        with pytest.raises(CarsoError, match=r"empty path|no defence"):
            carso.load(empty)


def test_a_known_classifier_is_no_missing_file() -> None:
    before_work.check_classifier(Path("autoattack-resnet18"))
    with pytest.raises(CarsoError, match="there is no file odd"):
        before_work.check_classifier(Path("odd"))


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

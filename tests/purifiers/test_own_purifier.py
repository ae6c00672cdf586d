"""A purifier of the user's own, by its name in a scenario file: trained, hardened, saved, loaded,
evaluated, by the protocol alone."""

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from support import fails, run, write_photos

import carso
from carso.defence.around import purifier_around
from carso.errors import CarsoError
from carso.purifiers import kinds
from carso.randomness import Share, generator, shared
from carso.scenario import parser
from carso.scenario.tables import as_table
from carso.storage import files

EXAMPLES = Path(__file__).parents[2] / "docs" / "examples"


@pytest.fixture(autouse=True)
def path_as_it_was(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(sys, "path", list(sys.path))
    yield
    sys.modules.pop("small_purifier", None)


@pytest.fixture
def place(tmp_path: Path) -> Path:
    """The example, with fewer images."""
    write_photos(tmp_path / "photos")
    text = (EXAMPLES / "small_purifier.toml").read_text()
    small = text.replace('"fashion-embedded"', f'"{tmp_path / "photos"}"')
    small = small.replace("batch_size = 64", "batch_size = 8")
    small = small.replace("samples = 2", "samples = 2\nvalidation_images = 4")
    (tmp_path / "small_purifier.toml").write_text(small)
    (tmp_path / "small_purifier.py").write_text((EXAMPLES / "small_purifier.py").read_text())
    return tmp_path


def test_it_is_trained_hardened_saved_loaded_and_evaluated(
    place: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = place / "run"
    code, _, err = run(capsys, "train", place / "small_purifier.toml", "--run", folder)
    assert not code, err
    history = files.read_json(folder / "purifier.json")["history"]
    assert history[0]["reconstruction"] > 0
    assert "kl" not in history[0]
    hardened = carso.load(folder)
    assert type(hardened.purifier).__name__ == "SmallPurifier"
    assert hardened.scenario.purifier.arguments() == {"width": 16}
    trained = carso.load(folder, hardened=False)
    images = torch.rand(3, 1, 28, 28)
    assert not torch.equal(hardened(images), trained(images))
    again = carso.load(folder)
    hardened.seed(0)
    assert torch.equal(again(images), hardened(images))
    words = ["evaluate", str(folder), "--suite", "quick", "--images", "2"]
    words += ["--out", str(place / "record.json")]
    code, _, err = run(capsys, *words)
    assert not code, err


def test_the_example_fits_a_page() -> None:
    assert len((EXAMPLES / "small_purifier.py").read_text().splitlines()) <= 60


def test_it_draws_by_the_rule_so_that_processes_draw_what_one_would(
    place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(place)
    build = kinds.build
    purifier = build(
        "small_purifier:SmallPurifier", (1, 8, 8), layers=["a"], shapes=[(3, 4, 4)], width=4
    )
    activations = [torch.rand(5, 3, 4, 4)]
    whole = purifier.sample(activations, 2, generator(0))
    for part in (slice(0, 5, 2), slice(1, 5, 2)):
        with shared(Share(part, 5)):
            own = purifier.sample([activations[0][part]], 2, generator(0))
        torch.testing.assert_close(own, whole[:, part])


def test_a_module_or_a_class_that_is_not_there_is_one_clear_line(
    place: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = place / "small_purifier.toml"
    text = path.read_text()
    path.write_text(text.replace("small_purifier:Small", "no_such_module:Small"))
    fails(capsys, "train", path, "--run", place / "run", says=["no_such_module.py", "PYTHONPATH"])
    path.write_text(text.replace(":SmallPurifier", ":LargePurifier"))
    fails(capsys, "train", path, "--run", place / "run", says=["has no LargePurifier"])
    path.write_text(text.replace("width = 16", "breadth = 16"))
    fails(capsys, "train", path, "--run", place / "run", says=["breadth"])


def test_a_kind_that_is_not_known_is_refused_where_it_stands(place: Path) -> None:
    path = place / "small_purifier.toml"
    path.write_text(path.read_text().replace("small_purifier:SmallPurifier", "gan"))
    with pytest.raises(CarsoError, match=r"line \d+: kind must be one of 'vae', 'unet', 'flow' or"):
        parser.read(str(path))


def test_settings_of_a_kind_are_checked_as_any_others() -> None:
    text = (EXAMPLES / "small_purifier.toml").read_text()
    unet = text.replace('"small_purifier:SmallPurifier"\nwidth = 16', '"unet"\n{}')

    def read(*lines: str) -> parser.Scenario:
        return parser.parse(unet.format("\n".join(lines)), source="own.toml")

    assert read("noise = 2").purifier.arguments()["noise"] == 2
    with pytest.raises(CarsoError, match=r"unknown key 'wdths' in purifier; did you mean 'widths'"):
        read("wdths = [4, 8]")
    with pytest.raises(CarsoError, match="blocks must be a number for each of the 2 widths"):
        read("widths = [4, 8]")
    with pytest.raises(CarsoError, match="unknown key 'latent'"):
        read("latent = 3")


@pytest.mark.parametrize("name", ["fashion", "fashion-retrofit-unet"])
def test_a_scenario_survives_being_stored(name: str) -> None:
    scenario = parser.read(name)
    table = as_table(scenario)
    assert parser.from_table(table, source="a record") == scenario
    if name == "fashion":  # as it was stored before there were kinds
        del table["purifier"]["kind"]
        assert parser.from_table(table, source="a record") == scenario


def test_every_kind_that_ships_is_built_from_its_defaults() -> None:
    network = torch.nn.Sequential(torch.nn.Conv2d(1, 3, 3), torch.nn.Flatten())
    for kind in kinds.KINDS:
        purifier = purifier_around(network, (1, 8, 8), layers=["0"], kind=kind)
        assert purifier.layers == ("0",)

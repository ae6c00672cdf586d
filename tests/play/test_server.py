"""The page's server: right answers, also to many at once, and one line for what does not fit."""

import base64
import io
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from support import fails

import carso
from carso import data
from carso.defence import shipped
from carso.play.answers import answer
from carso.play.exhibition import Exhibition, exhibition, shown_names
from carso.play.visitor_requests import MOST_BYTES, attack_request

Ask = Any

SHORT: dict[str, Any] = {"defence": "fashion", "steps": 2, "norm": "Linf", "eps": 0.1}


def png(pixels: np.ndarray[Any, Any]) -> str:
    buffer = io.BytesIO()
    Image.fromarray(pixels).save(buffer, format="PNG")
    return base64.b64encode(buffer.getvalue()).decode()


def pixels_of(picture: str) -> np.ndarray[Any, Any]:
    return np.array(Image.open(io.BytesIO(base64.b64decode(picture))))


def test_an_attack_stays_within_eps_and_moves_the_answer(ask: Ask) -> None:
    status, found = ask("/api/attack", {**SHORT, "image": 0, "steps": 8, "aim": "classifier"})
    assert status == 200
    clean, attacked = (pixels_of(found["pictures"][k]).astype(int) for k in ("clean", "attacked"))
    assert 0 < np.abs(attacked - clean).max() <= 26  # 0.1 of 255, rounded
    assert 0 < found["distance"] <= 0.1 + 1e-6
    assert len(found["steps"]) == 8
    assert found["steps"][-1]["margin"] < found["steps"][0]["margin"]
    (party,) = found["parties"]
    for state in ("clean", "attacked"):
        for who in ("classifier", "defence"):
            assert sum(party[state][who]) == pytest.approx(1, abs=1e-4)
        assert len(party[state]["candidates"]) == 8
    assert found["pictures"]["magnified"] == pytest.approx(1 / (2 * found["distance"]))
    assert found["truth"] in found["verdict"]
    assert found["verdict"].endswith(".")


def test_the_answer_is_what_the_defence_itself_says(ask: Ask) -> None:
    _, found = ask("/api/attack", {**SHORT, "image": 3, "seed": 5})
    defence = carso.load("fashion")
    test = data.load("fashion-embedded").test
    image, label = test.balanced(len(test)).batch(slice(3, 4))
    defence.seed(6)
    seen = found["parties"][0]["clean"]
    assert found["truth"] == defence.classes[int(label)]
    torch.testing.assert_close(
        torch.tensor(seen["defence"]), defence.predict_proba(image)[0], atol=1e-5, rtol=1e-4
    )
    defence.seed(6)
    each = defence.classifier(defence.purify(image)[:, 0]).softmax(dim=1)  # of each candidate
    for one, shares in zip(seen["candidates"], each, strict=True):
        assert one["label"] == defence.classes[int(shares.argmax())]
        assert one["share"] == pytest.approx(float(shares.max()), abs=1e-4)


def test_fifty_visitors_at_once_are_all_answered_right(ask: Ask, shown: Exhibition) -> None:
    asked = [{**SHORT, "image": n % 7, "seed": n, "steps": 1} for n in range(50)]
    with ThreadPoolExecutor(50) as visitors:
        answers = list(visitors.map(lambda sent: ask("/api/attack", sent), asked))
    assert [status for status, _ in answers] == [200] * 50
    for sent, (_, found) in zip(asked, answers, strict=True):
        alone = answer(attack_request(sent, shown.names), shown)
        del alone["seconds"], found["seconds"]
        assert found == alone


def test_two_defences_see_the_same_attacked_image(ask: Ask) -> None:
    _, found = ask("/api/attack", {**SHORT, "image": 1, "against": "fashion-hardened"})
    names = [party["name"] for party in found["parties"]]
    assert names == ["fashion", "fashion-hardened"]
    assert "attacked through the whole of fashion (Linf, eps = 0.1, 2 steps)" in found["verdict"]
    for party in found["parties"]:
        for who, name in (("defence", ""), ("classifier", "the classifier of ")):
            shares = party["attacked"][who]
            label = party["classes"][shares.index(max(shares))]
            assert f", {name}{party['name']} " in f", {found['verdict'].partition(': ')[2]}"
            assert label in found["verdict"]
    _, alone = ask("/api/attack", {**SHORT, "image": 1})
    assert alone["pictures"] == found["pictures"]


def test_an_upload_and_a_drawing_are_taken_as_they_are(ask: Ask) -> None:
    pixels = data.load("fashion-embedded").test.images[0, 0].numpy()
    _, uploaded = ask("/api/attack", {**SHORT, "picture": png(pixels), "label": 4})
    drawn = base64.b64encode(pixels.tobytes()).decode()
    _, drawing = ask("/api/attack", {**SHORT, "drawing": drawn, "label": 4})
    assert (pixels_of(uploaded["pictures"]["clean"]) == pixels).all()
    del uploaded["seconds"], drawing["seconds"]
    assert uploaded == drawing
    assert uploaded["truth"] == "Coat"


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"picture": png(np.zeros((28, 30), np.uint8))}, "28x28 pixels and 1 channel, got 30x28"),
        ({"picture": png(np.zeros((28, 28, 3), np.uint8))}, "got 28x28 pixels and 3 channels"),
        ({"picture": png(np.zeros((28, 28), np.uint16))}, "pixels must have 8 bits a channel"),
        ({"picture": base64.b64encode(b"nonsense").decode()}, "no image file"),
        ({"picture": "*"}, "base64"),
        ({"drawing": "AAAA"}, "784|28x28 pixels, got 3 bytes"),
        ({"eps": 7}, "eps must be a number from 0.001 to 1"),
        ({"eps": "0.1"}, "eps must be a number"),
        ({"steps": 1000}, "steps must be a whole number from 1 to 50"),
        ({"steps": 0}, "steps must be a whole number from 1 to 50"),
        ({"defence": "../../etc/passwd"}, "defence must be one of"),
        ({"defence": "/tmp"}, "defence must be one of"),
        ({"against": "cifar10-small-hardened"}, "pick two that agree"),
        ({"image": 10**6}, "there are test images 0 to"),
        ({"image": -1}, "whole number"),
        ({"aim": "everything"}, "aim must be one of"),
    ],
)
def test_what_does_not_fit_is_one_line(ask: Ask, change: dict[str, Any], says: str) -> None:
    status, found = ask("/api/attack", {**SHORT, "image": 0, **change})
    assert status == 400
    assert any(part in found["error"] for part in says.split("|")), found
    assert "\n" not in found["error"]


def test_sizes_hosts_kinds_and_paths_are_limited(ask: Ask) -> None:
    assert ask("/api/attack", b"x" * (MOST_BYTES + 1))[0] == 413
    assert ask("/api/attack", b"no json")[0] == 400
    assert ask("/api/attack", {**SHORT}, Content_Type="text/plain")[0] == 415
    assert ask("/", Host="evil.example")[0] == 400
    for path in ("/../pyproject.toml", "/%2e%2e/server.py", "/record?number=../x"):
        assert ask(path)[0] in (400, 404)
    assert ask("/record?number=7")[0] == 404


def test_a_record_has_its_page(ask: Ask) -> None:
    status, text = ask("/record?number=0")
    assert status == 200
    assert "Robustness report" in text


def test_without_the_extra_it_says_how_to_get_it(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "uvicorn", None)
    fails(capsys, "play", says=["pip install 'carso[play]'"])


def test_mistakes_at_the_start_are_one_line(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, address: str
) -> None:
    fails(capsys, "play", tmp_path, says=["no defence"])
    taken = address.rsplit(":", 1)[1]
    fails(capsys, "play", "--port", taken, "--record", "none.json", says=["none.json"])
    fails(capsys, "play", "--port", taken, says=["cannot listen", "--port 0"])


def test_a_host_that_is_none_is_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    fails(capsys, "play", "--host", "::1", "--port", 0, says=["::1", "--host 127.0.0.1"])


def test_nothing_is_magnified_where_nothing_was_attacked(ask: Ask) -> None:
    _, seen = ask("/api/attack", {**SHORT, "image": 0, "aim": "classifier"})
    other = (seen["parties"][0]["classes"].index(seen["truth"]) + 1) % 10
    drawn = base64.b64encode(pixels_of(seen["pictures"]["clean"]).tobytes()).decode()
    asked = {**SHORT, "drawing": drawn, "label": other, "aim": "classifier"}  # mistaken before
    _, found = ask("/api/attack", asked)
    assert found["verdict"].partition(": ")[0].endswith(", not attacked")
    assert found["pictures"]["clean"] == found["pictures"]["attacked"]
    assert found["pictures"]["magnified"] is None
    assert found["steps"] == []


def test_a_run_does_not_take_the_name_of_another(tmp_path: Path) -> None:
    carso.load("fashion").save_pretrained(tmp_path / "fashion")
    found = exhibition([str(tmp_path / "fashion")])
    assert found.names[:2] == [str(tmp_path / "fashion"), "fashion"]
    assert found.folders["fashion"] == shipped.SHIPPED / "fashion"
    assert shown_names(["x/mine", "fashion"]) == {"mine": "x/mine", "fashion": "fashion"}
    assert list(shown_names(["x/mine", "y/mine"])) == ["x/mine", "y/mine"]


def test_the_page_begins_with_a_defence_whose_images_ship() -> None:
    assert exhibition([]).names[0] == "fashion"


def test_a_shipped_defence_takes_the_classifier_that_it_lacks() -> None:
    with pytest.raises(carso.CarsoError, match="was given has other weights"):
        exhibition(["convex-anchored-unet"], torch.nn.Linear(2, 2))
    with pytest.raises(carso.CarsoError, match="--classifier FILE"):
        exhibition(["convex-anchored-unet"])

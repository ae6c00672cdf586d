"""What the commands do inside that take a finished defence, on the pretended device."""

from __future__ import annotations

import base64
import tempfile
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import torch
from device_images import batch, everything_is_on, few
from PIL import Image
from torch import Tensor

import carso
from carso import demo
from carso.attacks import autoattack
from carso.cli.doctor_command import found_accelerator
from carso.defence.predict_files import predict_files
from carso.evaluation.planned_attacks import Effort, Suite, margin
from carso.export.export_files import export_defence
from carso.export.export_graph import ExportGraph
from carso.play.answers import answer
from carso.play.exhibition import exhibition
from carso.play.visitor_requests import attack_request
from carso.randomness import generator, given_noise
from carso.report.figures import strip
from carso.threats.linf import Linf

DRAWING = base64.b64encode(bytes(range(196)) * 4).decode()
"""28x28 pixels."""


def accelerator_found(device: torch.device) -> None:
    """`carso doctor --self-test` takes whatever accelerator there is."""
    assert torch.device(found_accelerator()).type == device.type


def predict(device: torch.device) -> None:
    """`carso predict`, and that what it says is what the CPU says."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "image.png"
        Image.fromarray(few().test.images[0, 0].numpy()).save(path)
        for name in ("fashion", "fashion-hardened", "fashion-retrofit-unet"):
            there, here = (
                predict_files(
                    name, [path], device=str(place), options={},
                    draw=lambda file, image, found: strip(image, found, Path(folder) / file),
                )[0]
                for place in (device, "cpu")
            )  # fmt: skip
            assert there["label"] == here["label"], (there, here)
            assert abs(there["probability"] - here["probability"]) < 1e-4, (there, here)


class ShortEnsemble(autoattack.Library):  # type: ignore[misc]
    """AutoAttack with every part of it, each shorter; `ended` counts how often the last of its
    attacks has come to an end."""

    ended = 0

    def __init__(self, *words: Any, **settings: Any) -> None:
        super().__init__(*words, **settings)
        self.apgd.n_iter = self.apgd_targeted.n_iter = self.fab.n_iter = 2
        self.square.n_queries = 2
        last = self.square if self.version == "standard" else self.apgd
        perturb = last.perturb

        def counted(*images: Tensor) -> Tensor:
            found: Tensor = perturb(*images)
            ShortEnsemble.ended += 1
            return found

        last.perturb = counted


def whole_autoattack(device: torch.device) -> None:
    """Both versions, with a radius in which nothing is fooled, so that each attack has its turn."""
    defence = carso.load("fashion", device=device)
    images, labels = (part[:1].to(device) for part in batch())
    autoattack.Library = ShortEnsemble
    for version, ended in (("standard", 1), ("rand", 3)):  # rand: APGD twice
        found = autoattack.AutoAttack(version=version)(
            defence.classifier, images, labels, threat=Linf(eps=1e-4), generator=generator(0)
        )
        assert ShortEnsemble.ended == ended
        assert torch.equal(found.cpu(), images.cpu())


def played(device: torch.device) -> None:
    """`carso play`: the attack, its steps, its pictures and bars are those of the CPU."""
    there, here = exhibition(["fashion"], device=device), exhibition(["fashion"])
    everything_is_on(device, there["fashion"].defence)
    asked: list[dict[str, Any]] = [
        {"image": 3, "against": "fashion-hardened"},
        {"drawing": DRAWING, "aim": "classifier"},
        {"drawing": DRAWING, "label": 3, "aim": "classifier", "norm": "L2", "eps": 1},
    ]
    for one in asked:
        one = {"defence": "fashion", "steps": 2, **one}
        found, wanted = (answer(attack_request(one, shown.names), shown) for shown in (there, here))
        assert found["verdict"] == wanted["verdict"]
        assert len(found["steps"]) == len(wanted["steps"])
        for mine, other in zip(found["parties"], wanted["parties"], strict=True):
            for who in ("classifier", "defence"):
                shares = [torch.tensor(party["attacked"][who]) for party in (mine, other)]
                torch.testing.assert_close(*shares, atol=1e-3, rtol=1e-3)


def exported(device: torch.device) -> None:
    """`carso export`: the graph answers on the device as the defence does on the CPU, and so does
    what is written of a defence on the device."""
    there, here = (carso.load("fashion-hardened", device=place) for place in (device, "cpu"))
    images, graph = batch()[0][:2], ExportGraph(there, there.trained_shape)
    noise = torch.randn(2, graph.noise_size(), generator=torch.Generator().manual_seed(0))
    with given_noise(noise), torch.no_grad():
        wanted = here(images)
    with torch.no_grad():
        scores, labels = graph(images.to(device), noise.to(device))
    assert scores.device.type == labels.device.type == device.type
    torch.testing.assert_close(scores.cpu(), wanted, atol=1e-4, rtol=1e-3)
    with tempfile.TemporaryDirectory() as folder:
        export_defence(there, "torch", Path(folder) / "it.pt2")
        found, _ = torch.export.load(Path(folder) / "it.pt2").module()(images, noise)
    torch.testing.assert_close(found, wanted, atol=1e-4, rtol=1e-3)
    everything_is_on(device, there)


def saved(device: torch.device) -> None:
    """`save_pretrained` of a defence on the device: what is loaded answers the same."""
    there = carso.load("fashion-hardened", device=device)
    with tempfile.TemporaryDirectory() as folder:
        found = carso.load(there.save_pretrained(Path(folder) / "saved"), device=device)
    there.seed(0)
    images = batch()[0].to(device)
    assert torch.equal(found(images).cpu(), there(images).cpu())


def demonstrated(device: torch.device) -> None:
    """`carso demo`: some of its scenes, with few steps; its certificates, picture and page."""
    kept = ("classifier", "published", "retrofit")
    demo.SCENES = tuple(one for one in demo.SCENES if one.record in kept)
    demo.EFFORT = Effort(images=1, steps=1, queries=1, eps=(0.0,))
    demo.short_attacks = lambda seed: Suite(
        name="short", attacks=(margin(1, 1, None),), effort=demo.EFFORT, independent=True
    )
    demo.CERTIFIED_IMAGES, demo.CERTIFIED_DRAWS = 1, 12
    demo.certify = partial(demo.certify, selection=4, batch=4)
    demo.evaluate = partial(demo.evaluate, samples=1, draws=1)
    with tempfile.TemporaryDirectory() as folder:
        found = demo.run(Path(folder), count=1, device=device)
        assert len(found.records) == len(kept)
        assert found.page.is_file()
        assert found.picture.is_file()


DEPLOYED_STEPS: dict[str, Callable[[torch.device], None]] = {
    "doctor: accelerator": accelerator_found,
    "predict": predict,
    "AutoAttack": whole_autoattack,
    "play": played,
    "export": exported,
    "save": saved,
    "demo": demonstrated,
}

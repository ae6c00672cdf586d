"""A wrong call of the public functions gives one line that says what was wrong, and nothing runs.

Each row is a call and words that its message must contain. `TYPE` rows are mistakes for which
Python would raise a TypeError: so does carso.
"""

# mypy: ignore-errors

from collections.abc import Callable
from pathlib import Path
from types import FunctionType, SimpleNamespace
from typing import Any

import numpy
import pytest
import torch
from torch import Tensor, nn

import carso
from carso import data
from carso.errors import CarsoError, CarsoTypeError

EPS = 0.1


class Grey:
    """The smallest purifier: every candidate is grey."""

    layers, image_shape = ("0",), None

    def __init__(self, change: Callable[[Tensor], Any] = lambda candidates: candidates) -> None:
        self.change = change

    def sample(self, activations: list[Tensor], samples: int, generator: torch.Generator) -> Tensor:
        return self.change(torch.full((samples, len(activations[0]), 1, 8, 8), 0.5))


def network() -> nn.Sequential:
    return nn.Sequential(nn.Conv2d(1, 2, 3), nn.ReLU(), nn.Flatten(), nn.Linear(72, 4))


class Compiled(nn.Module):
    """A part of it is compiled, which hides the layers in that part."""

    def __init__(self) -> None:
        super().__init__()
        self.body = torch.compile(network(), backend="eager")

    def forward(self, images: Tensor) -> Tensor:
        return self.body(images)


class Picky(nn.Module):
    def forward(self, images: Tensor) -> Tensor:
        raise KeyError("no such thing")


class Flat(nn.Module):
    def forward(self, images: Tensor) -> Tensor:
        return images.mean(dim=(1, 2, 3))


@pytest.fixture(scope="module")
def it() -> SimpleNamespace:
    """What right calls are made of."""
    source = torch.Generator().manual_seed(0)
    images = torch.rand(3, 1, 8, 8, generator=source)
    pixels = torch.randint(0, 256, (80, 1, 8, 8), generator=source, dtype=torch.uint8)
    return SimpleNamespace(
        net=network(),
        images=images,
        labels=torch.tensor([0, 1, 2]),
        pixels=pixels,
        data=data.from_tensors(pixels, torch.arange(80) % 4),
        defence=carso.Carso(network(), Grey()),
    )


def made(purifier: Any, **settings: Any) -> carso.Carso:
    return carso.Carso(network(), purifier, **settings)


def load(*args: Any, **settings: Any) -> Callable[[Any], Any]:
    return lambda it: carso.load(*(args or ("fashion",)), **settings)


def build(**settings: Any) -> Callable[[Any], Any]:
    return lambda it: carso.Carso(it.net, Grey(), **settings)


def judge(**given: Any) -> Callable[[Any], Any]:
    def call(it: Any) -> Any:
        asked = {"model": it.net, "images": it.images, "labels": it.labels, "eps": EPS} | given
        made = {k: v(it) if isinstance(v, FunctionType) else v for k, v in asked.items()}
        return carso.evaluate(**made)

    return call


def fit(**given: Any) -> Callable[[Any], Any]:
    return lambda it: carso.fit(
        **{"classifier": it.net, "data": it.data, "layers": ["0"], "eps": EPS, "epochs": 1} | given
    )


def harden(**given: Any) -> Callable[[Any], Any]:
    return lambda it: carso.harden(
        **{"classifier": it.net, "data": it.data, "layers": ["0"], "eps": EPS} | given
    )


def certify(**given: Any) -> Callable[[Any], Any]:
    def call(it: Any) -> Any:
        asked = {"model": it.net, "images": it.images, "labels": it.labels, "sigma": 0.1} | given
        return carso.certify(**asked)

    return call


def lazy() -> nn.Module:
    return nn.Sequential(nn.LazyConv2d(2, 3), nn.Flatten(), nn.LazyLinear(4))


def meta() -> nn.Module:
    with torch.device("meta"):
        return network()


def scripted() -> nn.Module:
    return torch.jit.script(network())


VALUE: list[tuple[str, Callable[[Any], Any], str]] = [
    ("load nothing", load(""), "name is an empty path"),
    ("load unknown", load("fasion"), "no defence 'fasion'"),
    ("load samples 0", load(samples=0), "samples must be at least 1"),
    ("load aggregation", load(aggregation="mean"), "there is no aggregation 'mean'"),
    ("load anchor", load(anchor=-1), "anchor"),
    ("load max_batch 0", load(max_batch=0), "max_batch must be at least 1"),
    ("load device", load(device="cuda:77"), "device"),
    ("load odd device", load(device="gpu"), "device"),
    ("load meta", load(device="meta"), "holds no numbers"),
    ("load hardened", load(hardened=True), "hardening.safetensors"),
    ("load_classifier", lambda it: carso.load_classifier("nothing"), "no classifier 'nothing'"),
    ("load_classifier py", lambda it: carso.load_classifier("no.py"), "no.py"),
    ("Carso samples 0", build(samples=0), "samples must be at least 1"),
    ("Carso samples negative", build(samples=-3), "samples must be at least 1"),
    ("Carso max_batch", build(max_batch=0), "max_batch must be at least 1"),
    ("Carso anchor", build(anchor=-0.5), "anchor must be a weight"),
    ("Carso anchor nan", build(anchor=float("nan")), "anchor"),
    ("Carso anchor inf", build(anchor=float("inf")), "anchor"),
    ("Carso aggregation", build(aggregation="median"), "no aggregation 'median'"),
    ("Carso seed", build(seed=2**70), "seed must be between"),
    ("Carso lazy", lambda it: carso.Carso(lazy(), Grey()), "lazy"),
    ("Carso meta", lambda it: carso.Carso(meta(), Grey()), "meta device"),
    ("Carso scripted", lambda it: carso.Carso(scripted(), Grey()), "inside a scripted module"),
    (
        "Carso precision",
        lambda it: carso.Carso(network(), Grey(), final_classifier=network().double()),
        "one precision",
    ),
    ("no such layer", lambda it: carso.Representation(it.net, ["conv"]), "no layer 'conv'"),
    ("no layer", lambda it: carso.Representation(it.net, []), "at least one layer"),
    ("layer of one", lambda it: carso.Representation(nn.Linear(2, 2), ["0"]), "no layer '0'"),
    (
        "compiled inside",
        lambda it: carso.Representation(Compiled(), ["body._orig_mod.0"]),
        "torch.compile",
    ),
    ("predict range", lambda it: it.defence.predict(it.images + 1), "images must lie in [0, 1]"),
    ("predict NaN", lambda it: it.defence.predict(it.images * torch.nan), "NaN"),
    ("predict double", lambda it: it.defence.predict(it.images.double()), "float64"),
    ("purify range", lambda it: it.defence.purify(it.images - 1), "images must lie in [0, 1]"),
    ("explain range", lambda it: it.defence.explain(it.images - 1), "images must lie in [0, 1]"),
    ("predict meta", lambda it: it.defence.predict(it.images.to("meta")), "meta"),
    ("view", lambda it: it.defence.view("logits"), "there is no view 'logits'"),
    ("view draws", lambda it: it.defence.view("score", draws=0), "draws of a view"),
    ("view samples", lambda it: it.defence.view("score", samples=0), "samples of a view"),
    (
        "purifier shape",
        lambda it: made(Grey(lambda c: c[0])).predict(it.images),
        "(8, 3, 1, 8, 8), got (3, 1, 8, 8)",
    ),
    (
        "purifier count",
        lambda it: made(Grey(lambda c: c[:2])).explain(it.images),
        "got (2, 3, 1, 8, 8)",
    ),
    (
        "purifier range",
        lambda it: made(Grey(lambda c: c * 255)).purify(it.images),
        "candidates in [0, 1]",
    ),
    (
        "purifier negative",
        lambda it: made(Grey(lambda c: c - 1)).view("score")(it.images),
        "candidates in [0, 1]",
    ),
    ("evaluate no eps", judge(eps=None), "eps is missing"),
    ("evaluate eps 0", judge(eps=0), "eps"),
    ("evaluate eps 8", judge(eps=8), "[0, 1] pixel scale"),
    ("evaluate eps nan", judge(eps=float("nan")), "eps"),
    ("sparse", lambda it: it.defence(it.images.to_sparse()), "plain, dense tensor"),
    ("evaluate sparse", judge(images=lambda it: it.images.to_sparse()), "plain, dense tensor"),
    ("evaluate meta", judge(images=lambda it: it.images.to("meta")), "on meta"),
    ("evaluate meta labels", judge(labels=torch.zeros(3, device="meta")), "on meta"),
    ("evaluate out", judge(out="/proc/none/x.json"), "cannot write /proc/none/x.json"),
    ("fit place", fit(out="/proc/none/x"), "cannot write /proc/none/x"),
    ("harden place", harden(out="/proc/none/x"), "cannot write /proc/none/x"),
    ("data root", lambda it: data.load("fashion-embedded", "/none"), "found no folder"),
    ("evaluate norm", judge(norm="L3"), "norm must be one of Linf, L2"),
    ("evaluate suite", judge(suite="quik"), "no suite 'quik'"),
    ("evaluate attack", judge(attacks=["pgdd"]), "no attack 'pgdd'"),
    ("evaluate empty attack", judge(attacks=["", ""]), "no attack ''"),
    ("evaluate draws", judge(draws=0), "draws must be at least 1"),
    ("evaluate chunk", judge(chunk=0), "chunk must be at least 1"),
    ("evaluate samples", judge(samples=-1), "samples must be at least 0"),
    ("evaluate device", judge(device="cuda:99"), "device"),
    ("evaluate range", judge(images=lambda it: it.images * 255), "[0, 1]"),
    ("evaluate NaN", judge(images=lambda it: it.images * torch.nan), "NaN"),
    (
        "evaluate none",
        judge(images=lambda it: it.images[:0], labels=lambda it: it.labels[:0]),
        "at least one",
    ),
    ("evaluate shape", judge(images=torch.rand(3, 1, 9, 9)), "takes no images of shape"),
    ("evaluate label 9", judge(labels=torch.tensor([0, 1, 9])), "from 0 to 3"),
    ("evaluate label -1", judge(labels=torch.tensor([0, 1, -1])), "from 0 to 3"),
    ("evaluate halves", judge(labels=torch.tensor([0.5, 1, 2])), "whole class numbers"),
    ("evaluate NaN labels", judge(labels=torch.full((3,), torch.nan)), "whole class numbers"),
    ("evaluate booleans", judge(labels=torch.tensor([True, False, True])), "whole class numbers"),
    ("evaluate lazy", judge(model=lambda it: lazy()), "lazy"),
    ("evaluate meta", judge(model=lambda it: meta()), "meta device"),
    ("evaluate double", judge(model=lambda it: network().double()), "float32"),
    ("evaluate bfloat16", judge(model=lambda it: network().bfloat16()), "float32"),
    ("evaluate raises", judge(model=lambda it: Picky()), "Picky takes no images of shape"),
    ("evaluate flat", judge(model=lambda it: Flat()), "(B, K)"),
    ("evaluate examples", judge(examples="nowhere.safetensors"), "nowhere.safetensors"),
    ("evaluate save", judge(save_examples="here.pt"), ".safetensors"),
    ("evaluate both", judge(threat=lambda it: carso.Linf(eps=EPS)), "give none beside"),
    ("fit no layer", fit(layers=["9"]), "no layer '9'"),
    ("fit no layers", fit(layers=[]), "at least one layer"),
    ("fit no eps", fit(eps=None), "eps is missing"),
    ("fit eps", fit(eps=-1), "eps"),
    ("fit epochs", fit(epochs=0), "epochs must be at least 1"),
    ("fit samples", fit(samples=0), "samples must be at least 1"),
    ("fit batch", fit(batch_size=0), "batch_size must be at least 1"),
    ("fit rate", fit(rate=0), "rate must be a finite number above 0"),
    ("fit fraction", fit(fraction=2), "fraction"),
    ("fit device", fit(device="cuda:42"), "device"),
    ("fit kind", fit(kind="gan"), "no purifier of kind 'gan'"),
    ("fit double", fit(classifier=network().double()), "classifier.float()"),
    ("fit bfloat16", fit(classifier=network().bfloat16()), "classifier.float()"),
    ("fit lazy", fit(classifier=lazy()), "lazy"),
    ("fit meta", fit(classifier=meta()), "meta"),
    ("fit scripted", fit(classifier=scripted()), "scripted"),
    ("fit latent", fit(latent=0), "latent must be at least 1"),
    ("harden scenario", harden(scenario="fashon"), "fashon"),
    ("harden no hardening", harden(scenario="cifar10"), "no [hardening]"),
    ("harden no eps", harden(eps=None), "eps is missing"),
    ("harden steps", harden(steps=-1), "attack_steps must be at least 1"),
    ("harden epochs", harden(epochs=0), "epochs"),
    ("harden device", harden(device="cuda:42"), "device"),
    ("harden double", harden(classifier=network().double()), "classifier.float()"),
    ("certify sigma", certify(sigma=0), "sigma"),
    ("certify draws", certify(draws=0), "draws must be at least 1"),
    ("certify few", certify(draws=2), "can certify nothing"),
    ("certify alpha", certify(alpha=1), "alpha"),
    ("certify device", certify(device="cuda:42"), "device"),
    ("certify labels", certify(labels=torch.tensor([0.1, 1, 2])), "whole class numbers"),
    ("certify double", certify(model=network().double()), "float32"),
    ("data unknown", lambda it: data.load("mnst"), "unknown data set 'mnst'"),
    ("data nothing", lambda it: data.load(""), "unknown data set ''"),
    ("data root", lambda it: data.load("mnist", "/nowhere/at/all"), "found no folder"),
    ("tensors none", lambda it: data.from_tensors(it.pixels[:0], torch.arange(0)), "at least one"),
    ("tensors floats", lambda it: data.from_tensors(it.images, it.labels), "uint8"),
    ("tensors labels", lambda it: data.from_tensors(it.pixels, torch.rand(80)), "int64"),
    ("Linf eps", lambda it: carso.Linf(eps=2), "[0, 1] pixel scale"),
    ("L2 eps", lambda it: carso.L2(eps=0), "above 0"),
]

TYPE: list[tuple[str, Callable[[Any], Any], str]] = [
    ("load without", lambda it: carso.load(), "missing a required argument: 'name'"),
    ("load number", load(3), "name must be a path or a string, got 3 (int)"),
    ("load none", load(None), "name must be a path or a string"),
    ("load hardened word", load(hardened="yes"), "hardened must be True or False, got 'yes'"),
    ("fit flag", fit(check_accuracy="no"), "check_accuracy must be True or False"),
    ("harden flag", harden(quiet=1), "quiet must be True or False, got 1 (int)"),
    ("evaluate flag", judge(again="yes"), "again must be True or False"),
    ("data flag", lambda it: data.load("mnist", download=1), "download must be True or False"),
    ("fit display", fit(display=3), "has no start()"),
    ("harden display", harden(display="bar"), "has no start()"),
    ("evaluate counted", judge(counted=3), "counted must be a function"),
    ("weights module", lambda it: carso.load_weights(3, "x.pt"), "module must be a torch.nn.Mod"),
    ("weights path", lambda it: carso.load_weights(it.net, 3), "path must be a path or a string"),
    ("fit out", fit(out=3), "out must be a path or a string"),
    ("load misspelt", load(sample=3), "no setting 'sample'; did you mean 'samples'?"),
    ("load float", load(samples=2.5), "samples must be a whole number, got 2.5 (float)"),
    ("load bool", load(samples=True), "samples must be a whole number"),
    ("load seed", load(seed="one"), "seed must be a whole number"),
    ("load device", load(device=3), "device must be a string"),
    ("load aggregation", load(aggregation=3), "aggregation must be a string"),
    ("load classifier", load(classifier=print), "a classifier is a torch.nn.Module"),
    ("load_classifier", lambda it: carso.load_classifier(7), "name must be a path or a string"),
    ("Carso nothing", lambda it: carso.Carso(), "missing a required argument"),
    ("Carso function", lambda it: carso.Carso(lambda x: x, Grey()), "a classifier is a torch.nn"),
    ("Carso class", lambda it: carso.Carso(nn.Linear, Grey()), "a classifier is a torch.nn"),
    ("Carso purifier", lambda it: carso.Carso(it.net, print), "has no layers"),
    ("Carso misspelt", build(agregation="anchored"), "did you mean 'aggregation'?"),
    ("Carso samples", build(samples="8"), "samples must be a whole number"),
    ("Carso anchor", build(anchor="much"), "anchor must be a number"),
    ("layers string", lambda it: carso.Representation(it.net, "0"), "list of names, such as ['0']"),
    ("layers numbers", lambda it: carso.Representation(it.net, [0]), "found 0 (int) in it"),
    ("predict numpy", lambda it: it.defence.predict(it.images.numpy()), "got ndarray"),
    ("predict list", lambda it: it.defence.predict([1]), "got list"),
    ("predict bytes", lambda it: it.defence.predict((it.images * 255).byte()), "divide bytes"),
    ("predict one", lambda it: it.defence.predict(it.images[0]), "got (1, 8, 8)"),
    ("predict none", lambda it: it.defence.predict(it.images[:0]), "got (0, 1, 8, 8)"),
    ("predict two", lambda it: it.defence.predict(it.images, 2), "too many positional"),
    ("purify nothing", lambda it: it.defence.purify(), "missing a required argument"),
    ("explain text", lambda it: it.defence.explain("image.png"), "got str"),
    ("view number", lambda it: it.defence.view(3), "view must be a string"),
    ("view misspelt", lambda it: it.defence.view("score", draw=3), "did you mean 'draws'?"),
    ("view float", lambda it: it.defence.view("score", draws=1.5), "draws of a view must be"),
    ("purifier list", lambda it: made(Grey(lambda c: [c])).predict(it.images), "got [tensor"),
    ("evaluate misspelt", judge(sed=3), "evaluate has no setting 'sed'; did you mean 'seed'?"),
    ("evaluate function", judge(model=lambda it: print), "torch.nn.Module from images to logits"),
    ("evaluate numpy", judge(images=lambda it: it.images.numpy()), "float tensor"),
    ("evaluate bytes", judge(images=lambda it: it.images.byte()), "float tensor"),
    ("evaluate labels", judge(labels=[0, 1, 2]), "labels must be a tensor of 3"),
    ("evaluate few labels", judge(labels=torch.tensor([0])), "labels must be a tensor of 3"),
    ("evaluate eps text", judge(eps="8/255"), "eps must be a number, got '8/255' (str)"),
    ("evaluate eps list", judge(eps=[0.1]), "eps must be a number"),
    ("evaluate eps many", judge(eps=torch.tensor([0.1, 0.2])), "eps must be a number"),
    ("evaluate norm", judge(norm=2), "norm must be a string"),
    ("evaluate norm list", judge(norm=["L2"]), "norm must be a string"),
    ("evaluate threat", judge(eps=None, threat="Linf"), "'Linf' (str) has no norm"),
    ("evaluate suite", judge(suite=3), "suite must be a string"),
    ("evaluate attacks", judge(attacks="square"), "list of names, such as ['square']"),
    ("evaluate attack", judge(attacks=[3]), "attacks must be a list of names"),
    ("evaluate seed", judge(seed=1.0), "seed must be a whole number"),
    ("evaluate seed none", judge(seed=None), "seed must be a whole number"),
    ("evaluate draws", judge(draws=2.5), "draws must be a whole number"),
    ("evaluate samples", judge(samples=2.5), "samples must be a whole number"),
    ("evaluate chunk", judge(chunk="all"), "chunk must be a whole number"),
    ("evaluate name", judge(name=3), "name must be a string"),
    ("evaluate out", judge(out=3), "out must be a path"),
    ("evaluate classes", judge(classes="ab"), "classes must be a list of names"),
    ("evaluate device", judge(device=0), "device must be a string"),
    ("fit nothing", lambda it: carso.fit(), "missing a required argument"),
    ("fit misspelt", fit(epoch=3), "did you mean 'epochs'?"),
    ("fit misspelt shape", fit(latant=3), "did you mean 'latent'?"),
    ("fit function", fit(classifier=print), "a classifier is a torch.nn.Module"),
    ("fit data", fit(data="fashion"), "data is what carso.data.load"),
    ("fit layers", fit(layers="0"), "layers must be a list of names"),
    ("fit epochs", fit(epochs=1.5), "epochs must be a whole number"),
    ("fit samples", fit(samples=2.5), "samples must be a whole number"),
    ("fit rate", fit(rate="fast"), "rate must be a number"),
    ("fit seed", fit(seed="a"), "seed must be a whole number"),
    ("fit kind", fit(kind=3), "kind must be a string"),
    ("harden misspelt", harden(attack_step=3), "did you mean 'attack_steps'?"),
    ("harden function", harden(classifier=print), "a classifier is a torch.nn.Module"),
    ("harden data", harden(data=None), "data is what carso.data.load"),
    ("harden layers", harden(layers="0"), "layers must be a list of names"),
    ("harden steps", harden(steps=1.5), "steps must be a whole number"),
    ("harden scenario", harden(scenario=3), "scenario must be a path or a string"),
    ("harden start", harden(start=3), "a purifier has layers"),
    ("certify misspelt", certify(drows=3), "did you mean 'draws'?"),
    ("certify sigma", certify(sigma="0.1"), "sigma must be a number"),
    ("certify draws", certify(draws=1e4), "draws must be a whole number"),
    ("certify seed", certify(seed=0.5), "seed must be a whole number"),
    ("certify function", certify(model=print), "certify takes a defence or a torch.nn.Module"),
    ("certify images", certify(images=numpy.zeros(3)), "float tensor"),
    ("data number", lambda it: data.load(3), "must be a path or a string"),
    ("data misspelt", lambda it: data.load("mnist", donwload=True), "did you mean 'download'?"),
    ("data root", lambda it: data.load("mnist", 3), "root must be a path"),
    (
        "tensors numpy",
        lambda it: data.from_tensors(it.pixels.numpy(), 3),
        "images must be a tensor",
    ),
    (
        "tensors labels",
        lambda it: data.from_tensors(it.pixels, [0] * 80),
        "labels must be a tensor",
    ),
    ("Linf text", lambda it: carso.Linf(eps="big"), "eps must be a number"),
    ("L2 none", lambda it: carso.L2(eps=None), "eps must be a number"),
]


def refusal(call: Callable[[Any], Any], it: SimpleNamespace) -> CarsoError:
    with pytest.raises(CarsoError) as caught:
        call(it)
    return caught.value


def test_there_are_many() -> None:
    assert len(VALUE) + len(TYPE) >= 180


@pytest.mark.parametrize(("call", "words"), [row[1:] for row in VALUE], ids=[r[0] for r in VALUE])
def test_a_wrong_value(it: SimpleNamespace, call: Callable[[Any], Any], words: str) -> None:
    error = refusal(call, it)
    assert words in str(error)
    assert "\n" not in str(error)
    assert isinstance(error, ValueError)


@pytest.mark.parametrize(("call", "words"), [row[1:] for row in TYPE], ids=[r[0] for r in TYPE])
def test_a_wrong_type(it: SimpleNamespace, call: Callable[[Any], Any], words: str) -> None:
    error = refusal(call, it)
    assert words in str(error)
    assert "\n" not in str(error)
    assert isinstance(error, CarsoTypeError)
    assert isinstance(error, TypeError)


def test_a_folder_that_is_there_is_not_overwritten(tmp_path: Path) -> None:
    (tmp_path / "something").write_text("mine")
    with pytest.raises(CarsoError, match="new or empty"):
        carso.load("fashion").save(tmp_path)
    with pytest.raises(CarsoTypeError, match="folder must be a path"):
        carso.load("fashion").save(3)


@pytest.mark.parametrize("kind", [numpy.float64, numpy.float32, torch.tensor])
def test_numbers_of_other_libraries_are_numbers(kind: Any) -> None:
    threat = carso.Linf(eps=kind(0.25))
    assert threat.eps == 0.25
    assert type(threat.eps) is float


@pytest.mark.parametrize("kind", [numpy.int64, numpy.uint8, torch.tensor])
def test_a_seed_of_another_library_is_the_same_seed(it: SimpleNamespace, kind: Any) -> None:
    first, second = build(seed=kind(3))(it), build(seed=3)(it)
    assert first.noise.initial_seed() == second.noise.initial_seed()


def test_what_torch_compiled_is_defended_as_it_was(it: SimpleNamespace) -> None:
    compiled = torch.compile(it.net, backend="eager")
    expected = carso.Carso(it.net, Grey())(it.images)
    assert torch.equal(carso.Carso(compiled, Grey())(it.images), expected)

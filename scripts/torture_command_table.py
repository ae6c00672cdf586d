"""The table of `torture_commands.py`: of each command a line that would do, and wrong values of
each of its options."""

from __future__ import annotations

from torture_subject import Subject

Words = list[object]

WHOLE = ("x", "1.5", "", "1e3", "nan")
"""No whole numbers."""
NUMBERS = ("x", "", "nan", "inf", "-0.1", "0", "2")
"""No radius of a ball in [0, 1]."""
SIGMAS = ("0", "-1", "nan", "inf", "odd", "")
"""No deviation of noise."""
NAMES = ("odd", "0", "../x")
DEVICES = ("abacus", "cuda:99", "cpu:x", "")
HUGE = ("1000", "1000000")
THREADS = (*WHOLE, "-1", "100000")
NODES = (*WHOLE, "0", "-1")
DATA = ("/none", "", "mini.toml")
CODE = ("", " ", "odd", "/none.py", "run")
"""No file that makes a classifier."""


def commands(subject: Subject) -> dict[str, Words]:
    """Of each command a line that would do, into places that do not exist yet."""
    run, toml = subject.folder / "run", subject.folder / "mini.toml"
    picture = next(iter(sorted(subject.photos.rglob("*.png"))))
    new = subject.folder / "new"
    return {
        "train": ["train", toml, "--run", new],
        "harden": [
            "harden", toml, "--classifier", run / "classifier.safetensors", "--run", new,
            "--allow-any-accuracy",
        ],
        "predict": ["predict", run, picture],
        "evaluate": ["evaluate", run, "--images", 2, "--out", new.with_suffix(".json")],
        "certify": [
            "certify", run, "--sigma", 0.5, "--images", 2, "--n", 50, "--out",
            new.with_suffix(".json"),
        ],
        "export": ["export", run, "--out", new.with_suffix(".onnx")],
        "play": ["play", run, "--port", 0],
        "report": ["report", subject.record, "--out", new],
        "reproduce": ["reproduce", "results", "--show", "--out", new],
        "demo": ["demo", "--images", 3, "--out", new],
        "import": ["import", new],
        "layers": ["layers", run / "classifier.safetensors", "--scenario", toml],
        "doctor": ["doctor"],
        "scenarios": ["scenarios"],
    }  # fmt: skip


OPTIONS: dict[str, dict[str, tuple[str, ...]]] = {
    "train": {
        "--seed": WHOLE, "--threads": THREADS, "--device": DEVICES,
        "--devices": (*WHOLE, "0", "-1", *HUGE), "--nodes": NODES,
        "--precision": (*NAMES, "16", "bf16"), "--preset": NAMES, "--data": DATA,
        "--classifier": (*NAMES, "", "/none.pt", "/none.py", "/none.safetensors"),
        "--on": (*NAMES, "folder:/none", "run"), "--checkpoint-minutes": ("x", "-1", "", "nan"),
        "--run": ("/proc/none/x", "mini.toml", "mini.toml/x", ""), "--quiet": ("yes",),
        "--sigma": SIGMAS,
    },
    "harden": {
        "--seed": WHOLE, "--threads": THREADS, "--device": DEVICES,
        "--devices": (*WHOLE, "0", "-1", *HUGE), "--nodes": NODES,
        "--precision": (*NAMES, "16"), "--preset": NAMES, "--data": DATA,
        "--epochs": (*WHOLE, "0", "-1"), "--eps": NUMBERS,
        "--layers": ("odd", "layer.9", "layer.0,odd", ",,"), "--on": (*NAMES, "folder:/none"),
        "--checkpoint-minutes": ("x", "-1", "", "nan"), "--norm": (*NAMES, "l2", "L7"),
        "--run": ("/proc/none/x", "mini.toml", "mini.toml/x", ""),
        "--classifier": (*NAMES, "", "/none.pt", "/none.py"), "--sigma": SIGMAS,
        "--against": NAMES, "--start": (*NAMES, "/none.safetensors", "mini.toml"),
    },
    "predict": {
        "--samples": (*WHOLE, "0", "-1", "1000000000"), "--seed": WHOLE, "--device": DEVICES,
        "--aggregation": NAMES, "--classifier": CODE,
        "--candidates": ("/proc/none/x", "mini.toml", "mini.toml/x", ""),
    },
    "evaluate": {
        "--images": (*WHOLE, "0", "-1", "999"), "--draws": (*WHOLE, "0", "-1"),
        "--samples": (*WHOLE, "-1"), "--chunk": (*WHOLE, "0", "-1"),
        "--max-batch": (*WHOLE, "0", "-1"), "--seed": WHOLE,
        "--threads": THREADS, "--device": DEVICES,
        "--devices": (*WHOLE, "0", "-1", *HUGE), "--nodes": NODES,
        "--eps": NUMBERS, "--norm": (*NAMES, "linf", "L1"), "--suite": (*NAMES, "standard"),
        "--attacks": (*NAMES, ",,", "transfer,odd", "margin,margin,"), "--split": (*NAMES, "train"),
        "--on": (*NAMES, "cifar100"), "--aggregation": NAMES, "--data": DATA,
        "--classifier": CODE, "--backward": CODE,
        "--examples": ("/none.safetensors", "odd", "mini.toml", "run/classifier.safetensors", ""),
        "--save-examples": (
            "x.txt", "/proc/none/x.safetensors", "run", "", "run/classifier.safetensors",
        ),
        "--out": ("run", "/proc/none/x.json", "mini.toml/x.json", "", "mini.toml"),
    },
    "certify": {
        "--images": (*WHOLE, "0", "-1", "999"), "--sigma": SIGMAS,
        "--n": (*WHOLE, "0", "-1", "5"), "--n0": (*WHOLE, "0", "-1"),
        "--batch": (*WHOLE, "0", "-1"), "--alpha": ("0", "1", "-1", "nan", "odd", ""),
        "--seed": WHOLE, "--split": (*NAMES, "train"),
        "--on": (*NAMES, "cifar100"), "--devices": (*WHOLE, "0", "-1", *HUGE), "--device": DEVICES,
        "--classifier": CODE, "--data": DATA, "--threads": THREADS, "--nodes": NODES,
        "--out": ("run", "/proc/none/x.json", "", "mini.toml", "record.json"), "--name": ("",),
        "--precision": (*NAMES, "16", "bf16"),
    },
    "export": {
        "--to": (*NAMES, "ONNX"), "--samples": (*WHOLE, "0", "-1"), "--classifier": CODE,
        "--out": ("run", "/proc/none/x.onnx", "mini.toml/x.onnx", "", "record.json"),
    },
    "play": {
        "--record": ("/none.json", "mini.toml", "run", ""), "--classifier": CODE,
        "--host": ("odd host", "999.1.1.1", "192.0.2.1", ""), "--threads": THREADS,
        "--port": (*WHOLE, "-1", "65536"), "--device": DEVICES,
    },
    "report": {"--out": ("/proc/none/x", "mini.toml", "mini.toml/x", "")},
    "reproduce": {
        "--scale": NAMES, "--devices": (*WHOLE, "0", "-1"), "--threads": THREADS,
        "--device": DEVICES, "--out": ("/proc/none/x", "mini.toml", ""), "--precision": NAMES,
        "--records": ("mini.toml", ""), "--weights": ("/none", "mini.toml", ""), "--data": DATA,
        "--nodes": NODES,
    },
    "demo": {
        "--images": (*WHOLE, "0", "2", "-1", "100000"), "--seed": WHOLE,
        "--threads": THREADS, "--out": ("/proc/none/x", "mini.toml", ""), "--device": DEVICES,
    },
    "import": {
        "--run": ("/proc/none/x", "mini.toml", ""), "--scenario": NAMES, "--base": NAMES,
        "--classifier": ("/none.safetensors", "", "run"),
    },
    "layers": {
        "--scenario": (*NAMES, "", "/none.toml", "run"), "--preset": NAMES,
        "--shape": ("x", "1,2", "0,16,16", "1,16,16,16", "1,-1,16", "1.5,16,16", ",,"),
    },
    "doctor": {"--data": DATA, "--device": DEVICES},
    "scenarios": {},
}  # fmt: skip
"""Wrong values of options; relative paths are in the subject's folder."""


TOML_MISTAKES = (
    ("eps = 0.1", "eps = 8"), ("eps = 0.1", "eps = 0"), ("eps = 0.1", 'eps = "a"'),
    ("eps = 0.1", "esp = 0.1"), ("eps = 0.1", "eps = nan"), ("depth = 10", "depth = 11"),
    ("depth = 10", "depth = 0"), ("width = 1", "width = 0"), ("width = 1", "width = 1.5"),
    ("width = 1", 'layers = ["odd"]'), ("width = 1", 'layers = "odd"'), ("strides", "stride"),
    ("strides = [2, 2, 2]", "strides = []"), ("strides = [2, 2, 2]", "strides = 2"),
    ("epochs = 1", "epochs = 0"), ("epochs = 1", "epochs = -1"), ("epochs = 1", "epochs = 1.5"),
    ("batch_size = 16", "batch_size = 0"), ("batch_size = 16", 'batch_size = "16"'),
    ("attack_steps = 1", "attack_steps = -1"), ("latent = 8", "latent = 0"),
    ("condition = 16", "condition = -1"), ("fraction = 0.5", "fraction = 2"),
    ("fraction = 0.5", "fraction = -1"), ("[purifier]", "[purifer]"),
    ("[purifier]", '[purifier]\nkind = "odd"'), ("[purifier]", '[purifier]\nkind = "no:Where"'),
    ("[classifier]", '[classifier]\nkind = "odd"'), ("[data]", "[dta]"),
    ("plateau_rate = 1e-3", "plateau_rate = -1"), ("plateau_rate = 1e-3", "plateau_rate = nan"),
    ("beta_end = 0", "beta_end = -1"), ('name = "mini"', "name = 3"), ('name = "mini"', "odd = 1"),
    ("[hardening]", "[hardning]"), ('start = "scratch"', 'start = "odd"'),
    ("validation_images = 8", "validation_images = 0"), ('bank = "disk"', 'bank = "odd"'),
)  # fmt: skip

"""Trains and certifies what docs/certification.md compares, for some deviations of the noise.

    python scripts/make_certificates.py SCENARIO CLASSIFIER [--sigmas 0.5,0.25,1.0] [--images 500]
        [--n 1000] [--runs runs] [--out docs/results/certificates] [--prefix fashion] [...]

SCENARIO is one such as fashion-certified, CLASSIFIER the weights around which its purifiers stand.
For each sigma: (a) the classifier alone, (b) behind a purifier that reads its activations, (c)
behind the same network reading the image, (d) the classifier itself trained on noise; the presets
"image" and "noise-classifier". Everything is a `carso` command, printed before it runs; what is
there already is not made again, and what was stopped goes on. --only b,c takes some of the four.
--start PREFIX begins each purifier from the run of another prefix, for a classifier so large that
few epochs are to be had around it; --epochs then says how many.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
from pathlib import Path

from records import RESULTS

KINDS = {
    "a": ("bare", "classifier alone"),
    "b": ("activations", "purifier reads activations"),
    "c": ("image", "purifier reads the image"),
    "d": ("noise-classifier", "classifier trained on noise"),
}
"""The word in the names of files, and what tables say."""


def training(kind: str, asked: argparse.Namespace, sigma: str, run: Path) -> list[str]:
    """The command that trains what one kind needs."""
    common = ["--sigma", sigma, "--run", str(run), "--precision", asked.precision]
    common += ["--threads", str(asked.threads)]
    if kind == "d":
        preset = ["--preset", "noise-classifier", "--classifier-only"]
        return ["train", asked.scenario, *preset, *common]
    preset = ["--preset", "image"] if kind == "c" else []
    if asked.start:
        common += ["--start", str(asked.runs / f"{asked.start}-{KINDS[kind][0]}-{sigma}")]
    if asked.epochs:
        common += ["--epochs", str(asked.epochs)]
    return ["harden", asked.scenario, "--classifier", asked.classifier, *preset, *common]


def certifying(kind: str, asked: argparse.Namespace, sigma: str, run: Path) -> list[str]:
    """The command that certifies it."""
    word, name = KINDS[kind]
    bare = ["--bare"] if kind in "ad" else []
    out = asked.out / f"{asked.prefix}-{word}-{sigma}.json"
    return [
        *("certify", str(run), *bare, "--sigma", sigma, "--name", name),
        *("--images", str(asked.images), "--n", str(asked.n)),
        *("--threads", str(asked.threads), "--devices", str(asked.devices)),
        *("--precision", asked.precision, "--out", str(out)),
    ]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("scenario")
    parser.add_argument("classifier")
    parser.add_argument("--sigmas", default="0.5,0.25,1.0")
    parser.add_argument("--only", default="a,b,c,d")
    parser.add_argument("--images", type=int, default=500)
    parser.add_argument("--n", type=int, default=1000)
    parser.add_argument("--runs", type=Path, default=Path("runs"))
    parser.add_argument("--out", type=Path, default=RESULTS / "certificates")
    parser.add_argument("--prefix", default="fashion")
    parser.add_argument("--start")
    parser.add_argument("--epochs", type=int)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--devices", type=int, default=1)
    parser.add_argument("--precision", default="bf16-mixed")
    asked = parser.parse_args()
    for sigma in asked.sigmas.split(","):
        for kind in sorted(asked.only.split(","), key="bcda".index):  # (a) needs the run of (b)
            word = KINDS["b" if kind == "a" else kind][0]
            run = asked.runs / f"{asked.prefix}-{word}-{sigma}"
            steps = [certifying(kind, asked, sigma, run)]
            if kind != "a" or not (run / "classifier.safetensors").exists():
                steps.insert(0, training(kind, asked, sigma, run))
            for step in steps:
                print("carso", *step, flush=True)
                subprocess.run([sys.executable, "-m", "carso", *step], check=True)


if __name__ == "__main__":
    main()

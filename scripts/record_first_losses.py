"""Records the first losses of `carso train fashion` on the embedded images, for a test.

    python scripts/record_first_losses.py tests/pipeline/first_losses.json

The purifier is trained around the shipped classifier, with attacks made anew (`bank = "off"`).
"""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path

import torch
from records import in_one_line

import carso
from carso import data
from carso.scenario import parser
from carso.storage import files
from carso.training.loop import first_losses
from carso.training.scenario_stages import classifier_stage, purifier_stage


def main() -> None:
    cpu = torch.device("cpu")
    scenario = parser.read("fashion")
    attacks = replace(scenario.purifier.attacks, bank="off")
    scenario = replace(scenario, purifier=replace(scenario.purifier, attacks=attacks))
    images = data.load("fashion-embedded")
    classifier = carso.load("fashion").classifier
    files.write_json(
        Path(sys.argv[1]),
        {
            "classifier": first_losses(classifier_stage(scenario, images, cpu)),
            "purifier": first_losses(purifier_stage(scenario, images, classifier, cpu)),
        },
    )


if __name__ == "__main__":
    in_one_line(main)

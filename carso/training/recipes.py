"""What a command makes of a scenario before it is trained."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from carso.classifiers.known_files import settled
from carso.errors import CarsoError
from carso.scenario.schema import Scenario


def hardening_scenario(
    scenario: Scenario,
    classifier: Path,
    *,
    layers: Sequence[str] = (),
    eps: float | None = None,
    epochs: int | None = None,
) -> Scenario:
    """`scenario` without the paper's training: its purifier is hardened around the classifier in
    a file. With another `eps` the radius and the steps of the training attacks change along."""
    if not classifier.is_file():
        raise CarsoError(f"--classifier: there is no file {classifier}")
    own = scenario.hardening
    if own is None:
        hint = "" if scenario.preset else "; the paper's have one in --preset hardened"
        raise CarsoError(f"scenario {scenario.name} has no [hardening]{hint}")
    code = classifier.suffix == ".py"
    if code and not layers:
        raise CarsoError("--layers names the layers of your classifier that the purifier reads")
    network = settled(scenario.classifier, classifier)
    threat = scenario.threat if eps is None else scenario.threat.with_eps(eps)
    scale = threat.eps / scenario.threat.eps
    return replace(
        scenario,
        name=classifier.stem if code else f"{scenario.name}-hardened",
        classifier=replace(network, layers=tuple(layers) or network.layers),
        purifier=replace(scenario.purifier, attacks=None, training=None),
        hardening=replace(
            own,
            epochs=own.epochs if epochs is None else epochs,
            eps=own.eps * scale,
            attack_step_size=own.attack_step_size * scale,
        ),
        threat=threat,
    )

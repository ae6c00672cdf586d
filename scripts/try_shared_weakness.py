"""Does averaging over draws that share a weakness break what the plain mean over draws leaves?

    python scripts/try_shared_weakness.py [--images 24] [--draws 8] [--steps 40] [--threads 1]

The shipped robust classifier behind a random shift and noise, a truly noisy model. A first attack
on the mean of the draws gives every image an example. From there a second one goes on with as many
gradients again: once on the plain mean, once on the draws that share a weakness. Validation
images; twenty fresh draws judge each.
"""

from __future__ import annotations

import argparse

import torch
from torch import Tensor, nn

from carso import data
from carso.attacks.margin import Margin
from carso.attacks.refine import Refine
from carso.attacks.shared_weakness import SharedWeakness
from carso.classifiers.frozen import freeze
from carso.defence.on_disk import load
from carso.evaluation.attacked_model import AttackedClassifier, AttackedView, verdict
from carso.evaluation.tries import TRIES, survival
from carso.threats.norms import threat_of


class ShiftAndNoise(nn.Module):
    """A shift by up to two pixels, one for the batch's pass of each image, and Gaussian noise."""

    def __init__(self, network: nn.Module, noise: float) -> None:
        super().__init__()
        self.network, self.noise = network, noise

    def forward(self, images: Tensor) -> Tensor:
        moves = torch.randint(-2, 3, (len(images), 2))
        moved = torch.stack(
            [x.roll(tuple(move.tolist()), (1, 2)) for x, move in zip(images, moves, strict=True)]
        )
        return self.network(moved + self.noise * torch.randn_like(moved))  # type: ignore[no-any-return]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--images", type=int, default=24)
    parser.add_argument("--draws", type=int, default=8)
    parser.add_argument("--steps", type=int, default=40)
    parser.add_argument("--noise", type=float, default=0.1)
    parser.add_argument("--threads", type=int, default=1)
    given = parser.parse_args()
    torch.set_num_threads(given.threads)
    images, labels = (
        data.load("fashion-embedded").validation.balanced(given.images).batch(slice(None))
    )
    network = ShiftAndNoise(load("fashion").classifier, given.noise)
    model = AttackedClassifier(freeze(network), stochastic=True)
    many = model.view(AttackedView(samples=given.draws))
    threat, source = threat_of(norm="Linf", eps=0.1), torch.Generator().manual_seed(0)
    torch.manual_seed(0)

    def said(what: str, examples: Tensor) -> None:
        found = verdict(model, examples, labels, draws=TRIES, seed=0, path=(what,))
        one, five = (float(survival(found.right, TRIES, k).mean()) for k in (1, 5))
        print(f"{what}: {one:.3f} of one draw, {five:.3f} of five, lead {found.margin.mean():.3f}")

    said("clean", images)
    first = Margin(steps=given.steps)(many, images, labels, threat=threat, generator=source)
    said("first attack", first)
    plain = Refine(steps=given.steps, targets=0, restarts=0, step_share=0.5)
    shared = SharedWeakness(steps=given.steps, draws=given.draws)
    said("plain mean", plain(many, images, labels, threat=threat, generator=source, start=first))
    one = model.classifier
    said("shared", shared(one, images, labels, threat=threat, generator=source, start=first))


if __name__ == "__main__":
    main()

"""Make the embedded subset of Fashion-MNIST from the full set.

    python scripts/make_embedded_fashion.py SOURCE carso/data/embedded/fashion

Training images: of each class numbers 0..899 and 5400..5499 in official file order. The last
tenth of each class, the subset's validation images, therefore lies inside the validation images of
the full set: a classifier trained on the full training split has never seen them. Test images: the
first 200 of each class. Everything stays in official file order, and the files are the same byte
for byte each time.
"""

import argparse
from pathlib import Path

from records import in_one_line
from torch import Tensor

from carso.data.idx import TEST, TRAINING, read_idx_split, write_idx
from carso.data.images import Split, numbers_within_class

CLASSES = 10
TRAIN_KEPT = 900
VALIDATION_FIRST, VALIDATION_KEPT = 5400, 100
TEST_KEPT = 200


def chosen_training_images(split: Split) -> Tensor:
    """Mask of the images the subset trains and validates on."""
    number, _ = numbers_within_class(split.labels)
    validation = (number >= VALIDATION_FIRST) & (number < VALIDATION_FIRST + VALIDATION_KEPT)
    return (number < TRAIN_KEPT) | validation


def chosen_test_images(split: Split) -> Tensor:
    """Mask of the images the subset is judged on."""
    number, _ = numbers_within_class(split.labels)
    return number < TEST_KEPT


def write_split(folder: Path, names: tuple[str, str], split: Split) -> None:
    """Write images and labels under the official names."""
    images_name, labels_name = names
    write_idx(folder / f"{images_name}.gz", split.images.squeeze(1))
    write_idx(folder / f"{labels_name}.gz", split.labels)


def main() -> None:
    """Read the full set, choose, write."""
    parser = argparse.ArgumentParser(description="Make the embedded subset of Fashion-MNIST.")
    parser.add_argument("source", type=Path, help="folder with the four official files")
    parser.add_argument("output", type=Path, help="folder to write the four files to")
    arguments = parser.parse_args()
    training = read_idx_split(arguments.source, TRAINING, classes=CLASSES)
    test = read_idx_split(arguments.source, TEST, classes=CLASSES)
    arguments.output.mkdir(parents=True, exist_ok=True)
    write_split(arguments.output, TRAINING, training.take(chosen_training_images(training)))
    write_split(arguments.output, TEST, test.take(chosen_test_images(test)))


if __name__ == "__main__":
    in_one_line(main)

"""`carso import`: the files that the paper's authors publish, as a run that can be evaluated.

Each defence of theirs is four safetensors files: the classifier, and of the purifier the layerwise
encoders, the fully connected encoder and the decoder. Our modules have the names of theirs, so a
file is loaded into the part of the purifier that it belongs to, and every key and shape is checked
on the way. The encoder of images is not published; only training needs it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from torch import Tensor, nn

from carso import data
from carso.classifiers import registry
from carso.classifiers.frozen import freeze
from carso.defence.description import describe
from carso.defence.on_disk import purifier_of
from carso.errors import CarsoError
from carso.purifiers.vae.published_parts import PARTS, published_parts
from carso.scenario import parser
from carso.scenario.schema import Scenario
from carso.storage import files, json_schema, tensor_files
from carso.storage.provenance import provenance

SUFFIX = ".safetensors"
SUFFIXES = (".pth", ".pt", SUFFIX)
"""A file may have one of these, or none; of several files of a name the last kind counts."""


@dataclass(frozen=True, slots=True)
class Published:
    """What a purifier was trained for."""

    scenario: str
    """The shipped scenario, which has the name of its data set."""
    classifier: str
    """The file of the classifier that it was trained around. With another one it would load and
    run as well, and mean nothing."""


PUBLISHED = {
    "wrn_28_10_cifar_10_cui_2023": Published("cifar10", "cifar10_a3_b10_t4_20m_w"),
    "wrn_28_10_cifar_10_own_2025": Published("cifar10", "WRN_28_10_cifar10_09428"),
    "wrn_28_10_cifar_100_cui_2023": Published("cifar100", "cifar100_a5_b12_t4_50m_w"),
    "wrn_28_10_cifar_100_own_2025": Published("cifar100", "WRN_28_10_cifar100_07476"),
    "wrn_28_10_tinyimagenet_200_wang_2023": Published("tinyimagenet", "tiny_linf_wrn28_10_w"),
}
"""By base name. The first of a scenario is the paper's own; `own_2025` we take for that of its
ablation, around a classifier trained on clean images (`--classifier FILE` takes another)."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Source:
    """The published files of one defence."""

    base: str
    scenario: Scenario
    classifier: Path
    parts: Mapping[str, Path]
    """By the keys of `PARTS`."""


def find(
    folder: Path,
    *,
    scenario: Scenario | None = None,
    base: str = "",
    classifier: Path | None = None,
) -> Source:
    """The files of one defence in `folder`; of several, `base` or `scenario` says which one."""
    present = listed(folder)
    base = chosen(folder, bases(present, base), scenario, base)
    if missing := [f"{base}_{part}" for part in PARTS if f"{base}_{part}" not in present]:
        raise CarsoError(f"{folder} lacks {', '.join(missing)} (with {SUFFIX} or without)")
    if scenario is None:
        if base not in PUBLISHED:
            every = (parser.read(name) for name in parser.names())
            known = ", ".join(each.name for each in every if each.hardening is None)
            raise CarsoError(f"what {base} was trained for is not known: give --scenario ({known})")
        scenario = parser.read(PUBLISHED[base].scenario)
    if scenario.hardening is not None:
        raise CarsoError(f"scenario {scenario.name} hardens its purifier; published ones are not")
    return Source(
        base=base,
        scenario=scenario,
        classifier=classifier or classifier_in(folder, present, base, scenario),
        parts={part: present[f"{base}_{part}"] for part in PARTS},
    )


def import_published(source: Source, out: Path) -> Path:
    """The run `out`, made of the files of `source`: whole, or not at all."""
    scenario, facts = source.scenario, data.facts(source.scenario.data.set)
    origin = [identified(path) for path in (source.classifier, *source.parts.values())]
    description = {
        **describe(scenario, facts),
        "classifier": "imported",
        "imported": {"base": source.base, "files": origin},
    }
    if already_in(out, description):
        return out
    classifier = registry.build(scenario.classifier, facts)
    load_checked(classifier, source.classifier, what=f"the classifier of {scenario.name}")
    purifier = purifier_of(scenario, freeze(classifier), facts.image_shape).deployed()
    for part, module in published_parts(purifier).items():
        load_checked(module, source.parts[part], what=f"{PARTS[part]} of {scenario.name}")
    with files.making(out) as folder:
        keep(folder, "classifier", classifier.state_dict(), origin[:1])
        keep(folder, "purifier", purifier.state_dict(), origin[1:])
        files.write_json(folder / "defence.json", description)
    return out


def listed(folder: Path) -> dict[str, Path]:
    """The files in `folder` by name without suffix."""
    try:
        found = [path for path in folder.iterdir() if path.is_file()]
    except OSError as error:
        raise CarsoError(f"cannot read the folder {folder}: {error.strerror}") from None
    kinds = ("", *SUFFIXES)
    found.sort(key=lambda path: kinds.index(path.suffix) if path.suffix in kinds else 0)
    return {
        path.name.removesuffix(path.suffix if path.suffix in SUFFIXES else ""): path
        for path in found
    }


def bases(present: Mapping[str, Path], asked: str) -> list[str]:
    """The base names of the purifiers among these files, as in the table, then by name; of
    incomplete ones only that `asked` for, or all if none is complete."""
    found = {
        name.removesuffix(f"_{part}")
        for name in present
        for part in PARTS
        if name.endswith(f"_{part}")
    }
    complete = {base for base in found if all(f"{base}_{part}" in present for part in PARTS)}
    shown = complete | (found & {asked}) or found
    return sorted(shown, key=lambda base: ((*PUBLISHED, base).index(base), base))


def chosen(folder: Path, found: Sequence[str], scenario: Scenario | None, base: str) -> str:
    """The base name that is meant, or an error that lists those in `folder`."""
    if not found:
        wanted = ", ".join(f"NAME_{part}{SUFFIX}" for part in PARTS)
        raise CarsoError(f"{folder} holds no published purifier: {wanted} are wanted")
    names = ", ".join(found)
    if base and base not in found:
        raise CarsoError(f"{folder} has no purifier {base}; it has {names}")
    fitting = [name for name in ([base] if base else found) if fits(name, scenario)]
    if not fitting and scenario is not None:
        raise CarsoError(
            f"{base or names} in {folder} was trained for another data set than "
            f"{scenario.data.set}, that of scenario {scenario.name}"
        )
    if len(fitting) > 1 and (scenario is None or fitting[0] not in PUBLISHED):
        raise CarsoError(
            f"{folder} has several purifiers ({names}): choose by --base NAME, or by --scenario"
        )
    return fitting[0]


def fits(base: str, scenario: Scenario | None) -> bool:
    """Whether nothing says that a purifier was trained for other data than that of `scenario`."""
    known = PUBLISHED.get(base)
    return known is None or scenario is None or known.scenario == scenario.data.set


def classifier_in(folder: Path, present: Mapping[str, Path], base: str, scenario: Scenario) -> Path:
    """The file of the classifier that the purifier `base` was trained around."""
    known = PUBLISHED.get(base)
    names = scenario.classifier.weights if known is None else (known.classifier,)
    found = [name for name in names if name in present]
    if len(found) != 1:
        state = f"has several ({', '.join(found)})" if found else "has none"
        wanted = f"of the classifiers for {base} ({', '.join(names) or 'none is known'})"
        raise CarsoError(f"{wanted} {folder} {state}: give --classifier FILE")
    return present[found[0]]


def identified(path: Path) -> dict[str, str]:
    """Which file it is."""
    try:
        return {"name": path.name, "sha256": files.sha256(path)}
    except OSError as error:
        raise CarsoError(f"cannot read {path}: {error.strerror}") from None


def already_in(out: Path, description: dict[str, Any]) -> bool:
    """Whether `out` holds just this import; a folder that holds anything else is left alone."""
    if not out.exists() or (out.is_dir() and not any(out.iterdir())):
        return False
    if not (out / "defence.json").is_file():
        raise CarsoError(f"{out} holds something else: choose another --run folder")
    if files.read_json(out / "defence.json") != description:
        raise CarsoError(
            f"{out} holds another defence: choose another --run folder, or delete this one"
        )
    for name in ("classifier", "purifier"):
        weights = out / f"{name}{SUFFIX}"
        record = json_schema.read(out / f"{name}.json", "a record of trained weights")
        if not weights.is_file() or record.get("sha256") != files.sha256(weights):
            raise CarsoError(f"{weights} is not what was imported: delete {out}, and import again")
    return True


def load_checked(module: nn.Module, path: Path, *, what: str) -> None:
    """Load a file into `module`, or refuse it in one line that names the file and the keys."""
    tensor_files.load_into(module, tensor_files.load(path), source=str(path), what=what)


def keep(
    folder: Path, name: str, weights: Mapping[str, Tensor], origin: list[dict[str, str]]
) -> None:
    """`NAME.safetensors`, and `NAME.json` which says what files it was made of."""
    path = folder / f"{name}{SUFFIX}"
    tensor_files.save(path, weights)
    files.write_json(
        folder / f"{name}.json",
        {
            "what": name,
            "sha256": files.sha256(path),
            "imported": origin,
            "provenance": provenance(),
        },
    )

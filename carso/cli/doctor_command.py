"""`carso doctor`: the machine, what works and what is fastest on it."""

from __future__ import annotations

import json
import platform
import sys
from importlib.util import find_spec
from typing import Annotated, Any

import typer

from carso.cli.before_work import check_folder, check_machine
from carso.cli.options import DataOption, DeviceOption, JsonOption, prepare, print_table

WORKS = "works"
"""What the self-test says of a thing that does."""
EXTRAS = {
    "play": ("starlette", "uvicorn"),
    "hub": ("huggingface_hub",),
    "export": ("onnx", "onnxscript", "onnxruntime"),
}
"""What each extra of the package brings."""


def doctor(
    data: DataOption = None,
    tune: Annotated[
        bool,
        typer.Option("--tune", help="Measure what is fastest here, and say how to ask for it"),
    ] = False,
    self_test: Annotated[
        bool,
        typer.Option("--self-test", help="Try each thing that a run does; about a minute"),
    ] = False,
    device: DeviceOption = "auto",
    as_json: JsonOption = False,
) -> None:
    """Show the machine, the versions, and what data and weights are found."""
    check_folder("--data", data)
    check_machine(device)
    if device != "auto":
        prepare(device, 0)
    from carso import data as data_sets
    from carso.storage.provenance import provenance

    facts = provenance()
    facts["hardware"] |= {"system": platform.platform(), **accelerator()}
    facts["extras"] = {name: extra(name) for name in EXTRAS}
    facts["data"] = dict(data_sets.available(data))
    facts["weights"] = weights()
    if not as_json:
        tell_facts(facts)
    if tune:
        from carso.cli.speed import ratios, suggestions

        print("measuring for a minute or two ...", file=sys.stderr)
        facts["ratios"] = ratios()
        facts["suggestions"] = suggestions(facts["ratios"])
        if not as_json:
            tell_ratios(facts)
    if self_test:
        from carso.cli.self_test import self_test as tried_here

        print("trying for about a minute ...", file=sys.stderr)
        facts["self_test"] = {}
        place = prepare(found_accelerator() if device == "auto" else device, 0)
        for name, found in tried_here(place):  # said at once: the next may be the end
            facts["self_test"][name] = found
            if not as_json:
                print(f"{name}: {found}", flush=True)
    if as_json:
        print(json.dumps(facts, indent=1))
    if any(found != WORKS for found in facts.get("self_test", {}).values()):
        raise typer.Exit(1)


def found_accelerator() -> str:
    """The device of this machine that torch would compute on: whatever it has, else the CPU."""
    import torch

    found = torch.accelerator.current_accelerator() if torch.accelerator.is_available() else None
    return "cpu" if found is None else found.type


def accelerator() -> dict[str, Any]:
    """What a report about GPUs needs; of another accelerator its name; nothing where there is
    none."""
    import torch

    if not torch.cuda.is_available():
        found = found_accelerator()
        return {} if found == "cpu" else {"accelerator": found}
    each = [torch.cuda.get_device_properties(i) for i in range(torch.cuda.device_count())]
    return {
        "cuda": torch.version.cuda or torch.version.hip,
        "cudnn": torch.backends.cudnn.version(),  # type: ignore[no-untyped-call]
        "capability": [f"{one.major}.{one.minor}" for one in each],
        "memory": [f"{one.total_memory / 2**30:.1f} GiB" for one in each],
        "bfloat16": torch.cuda.is_bf16_supported(),
    }


def extra(name: str) -> str:
    """Whether all that an extra brings is installed."""
    missing = any(find_spec(package) is None for package in EXTRAS[name])
    return f"pip install 'carso[{name}]' would bring it" if missing else "installed"


def weights() -> dict[str, str]:
    """Where the shipped defences lie, and which of them lack their classifier."""
    from carso.defence import elsewhere, shipped

    found = {}
    for name in shipped.names():
        folder = shipped.SHIPPED / name
        lacks = "" if elsewhere.is_whole(folder) else elsewhere.source_of(folder)["name"]
        found[name] = f"{folder}{f' (its classifier is not here: {lacks})' if lacks else ''}"
    return found


def tell_facts(facts: dict[str, Any]) -> None:
    """Print what was found, a line each."""
    shown = ("versions", "hardware", "extras", "data", "weights")
    width = max(len(name) for key in shown for name in facts[key])
    for key in shown:
        print(f"{key}:")
        for name, value in facts[key].items():
            words = ", ".join(map(str, value)) or "none" if isinstance(value, list) else value
            print(f"  {name:{width}} {'not found' if words is None else words}")
    print(f"revision: {facts['revision']}", flush=True)


def tell_ratios(facts: dict[str, Any]) -> None:
    """Print what was measured, and what follows."""
    rows = [(name, f"{value:.2f}") for name, value in facts["ratios"].items()]
    print_table(("alternative", "time over the default's"), rows)
    print("\n".join(facts["suggestions"]))

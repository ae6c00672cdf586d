"""The README of a saved defence, as model hubs show it: what is known, and no more."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from carso.defence.on_disk import Deployed

CARD = """---
library_name: carso
tags: [adversarial-robustness, image-classification, purification]
---

# A defended classifier: {name}

A frozen image classifier behind a purifier (CARSO), saved by `carso`. {summary}

```python
import carso

defence = carso.load("{place}"{classifier})  # or the name that this has on a hub
labels = defence.predict(images)  # floats (B, {shape}) in [0, 1]
```

| | |
| --- | --- |
| images | {shape} (C, H, W), floats in [0, 1] |
| classes | {classes} |
| threat in training | {norm}, eps = {eps:.4g} |
| purifier | `{kind}`, {trained} |
| in use | {samples} candidates, aggregation `{aggregation}` |

**Robustness.** This card claims none. `carso evaluate FOLDER --suite adaptive` attacks the whole
defence, and says how far the number can be trusted.
"""


def model_card(defence: Deployed, *, own_code: bool) -> str:
    """The card; a classifier whose code is not ours has to be given to `carso.load` again."""
    scenario = defence.scenario
    classes = ", ".join(defence.classes[:10])
    return CARD.format(
        name=scenario.name,
        summary=scenario.summary,
        place="FOLDER",
        classifier=", classifier=network" if own_code else "",
        shape=", ".join(map(str, defence.trained_shape)),
        classes=classes
        if len(defence.classes) <= 10
        else f"{len(defence.classes)}: {classes}, ...",
        norm=scenario.threat.norm,
        eps=scenario.threat.eps,
        kind=scenario.purifier.kind,
        trained="hardened" if defence.hardened else "trained as the paper does",
        samples=defence.samples,
        aggregation=defence.aggregation,
    )

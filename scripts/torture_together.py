"""Two at once: the same command twice, and eight threads on one defence."""

from __future__ import annotations

import re
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from random import Random
from time import sleep

import torch
from torture_kills import Work, works
from torture_outcomes import Trial, last_line
from torture_subject import SIDE, Started, Subject

PARALLEL, THREADS = "the same command twice at once", "calls in eight threads"
COUNT = 8


def parallel_starts(subject: Subject, random: Random, *, short: bool) -> Iterator[Trial]:
    """Of two that start together one ends well, and the other says who is at work."""
    for work in works(subject)[1 if short else 0 :]:
        for _ in range(1 if short else 10):
            yield started_twice(subject, work, random.uniform(0, work.seconds * 0.2))


def started_twice(subject: Subject, work: Work, delay: float) -> Trial:
    place = subject.fresh(work.place)
    running = []
    for pause in (delay, 0.0):
        running.append(Started(work.words(place), subject.folder, first=lambda: None))
        sleep(pause)
    ended = [one.wait() for one in running]
    first, second = sorted((one for one in ended if one is not None), key=lambda one: one.code)
    named = re.search(r"process \d+ on ", second.err)
    outcome = work.result(first, place)
    if outcome == "equal":
        if second.traceback:
            outcome = "traceback"
        elif second.code == 0:
            outcome = "unclear"  # both think that they have made it
        elif not (second.refused and named):
            outcome = "unclear"
    what = f"carso {work.name}, twice, {delay:.2f} s apart"
    said = f"exit codes {first.code} and {second.code}: {last_line(second.err)}"
    return Trial(kind=PARALLEL, what=what, outcome=outcome, said=said)


def threads(subject: Subject, random: Random, *, short: bool) -> Iterator[Trial]:
    """What eight threads get of one defence at once is what they would get in turn."""
    import carso

    source = torch.Generator().manual_seed(random.randrange(2**31))
    for turn in range(2 if short else 25):
        images = torch.rand(COUNT, 1, 1, SIDE, SIDE, generator=source)
        defence = carso.load(subject.folder / "run")
        alone = [defence.representation(image) for image in images]
        with ThreadPoolExecutor(COUNT) as pool:
            together = list(pool.map(defence.representation, images))
        same = all(
            torch.equal(a, b)
            for one, other in zip(alone, together, strict=True)
            for a, b in zip(one, other, strict=True)
        )
        yield judged(f"activations of {COUNT} images, turn {turn}", same)
        # Of one image, since threads take the noise in any order.
        defence.seed(turn)
        in_turn = [defence.explain(images[0]).log_probabilities for _ in range(COUNT)]
        defence.seed(turn)
        with ThreadPoolExecutor(COUNT) as pool:
            at_once = list(pool.map(lambda _: defence.explain(images[0]), range(COUNT)))  # noqa: B023
        wanted = sorted(tuple(value.flatten().tolist()) for value in in_turn)
        found = sorted(tuple(value.log_probabilities.flatten().tolist()) for value in at_once)
        yield judged(f"{COUNT} explanations of an image, turn {turn}", wanted == found)


def judged(what: str, same: bool) -> Trial:
    return Trial(kind=THREADS, what=what, outcome="equal" if same else "silent")

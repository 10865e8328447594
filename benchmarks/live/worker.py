"""A process that measures one build: it reads points from its input, a line of JSON each, and answers in kind.

It runs in an interpreter that finds the build to measure first, so that the answers name what was measured.
"""

from __future__ import annotations

import json
import sys
import warnings
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import penstock as pk
from benchmarks.live.measure import latency, throughput
from benchmarks.live.points import Found, Point
from benchmarks.live.pushing import available


def greeting() -> dict[str, Any]:
    """Say which build this is, and which ways to push it has."""
    return {
        "package": str(Path(pk.__file__).resolve().parent),
        "version": pk.__version__,
        "ways": list(available()),
    }


def answer(request: Mapping[str, Any]) -> dict[str, Any]:
    """Measure one point; whatever it raises is an answer too."""
    point = Point.from_json(request)
    try:
        found = latency(point) if point.rate else throughput(point)
    except Exception as error:  # noqa: BLE001 - a failed point is a row of the report, not a crash
        found = Found(0, 0.0, 0.0, error=f"{type(error).__name__}: {' '.join(str(error).split())}"[:300])
    return found.as_json()


def main() -> None:
    """Answer until the input ends."""
    warnings.simplefilter("ignore")
    say(greeting())
    for line in sys.stdin:
        say(answer(json.loads(line)))


def say(values: Mapping[str, Any]) -> None:
    """Write one line."""
    sys.stdout.write(json.dumps(values) + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    main()

"""A process that answers one question with one build, and says what that cost: its own first answer, then the best of several laps."""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path

import penstock as pk
from benchmarks.turns.questions import QUESTIONS


def main(name: str, rows: int, threads: int, laps: int) -> None:
    """Answer once, then `laps` times more, and print a line of JSON."""
    question = QUESTIONS[name]
    answer = question(
        rows, threads
    )  # loads data and compiles: it is part of the whole process, which the parent times
    found = []
    for _ in range(laps):
        wall, processor = time.perf_counter(), time.process_time()
        answer = question(rows, threads)
        found.append((time.process_time() - processor, time.perf_counter() - wall))
    line = {
        "package": str(Path(pk.__file__).resolve().parent),
        "rows": answer.num_rows,
        "processor": min(processor for processor, _ in found),
        "wall": min(wall for _, wall in found),
    }
    sys.stdout.write(json.dumps(line) + "\n")


if __name__ == "__main__":
    main(sys.argv[1], *map(int, sys.argv[2:]))

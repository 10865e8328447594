"""Run questions by two builds in turns, each time in a new process, and compare medians."""

from __future__ import annotations

import json
import os
import resource
import statistics
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

import typer

from benchmarks.fresh import NO_DISK_CACHE
from benchmarks.live.builds import REPOSITORY, Build, BuildError, current, install
from benchmarks.turns.questions import LAKE, QUESTIONS

Progress = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class TurnsRequest:
    """What to compare, and how often."""

    baseline: str
    questions: tuple[str, ...] = tuple(QUESTIONS)
    rows: int = 20_000_000
    threads: int = 1
    rounds: int = 10
    laps: int = 5


@dataclass(frozen=True, slots=True)
class Cost:
    """Processor seconds of a whole process and of its best lap, and the wall seconds of that lap."""

    process: float
    processor: float
    wall: float
    answers: int


def run_turns(request: TurnsRequest, progress: Progress = print) -> list[str]:
    """Measure all questions and return the report, a line each."""
    with TemporaryDirectory(prefix="penstock-turns-") as folder:
        builds = (install(request.baseline, Path(folder)), current())
        lake = Path(folder) / "lake"
        return [HEADING, *(_compared(name, builds, request, lake, progress) for name in request.questions)]


HEADING = f"{'question':14}{'process':>9}{'lap':>8}{'wall':>8}   baseline / this build; more than 1: this build is faster"


def _compared(
    name: str, builds: Sequence[Build], request: TurnsRequest, lake: Path, progress: Progress
) -> str:
    """Ask both builds in turns, the first one changing from round to round."""
    costs: dict[str, list[Cost]] = {build.name: [] for build in builds}
    for number in range(request.rounds):
        for build in builds if number % 2 else reversed(builds):
            costs[build.name].append(_asked(name, build, request, lake))
    if len({cost.answers for found in costs.values() for cost in found}) != 1:
        raise BuildError(f"{name}: the builds disagree about the number of rows")
    line = f"{name:14}" + "".join(f"{ratio:8.2f}x" for ratio in _ratios(*costs.values()))
    progress(line)
    return line


def _ratios(before: Sequence[Cost], after: Sequence[Cost]) -> Iterator[float]:
    """The median of whole processes, the best of laps."""
    yield statistics.median(c.process for c in before) / statistics.median(c.process for c in after)
    yield min(c.processor for c in before) / min(c.processor for c in after)
    yield min(c.wall for c in before) / min(c.wall for c in after)


def _asked(name: str, build: Build, request: TurnsRequest, lake: Path) -> Cost:
    path = os.pathsep.join([str(build.folder), str(REPOSITORY)])
    arguments = [name, str(request.rows), str(request.threads), str(request.laps)]
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    done = subprocess.run(
        [sys.executable, "-m", "benchmarks.turns.worker", *arguments],
        env=os.environ | NO_DISK_CACHE | {"PYTHONPATH": path, LAKE: str(lake)},
        capture_output=True,
        text=True,
        check=False,
    )
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    if done.returncode != 0:
        raise BuildError(f"{name} failed with {build.name}: {done.stderr.strip()[-300:]}")
    said = json.loads(done.stdout.splitlines()[-1])
    if not Path(said["package"]).is_relative_to(build.folder.resolve()):
        raise BuildError(f"{build.name} should be measured, but {said['package']} was imported")
    process = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return Cost(process, said["processor"], said["wall"], said["rows"])


def run_command(request: TurnsRequest) -> None:
    """Print progress and the report."""
    unknown = [name for name in request.questions if name not in QUESTIONS]
    if unknown:
        raise BuildError(f"--questions: no such question {unknown[0]!r}; there are {', '.join(QUESTIONS)}")
    typer.echo(HEADING)
    run_turns(request, typer.echo)

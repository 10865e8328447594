"""The whole study: fit on three sizes, predict a fourth, then simulate what does not fit on any machine here."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from benchmarks.scale.measure import Way, prepared, sizes
from benchmarks.scale.model import Measured, Model, fit, off_by
from benchmarks.scale.plan import cut_by_time
from benchmarks.scale.simulate import Lake, Outcome, fragments, simulate

FITTED = (8, 4, 2)  # parts of the largest size
BYTES_PER_ROW = 23  # of ysb-keyed as Parquet
GROUP_BYTES = 128 << 20
TERABYTES = 100
EXECUTORS, CORES = 1_000, 4
FEW, MANY = 3, 12  # tasks for each core
KEYS = 10_000

Progress = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class Study:
    """What was learnt about one way to run queries."""

    way: str
    model: Model
    fitted: tuple[Measured, ...]
    unseen: tuple[Measured, ...]

    @property
    def worst(self) -> float:
        """The largest error among predictions of jobs that were not fitted."""
        return max((abs(off_by(self.model, measured)) for measured in self.unseen), default=0.0)


def study(way: Way, rows: int, folder: Path, repeat: int, progress: Progress) -> Study:
    """Measure four sizes in turns, so that a machine's moods meet all of them; fit three, and predict the largest."""
    trials = [
        made for part in (*FITTED, 1) for size in sizes(rows // part) for made in prepared(way, size, folder)
    ]
    for turn in range(repeat):
        for trial in trials if turn % 2 == 0 else reversed(trials):
            job = trial.job
            progress(
                f"{way.name}, round {turn + 1}: {job.rows:,} rows, {job.results:,} results, {job.tasks} tasks"
            )
            trial.run()
    found = [trial.measured() for trial in trials]
    known = [measured for measured in found if measured.job.rows < rows]
    return Study(
        way.name, fit(known), tuple(known), tuple(measured for measured in found if measured.job.rows == rows)
    )


@dataclass(frozen=True, slots=True)
class Scene:
    """A lake to simulate, how many tasks each core gets, and which part of them meets a slow machine."""

    name: str
    burst: float
    disorder: float
    waves: int = FEW
    unlucky: float = 0.0


SCENES = (
    Scene("in order", 1.0, 0.0),
    Scene("ten times denser at busy hours", 10.0, 0.0),
    Scene("rows up to three row groups late", 1.0, 3.0),
    Scene("dense and late", 10.0, 3.0),
    Scene("dense and late, 1 % slow tasks", 10.0, 3.0, FEW, 0.01),
    Scene("the same in more tasks", 10.0, 3.0, MANY, 0.01),
)


def simulated(
    model: Model,
    scenes: Sequence[Scene] = SCENES,
    terabytes: float = TERABYTES,
    cores: int = EXECUTORS * CORES,
    per_row: float = 0.001,
) -> list[tuple[Scene, Outcome]]:
    """Plan and run the lake of each scene."""
    rows = GROUP_BYTES // BYTES_PER_ROW
    groups = int(terabytes * 1e12 / GROUP_BYTES)
    return [(scene, _simulated(scene, groups, rows, model, cores, per_row)) for scene in scenes]


def _simulated(scene: Scene, groups: int, rows: int, model: Model, cores: int, per_row: float) -> Outcome:
    lake = fragments(Lake(groups, rows, scene.burst, scene.disorder))
    tasks = cores * scene.waves
    return simulate(lake, cut_by_time, model, tasks, cores, per_row, scene.unlucky, KEYS)

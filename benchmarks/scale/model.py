"""What a job costs: a start, and for each row read, each result made and each task some processor time.

    work    = start + rows * (per_row + log2(keys) * per_key_bit) + results * per_result + tasks * per_task
    seconds = start + (work - start) / workers                      (by the clock, cores being free)

The first is in seconds of processors. Tables of more keys leave the caches, level by level, so a row costs more with
every doubling of the keys. Windows that overlap cost their results and nothing else: a row goes into one pane.
`workers` is the number of cores that find a task. Work is what is fitted: neighbours on a shared machine disturb it far
less than the clock. Nothing is negative, so the model can be read; five numbers are few, so it can be fitted to a
handful of runs and still be trusted beyond them.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import astuple, dataclass
from itertools import combinations
from math import log2

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Job:
    """The size of a job."""

    rows: int
    results: int
    tasks: int
    cores: int
    keys: int = 1

    @property
    def workers(self) -> int:
        return max(1, min(self.tasks, self.cores))

    @property
    def features(self) -> tuple[float, ...]:
        """What the numbers of a model are multiplied by."""
        return 1.0, self.rows, self.rows * log2(max(self.keys, 1)), self.results, self.tasks


@dataclass(frozen=True, slots=True)
class Measured:
    """A job, the processor seconds it used, and how long it took by the clock."""

    job: Job
    work: float
    clock: float = 0.0


@dataclass(frozen=True, slots=True)
class Model:
    """Seconds of a processor for a start, for each row, for each row and doubling of keys, for each result and task.

    >>> model = Model(0.5, 1e-7, 0.0, 0.0, 0.05)
    >>> job = Job(rows=10_000_000, results=0, tasks=2, cores=2)
    >>> round(model.work(job), 3), round(model.seconds(job), 3)
    (1.6, 1.05)
    """

    start: float
    per_row: float
    per_key_bit: float
    per_result: float
    per_task: float

    def work(self, job: Job) -> float:
        """Predict the processor seconds of a job."""
        return self.start + self.parallel(job)

    def parallel(self, job: Job) -> float:
        """The part of the work that tasks share."""
        costs: tuple[float, ...] = astuple(self)
        return sum(cost * many for cost, many in zip(costs[1:], job.features[1:], strict=True))

    def seconds(self, job: Job) -> float:
        """Predict how long a job of equal tasks takes on cores that have nothing else to do."""
        return self.start + self.parallel(job) / job.workers

    def task_seconds(self, rows: float, results: float, keys: int = 1) -> float:
        """Predict one task."""
        return self.parallel(Job(int(rows), int(results), 1, 1, keys))


def fit(points: Sequence[Measured]) -> Model:
    """Find the model with the least relative errors among those without negative parts."""
    jobs = [point.job for point in points]
    features = np.array([job.features for job in jobs], float)
    weighted = features / np.array([point.work for point in points])[:, None]
    best = min(_candidates(weighted), key=lambda found: float(np.square(weighted @ found - 1).sum()))
    return Model(*(float(value) for value in best))


def _candidates(weighted: Floats) -> Iterable[Floats]:
    """Solve with every choice of parts, and keep the solutions without negative ones: five parts are 31 choices."""
    parts = weighted.shape[1]
    for size in range(1, parts + 1):
        for chosen in combinations(range(parts), size):
            scale = np.maximum(weighted[:, chosen].max(axis=0), 1e-300)  # a part may be zero in all jobs
            ones = np.ones(len(weighted))
            some = np.linalg.lstsq(weighted[:, chosen] / scale, ones, rcond=None)[0] / scale
            if (some >= 0).all():
                whole = np.zeros(parts)
                whole[list(chosen)] = some
                yield whole


def off_by(model: Model, point: Measured) -> float:
    """Tell how far a prediction is off, as a part of what was measured."""
    return model.work(point.job) / point.work - 1


def shown(model: Model) -> str:
    """Print a model in units people know."""
    start, row, bit, result, task = astuple(model)
    rows = f"{row * 1e9:.1f} ns a row + {bit * 1e9:.2f} ns a row and doubling of keys"
    per_unit = f"{rows} + {result * 1e9:.0f} ns a result + {task * 1e3:.0f} ms a task"
    return f"{start:.2f} s + {per_unit}"

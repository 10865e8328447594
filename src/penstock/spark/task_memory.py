"""The memory of a task: what it may use by the settings of the session, and what it will need.

A Python worker is beside the executor's JVM. `spark.executor.pyspark.memory` bounds the workers of an executor together,
else they live in `spark.executor.memoryOverhead`. What is left of it for one task, after the worker itself, is its budget.
"""

from __future__ import annotations

import gc
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING

import pyarrow as pa

from penstock.errors import EngineError
from penstock.physical.memory_need import Need
from penstock.runtime.memory.budget import Budget, memory_bytes, size_of

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

# Resident in a worker before the first row: Python, pyarrow, LLVM, and the batches that are read ahead.
WORKER = 430_000_000
# Resident before the first row, without such batches; they are most of the rows of a small task.
_EMPTY, _READ_AHEAD, _MOST_READ_AHEAD = 240_000_000, 0.7, 160_000_000
LEAST = 64_000_000
UNSET = 1_000_000_000  # without any setting, rows beyond it are spilled, but no state is refused
_WORDS = 16  # bytes of a text or another value of variable length, on average
_PYSPARK, _OVERHEAD = "spark.executor.pyspark.memory", "spark.executor.memoryOverhead"


@dataclass(frozen=True, slots=True)
class TaskMemory:
    """The budget of a task in bytes, and where it comes from. Only a `strict` one refuses states."""

    limit: int = UNSET
    origin: str = "no setting bounds it"
    strict: bool = False

    def budget(self) -> Budget:
        return Budget(self.limit, self.strict)


UNBOUNDED = TaskMemory()


def task_memory(spark: SparkSession, given: object) -> TaskMemory:
    """Return the memory of a task: as given, or by the settings of the session."""
    if given is not None:
        return TaskMemory(memory_bytes(given), "memory=", strict=True)
    return from_settings(lambda name: spark.conf.get(name, None))


def from_settings(setting: Callable[[str], str | None]) -> TaskMemory:
    """Return the share of one task in the memory of an executor's Python workers.

    >>> from_settings({"spark.executor.pyspark.memory": "8g", "spark.executor.cores": "4"}.get).limit
    1717483648
    >>> from_settings({}.get).strict
    False
    """
    for name in (_PYSPARK, _OVERHEAD):
        size = _mebibytes(setting(name))
        if size:
            share = size // _tasks_at_once(setting)
            return TaskMemory(
                max(share - WORKER, LEAST), f"{name} for {_tasks_at_once(setting)} tasks", strict=True
            )
    return UNBOUNDED


def _tasks_at_once(setting: Callable[[str], str | None]) -> int:
    return max(int(setting("spark.executor.cores") or 1) // int(setting("spark.task.cpus") or 1), 1)


def _mebibytes(text: str | None) -> int:
    """Read a size of Spark, which counts in MiB without a unit. What cannot be read is no limit."""
    if text is None:
        return 0
    try:
        return int(text) << 20 if text.strip().isdigit() else memory_bytes(text, 0)
    except EngineError:
        return 0


# --- what a task will need --------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class TaskNeed:
    """The peak of a task: what it reads ahead, and holds of `rows` rows, in memory or spilled."""

    rows: int
    ahead: int
    held: int
    spilled: int
    operator: str | None

    @property
    def peak(self) -> int:
        return _EMPTY + self.ahead + self.held

    def __str__(self) -> str:
        holds = (
            "no operator holds rows"
            if self.operator is None
            else f"{self.operator} holds up to {self.rows} rows"
        )
        spills = f", {size_of(self.spilled)} of them spilled" if self.spilled else ""
        return f"a task needs about {size_of(self.peak)}: {holds}{spills}"


def task_need(
    needs: Sequence[Need], rows: int, schema: pa.Schema, memory: TaskMemory, ordered: bool
) -> TaskNeed:
    """Predict the peak of the task that has `rows` rows, in time order or not, and the columns that a query reads."""
    width = width_of(schema)
    ahead = int(min(_READ_AHEAD * rows * width, _MOST_READ_AHEAD))
    if not needs:
        return TaskNeed(rows, ahead, 0, 0, None)
    largest = max(needs, key=lambda need: need.times * width + need.plus)
    whole = int(rows * (largest.times * width + largest.plus))
    if whole <= memory.limit // 2:
        return TaskNeed(rows, ahead, int(largest.reached * whole), 0, largest.operator)
    held = int(largest.share * memory.limit)
    return TaskNeed(rows, ahead, held, 0 if ordered else rows * width, largest.operator)


def width_of(schema: pa.Schema) -> int:
    """Estimate the bytes of a row."""
    return sum(_bytes(field.type) for field in schema)


def _bytes(dtype: pa.DataType) -> int:
    try:
        return max(int(dtype.bit_width) // 8, 1)
    except ValueError:
        return _WORDS


@cache
def settle(work: str = "files") -> None:
    """Exclude everything that a worker has loaded by its first task of one kind of work from garbage collection.

    A Spark worker collects garbage after every task. Scanning every module and compiled query each time took 70 ms of
    processor time, of about 100 ms that a small task cost. Each kind of work loads other modules, pandas among them.
    """
    from pyspark import TaskContext  # noqa: PLC0415 - runs inside a task of Spark

    if TaskContext.get() is not None:
        gc.collect()
        gc.freeze()

"""Say what is aggregated, and generate the numbers: seeded, ordered by time."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from benchmarks.workloads import START_US

Numbers = npt.NDArray[Any]
Ints = npt.NDArray[np.int64]

DISTINCT = 64
"""The paper's integers are uniform in [0, 64): the minimum of a window leaves it often."""
SECOND_US = 1_000_000
MINUTE = 60
BUSIEST = 100_000
"""Events in the busiest second of the spiky trace."""


class Aggregate(StrEnum):
    """The aggregates of the paper."""

    SUM = "sum"
    MIN = "min"
    AVG = "avg"


class Shape(StrEnum):
    """How numbers follow each other: what makes a minimum leave its window seldom, often or every time."""

    RANDOM = "random"
    ASCENDING = "ascending"
    DESCENDING = "descending"
    SAWTOOTH = "sawtooth"


@dataclass(frozen=True, slots=True)
class Subject:
    """An aggregate over numbers of a type."""

    dtype: str
    aggregate: Aggregate

    @property
    def kind(self) -> str:
        """The name the C++ reference knows it by."""
        return f"{self.dtype} {self.aggregate}"

    @property
    def result(self) -> str:
        """The type of the answer: sums of integers are exact, averages are floats."""
        match self.dtype, self.aggregate:
            case "int32", Aggregate.SUM:
                return "int64"
            case _, Aggregate.AVG:
                return "float64"
            case _:
                return self.dtype

    def __str__(self) -> str:
        return f"{self.dtype} {self.aggregate.upper()}"


MAIN = (Subject("int32", Aggregate.SUM), Subject("int32", Aggregate.MIN))
OTHERS = (
    Subject("int32", Aggregate.AVG),
    Subject("float64", Aggregate.SUM),
    Subject("float64", Aggregate.MIN),
    Subject("float64", Aggregate.AVG),
)


def numbers(shape: Shape, dtype: str, rows: int, seed: int = 1) -> Numbers:
    """Draw the column to aggregate."""
    match shape:
        case Shape.RANDOM if dtype == "int32":
            return np.random.default_rng(seed).integers(0, DISTINCT, rows, dtype=np.int32)
        case Shape.RANDOM:
            return np.random.default_rng(seed).uniform(-50, 50, rows)
        case Shape.ASCENDING:
            return np.arange(rows).astype(dtype)
        case Shape.DESCENDING:
            return np.arange(rows, 0, -1).astype(dtype)
        case Shape.SAWTOOTH:
            return (np.arange(rows) % 777).astype(dtype)


def spiky(rows: int, seed: int = 1) -> pa.Table:
    """Build `ts, cpu` of a cluster's tasks: seconds with no event beside seconds with a hundred thousand.

    Like the Google trace of the paper: the rate of a second is heavy-tailed, and one in eight is silent.
    """
    random = np.random.default_rng(seed)
    pieces: list[Ints] = []
    while sum(piece.size for piece in pieces) < rows:
        pieces.append(len(pieces) * MINUTE * SECOND_US + spiky_minute(random))
    times = np.concatenate(pieces)[:rows]
    ts = pa.array(START_US + times).cast(pa.timestamp("us"))
    return pa.table({"ts": ts, "cpu": pa.array(random.random(rows))})


def spiky_minute(random: np.random.Generator) -> Ints:
    """Draw the times of a minute's events, in order."""
    rates = random.pareto(1.1, MINUTE) * 2_000 * (random.random(MINUTE) > 1 / 8)
    counts = np.minimum(rates, BUSIEST).astype(np.int64)
    starts = np.repeat(np.arange(MINUTE) * SECOND_US, counts)
    return np.sort(starts + random.integers(0, SECOND_US, starts.size))


def samples(rows: int, step_us: int, keys: int = 1, seed: int = 1) -> pa.Table:
    """Build `ts, k, x, v`: rows a fixed step apart, uniform keys, a float and an integer."""
    random = np.random.default_rng(seed)
    return pa.table(
        {
            "ts": pa.array(START_US + step_us * np.arange(rows, dtype=np.int64)).cast(pa.timestamp("us")),
            "k": pa.array(random.integers(0, keys, rows, dtype=np.int64)),
            "x": pa.array(random.uniform(-50, 50, rows)),
            "v": pa.array(random.integers(0, 1_000, rows, dtype=np.int64)),
        }
    )

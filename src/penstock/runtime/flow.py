"""What moves between stages, and what a stage is."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import numpy as np
import pyarrow as pa

NEVER = -(1 << 63)
FOREVER = (1 << 63) - 1


@dataclass(frozen=True)
class Flow:
    """Rows on their way. `frontier[i]` is the watermark when row i arrived; None when no row is behind it.

    Carrying the watermark with each row makes lateness a property of the order of rows alone: however
    the input is cut into batches, the same rows are late. `first_row` numbers the rows of a stream.
    """

    batch: pa.RecordBatch
    frontier: np.ndarray | None = None
    first_row: int = 0


class Stage(Protocol):
    """One step of a running query. Ports number a stage's inputs."""

    def push(self, port: int, flows: list[Flow]) -> list[Flow]:
        """Take rows and give those that can already leave."""

    def advance(self, port: int, watermark: int) -> tuple[list[Flow], int]:
        """Learn that no row before `watermark` will come; give results and the watermark behind them."""

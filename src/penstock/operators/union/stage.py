"""The union stage: rows of several inputs in order of arrival."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np
import pyarrow as pa

from penstock.runtime.stage import (
    END_OF_TIME,
    START_OF_TIME,
    TimedBatch,
)
from penstock.state.state_table import StateTable, read_scalars, scalars


class MergeStage:
    """Union: rows pass in arrival order; the watermark is the minimum over the inputs.

    `origins` names the streams behind each input. Inputs that branch off the same stream carry the same rows, so
    the watermark a row carries holds for all of them.
    """

    def __init__(self, origins: Sequence[frozenset[str]]) -> None:
        self.origins = origins
        self.watermarks = [START_OF_TIME] * len(origins)

    def push(self, port: int, timed_batches: list[TimedBatch]) -> list[TimedBatch]:
        elsewhere = (
            mark
            for mark, origin in zip(self.watermarks, self.origins, strict=True)
            if origin != self.origins[port]
        )
        others = min(elsewhere, default=END_OF_TIME)
        return [
            replace(
                timed_batch,
                arrival_watermarks=None
                if timed_batch.arrival_watermarks is None
                else np.minimum(timed_batch.arrival_watermarks, others),
                branch=timed_batch.branch * len(self.origins) + port,
            )
            for timed_batch in timed_batches
        ]

    def advance(self, port: int, watermark: int) -> tuple[list[TimedBatch], int]:
        self.watermarks[port] = max(self.watermarks[port], watermark)
        return [], min(self.watermarks)

    def save(self) -> Mapping[str, StateTable]:
        return {"marks": scalars(**{f"port_{port}": mark for port, mark in enumerate(self.watermarks)})}

    def load(self, tables: Mapping[str, pa.Table]) -> None:
        saved = read_scalars(tables["marks"])
        self.watermarks = [saved[f"port_{port}"] for port in range(len(self.origins))]

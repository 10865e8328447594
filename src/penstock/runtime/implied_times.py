"""Times that follow from row numbers, as columns."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from penstock.errors import OverflowError
from penstock.runtime.buffers import time_array
from penstock.runtime.stage import (
    END_OF_TIME,
)
from penstock.types.time import Time

BEYOND = "implied times reach beyond the range of 64 bits; start them earlier"


def implied_time(time: Time, row: int) -> int:
    """The time of a row, computed from its row number."""
    assert time.period is not None
    found = time.start + row * time.period
    if found > END_OF_TIME:
        raise OverflowError(BEYOND)
    return found


def implied_times(time: Time, first_row: int, rows: int) -> pa.Array:
    """The times of rows, computed from their row numbers."""
    assert time.period is not None
    return time_array(np.arange(first_row, first_row + rows) * time.period + time.start, time.type)


def with_implied_time(batch: pa.RecordBatch, time: Time, first_row: int, schema: pa.Schema) -> pa.RecordBatch:
    """Materialise the column of an implied time, if the schema has it."""
    if time.column not in schema.names:
        return batch
    arrays = [
        implied_times(time, first_row, batch.num_rows) if name == time.column else batch.column(name)
        for name in schema.names
    ]
    return pa.RecordBatch.from_arrays(arrays, schema=schema)

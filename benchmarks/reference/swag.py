"""Call the two-stacks reference (`swag.cpp`)."""

from __future__ import annotations

import ctypes
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from benchmarks.reference import Ints, NoCompilerError, load_library

Numbers = npt.NDArray[Any]

KINDS = ("int32 sum", "int32 min", "int32 avg", "float64 sum", "float64 min", "float64 avg")
"""What `swag_count` aggregates, by its number."""


@dataclass(frozen=True, slots=True)
class SwagReference:
    """The compiled reference: `library` exports the functions of `swag.cpp`."""

    library: ctypes.CDLL

    def count(self, kind: str, data: Numbers, size: int, every: int, out: Numbers, scans: bool = True) -> int:
        """Aggregate full windows of `size` rows into `out`, and give their number.

        `scans=False` keeps the stacks scalar, as the paper has them.
        """
        arguments = (KINDS.index(kind), data.ctypes.data, data.size, size, every, scans, out.ctypes.data)
        return int(self.library.swag_count(*arguments))

    def read(self, data: Numbers) -> int:
        """Read an array once, and give the sum of its 64-bit words."""
        return int(self.library.swag_read(data.ctypes.data, data.nbytes // 8))

    def time_avg(
        self, times: Ints, values: npt.NDArray[np.float64], size: int, every: int
    ) -> tuple[Ints, npt.NDArray[np.float64]]:
        """Average over time windows that hold rows: their starts and their means."""
        most = self.library.swag_time_windows(times.ctypes.data, times.size, size, every)
        starts, means = np.empty(most, np.int64), np.empty(most, np.float64)
        addresses = (times.ctypes.data, values.ctypes.data)
        written = self.library.swag_time_avg(
            *addresses, times.size, size, every, starts.ctypes.data, means.ctypes.data
        )
        return starts[:written], means[:written]


def load_swag() -> SwagReference | NoCompilerError:
    """Compile `swag.cpp` for this processor, or say why not."""
    try:
        library, _ = load_library("swag.cpp")
    except NoCompilerError as error:
        return error
    pointer, long, int_ = ctypes.c_void_p, ctypes.c_int64, ctypes.c_int32
    library.swag_count.restype = long
    library.swag_count.argtypes = [int_, pointer, long, long, long, int_, pointer]
    library.swag_read.restype = long
    library.swag_read.argtypes = [pointer, long]
    library.swag_time_windows.restype = long
    library.swag_time_windows.argtypes = [pointer, long, long, long]
    library.swag_time_avg.restype = long
    library.swag_time_avg.argtypes = [pointer, pointer, long, long, long, pointer, pointer]
    return SwagReference(library)

"""Call the hand-written loops over regular signals (`tilt.cpp`)."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from benchmarks.reference import NoCompilerError, load_library

Numbers = npt.NDArray[Any]
TYPES = {
    "trend": np.uint8, "normalise": np.float64, "resample": np.float64, "read": np.float64, "copy": np.float64,
}  # fmt: skip
"""What each loop writes."""


@dataclass(frozen=True, slots=True)
class TiltReference:
    """The compiled reference: `library` exports the functions of `tilt.cpp`."""

    library: ctypes.CDLL

    def loop(self, name: str, data: Numbers, out: Numbers) -> Callable[[], object]:
        """A call of one loop over an array, into memory that is used again."""
        function = getattr(self.library, f"tilt_{name}")
        arguments = data.ctypes.data, data.size, out.ctypes.data
        return lambda: function(*arguments)

    def traffic(
        self, reads: Sequence[Numbers], writes: Sequence[Numbers], blocks: int
    ) -> Callable[[], object]:
        """A call that reads some memory and writes other, block by block of each in turn, in whole words."""
        arguments = *_words(reads), *_words(writes), blocks
        held = reads, writes  # for as long as their addresses are used

        def run() -> object:
            self.library.tilt_traffic(*arguments)
            return held

        return run


def _words(arrays: Sequence[Numbers]) -> tuple[object, object, int]:
    many = len(arrays)
    places = (ctypes.c_void_p * many)(*(array.ctypes.data for array in arrays))
    return places, (ctypes.c_int64 * many)(*(array.nbytes // 8 for array in arrays)), many


def load_tilt() -> TiltReference | NoCompilerError:
    """Compile `tilt.cpp` for this processor, or say why not."""
    try:
        library, _ = load_library("tilt.cpp")
    except NoCompilerError as error:
        return error
    pointer, long = ctypes.c_void_p, ctypes.c_int64
    for name in TYPES:
        getattr(library, f"tilt_{name}").argtypes = [pointer, long, pointer]
        getattr(library, f"tilt_{name}").restype = long if name == "resample" else None
    library.tilt_traffic.argtypes = [pointer, pointer, long, pointer, pointer, long, long]
    library.tilt_traffic.restype = None
    return TiltReference(library)

"""Call the hand-written loops over regular signals (`tilt.cpp`)."""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from penstock.bench.reference import NoCompilerError, load_library

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
    return TiltReference(library)

"""Compile and call the hand-written C++ references (`ysb.cpp` here, `swag.cpp` in `swag.py`).

They are compiled when a benchmark starts, for the processor at hand, so that they are held back by
nothing but the machine. A machine without a C++ compiler gets a clear error, and the run goes on without.
"""

from __future__ import annotations

import ctypes
import os
import shutil
import subprocess
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from importlib import resources
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from penstock.calibration.machine import best_seconds
from penstock.errors import PenstockError

FLAGS = ("-O3", "-march=native", "-std=c++17", "-shared", "-fPIC", "-pthread")
WINDOW_US = 10_000_000
BANDWIDTH_WORDS = 16 << 20
COLUMNS = ("ts", "event_type", "campaign_id", "value")

Ints = npt.NDArray[np.int64]


class NoCompilerError(PenstockError, RuntimeError):
    """No C++ compiler is installed, or it cannot build the reference."""


@dataclass(frozen=True, slots=True)
class Reference:
    """The compiled reference: `library` exports the functions of `ysb.cpp`."""

    library: ctypes.CDLL
    compiler: str

    def ysb_keyed(self, table: pa.Table, keys: int, threads: int) -> pa.Table:
        """Answer ysb-keyed over int32 event types and keys in [0, keys)."""
        columns = [single_chunk(table, name) for name in COLUMNS]
        result = self.library.ysb_run(
            *(column.ctypes.data for column in columns), table.num_rows, keys, WINDOW_US, 1, threads
        )
        groups = self.library.ysb_groups(result)
        starts, ends, campaigns, totals = (np.empty(groups, np.int64) for _ in range(4))
        self.library.ysb_finish(result, *(out.ctypes.data for out in (starts, ends, campaigns, totals)))
        return ysb_result(starts, ends, campaigns, totals)

    def read_bandwidth(self, threads: int, repeat: int = 5) -> float:
        """Measure how many bytes a second `threads` threads can read."""
        data = np.ones(BANDWIDTH_WORDS, np.int64)
        return data.nbytes / best_seconds(lambda: self.read(np.split(data, 4), threads), repeat)

    def read_columns(self, table: pa.Table, threads: int) -> None:
        """Read the columns that ysb-keyed reads, and do nothing with them."""
        self.read([single_chunk(table, name) for name in COLUMNS], threads)

    def read(self, arrays: Sequence[npt.NDArray[Any]], threads: int) -> None:
        """Read arrays, each thread its part of every one."""
        many = len(arrays)
        starts = (ctypes.c_void_p * many)(*(array.ctypes.data for array in arrays))
        words = (ctypes.c_int64 * many)(*(array.nbytes // 8 for array in arrays))
        self.library.read_memory(starts, words, many, threads)


def ysb_result(starts: Ints, ends: Ints, campaigns: Ints, totals: Ints) -> pa.Table:
    """Wrap the output columns as the table the query gives, without copying."""
    time = pa.timestamp("us")
    return pa.table(
        {
            "window_start": pa.array(starts).view(time),
            "window_end": pa.array(ends).view(time),
            "campaign_id": pa.array(campaigns),
            "total": pa.array(totals),
        }
    )


def single_chunk(table: pa.Table, name: str) -> npt.NDArray[np.generic]:
    """Give a column's values as one NumPy array over the same memory."""
    column = table.column(name)
    # combine_chunks copies even a single chunk, which would cost more than the query.
    array = column.chunk(0) if column.num_chunks == 1 else column.combine_chunks()
    if pa.types.is_timestamp(array.type):
        array = array.view(pa.int64())
    values: npt.NDArray[np.generic] = array.to_numpy(zero_copy_only=True)
    return values


def find_compiler() -> str:
    """Find a C++ compiler: `$CXX`, then the usual names."""
    for name in (os.environ.get("CXX"), "g++", "clang++", "c++"):
        path = shutil.which(name) if name else None
        if path:
            return path
    raise NoCompilerError("no C++ compiler found: install g++ or set CXX to run the C++ reference")


def load_reference() -> Reference:
    """Compile `ysb.cpp` for this processor and load it."""
    library, compiler = load_library("ysb.cpp")
    return Reference(declare(library), compiler)


def load_library(source: str) -> tuple[ctypes.CDLL, str]:
    """Compile a file of this folder for this processor; give it loaded, and say what compiled it."""
    compiler = find_compiler()
    with tempfile.TemporaryDirectory(prefix="penstock-bench-") as folder:
        library = build(compiler, source, Path(folder) / "reference.so")
        return ctypes.CDLL(str(library)), version_line(compiler)


def build(compiler: str, source: str, target: Path, flags: Sequence[str] = FLAGS) -> Path:
    """Compile a file of this folder into the shared library `target`."""
    with resources.as_file(resources.files(__package__) / source) as path:
        done = subprocess.run(
            [compiler, *flags, "-o", str(target), str(path)], capture_output=True, text=True, check=False
        )
    if done.returncode != 0:
        raise NoCompilerError(f"{compiler} cannot build the C++ reference: {done.stderr.strip()[:500]}")
    return target


def version_line(compiler: str) -> str:
    """Give the first line of the compiler's `--version`, with the flags used."""
    done = subprocess.run([compiler, "--version"], capture_output=True, text=True, check=False)
    return f"{done.stdout.splitlines()[0] if done.stdout else compiler} {' '.join(FLAGS[:2])}"


def declare(library: ctypes.CDLL) -> ctypes.CDLL:
    """Tell ctypes the signatures of the exported functions."""
    pointer, long, int_ = ctypes.c_void_p, ctypes.c_int64, ctypes.c_int32
    library.ysb_run.restype = pointer
    library.ysb_run.argtypes = [pointer] * 4 + [long, long, long, int_, int_]
    library.ysb_groups.restype = long
    library.ysb_groups.argtypes = [pointer]
    library.ysb_finish.restype = None
    library.ysb_finish.argtypes = [pointer] * 5
    library.read_memory.restype = long
    library.read_memory.argtypes = [pointer, pointer, int_, int_]
    return library

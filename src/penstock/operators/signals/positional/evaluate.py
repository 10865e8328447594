"""Positional evaluation of signals: slices of positions with halos, one per thread, without synchronisation.

The position alone selects the kernel that computes it (is everything it can depend on inside the samples?), and
the computation does not depend on the cut. So results are identical to the last bit for any batches and any
number of threads.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np
import pyarrow as pa

from penstock.algorithms.kernel_factory import BatchArguments
from penstock.loop.abi import NEED_WIDE, Binding, OutputColumn, PastResults, Scratch
from penstock.runtime.buffers import filled, numpy_type, room, to_arrow, words_per_cell
from penstock.runtime.kernels import Call
from penstock.runtime.stage import KernelOverflowError
from penstock.runtime.threads import run_on_threads

Nullable = Mapping[str, frozenset[str]]  # the columns that hold nulls, by input

LEAST_SLICE = 1 << 16  # positions: shorter slices cost more Python time than idle threads do
HALOS = 4  # a slice is at least this many times as long as its halo


@dataclass(frozen=True)
class DenseCall:
    """A kernel, the bindings of its parameters, and its buffers."""

    call: Call
    inputs: tuple[tuple[Binding, ...], ...]
    places: tuple[tuple[str, str], ...]  # the parameters for base and total of each input
    outputs: tuple[OutputColumn, ...]
    scratch: tuple[Scratch, ...]
    memories: tuple[PastResults, ...]


class DenseProgram(Protocol):
    """A compiled positional program and its properties."""

    @property
    def outputs(self) -> tuple[OutputColumn, ...]: ...

    @property
    def memories(self) -> tuple[PastResults, ...]:
        """The history that each feedback reads."""

    past: int  # reach of a result: positions before its windows, and after them (`future`)
    future: int
    lasting: int
    shortest: int
    grid: int
    phase: int
    sequential: bool
    marks: tuple[int, int] | None

    def call(self, nullable: Nullable, edge: bool, wide: bool, lost: bool) -> DenseCall:
        """Return the kernel for what is known of the samples."""

    def outputs_before(self, position: int) -> int:
        """Return the number of results before a position, counted from a fixed origin."""


@dataclass(frozen=True, slots=True)
class InputSamples:
    """The samples of an input from position `base` on."""

    rows: pa.RecordBatch
    base: int = 0

    @property
    def total(self) -> int:
        return self.base + len(self.rows)


@dataclass(frozen=True, slots=True)
class PositionalColumn:
    """Results: values, validity bytes, and whether any value is null."""

    values: np.ndarray
    valid: np.ndarray
    nulls: bool

    def to_arrow(self, dtype: pa.DataType) -> pa.Array:
        return to_arrow(self.values, self.valid if self.nulls else None, dtype)


@dataclass
class DenseSignals:
    """Evaluates one program. A sequential program continues where the last call ended."""

    program: DenseProgram
    threads: int = 1
    wide: bool = False
    histories: list[tuple[np.ndarray, np.ndarray]] = field(default_factory=list)
    _scratch: dict[int, list[dict[str, np.ndarray]]] = field(default_factory=dict)

    def span(self, total: int) -> tuple[int, int]:
        """Return the positions at which the output can change, for `total` samples of the longest input.

        The span includes the next common grid point: a window that holds the last sample may end there.
        """
        program = self.program
        last = self._down(total + program.past + program.lasting + program.grid - 1)
        return self._down(-program.future), last + program.grid

    def ready(self, total: int) -> int:
        """Return the position before which results are final, while more samples may arrive."""
        return self._down(max(total - self.program.future, self.span(0)[0]))

    def _down(self, position: int) -> int:
        """Round a position down to one where all grids meet."""
        return position - (position + self.program.phase) % self.program.grid

    def evaluate(
        self,
        samples: Sequence[InputSamples],
        lo: int,
        hi: int,
        room: Sequence[PositionalColumn] | None = None,
    ) -> list[PositionalColumn]:
        """Compute the output at positions [lo, hi), into the given buffers or into new ones."""
        columns = self.room(lo, hi) if room is None else room
        nullable = {str(i): nullable_columns(sample.rows) for i, sample in enumerate(samples)}
        sure: list[list[slice]] = [[] for _ in columns]  # the parts of a column that cannot hold nulls
        nulls = [False for _ in columns]
        for begin, end, edge in self._parts(samples, lo, hi):
            call, whole = self._computed(nullable, edge, samples, (begin, end), lo, columns)
            part = slice(self._place(begin, lo), self._place(end, lo))
            for i, output in enumerate(call.outputs):
                if output.valid is None:
                    sure[i].append(part)
                else:
                    nulls[i] |= not whole[i]
        return [_marked(*column) for column in zip(columns, sure, nulls, strict=True)]

    def room(self, lo: int, hi: int) -> list[PositionalColumn]:
        """Allocate buffers for the results of some positions."""
        size = self._place(hi, lo)
        types = [output.type for output in self.program.outputs]
        return [
            PositionalColumn(room(size, numpy_type(dtype)), room(size, np.uint8), True) for dtype in types
        ]

    # -- cutting -------------------------------------------------------------------------------------

    def _parts(self, samples: Sequence[InputSamples], lo: int, hi: int) -> Iterator[tuple[int, int, bool]]:
        """Separate the positions near both ends of the samples; cut where grids meet, between windows."""
        program = self.program
        total = min(sample.total for sample in samples)
        first = self._down(max(program.past, lo) + program.grid - 1)
        last = max(self._down(min(total - program.future, hi)), first)
        for begin, end, edge in (
            (lo, min(hi, first), True),
            (max(lo, first), min(hi, last), False),
            (max(lo, last), hi, True),
        ):
            if begin < end:
                yield begin, end, edge

    def _slices(self, begin: int, end: int) -> list[tuple[int, int]]:
        """Cut positions into slices of falling size, so that threads finish at about the same time."""
        cuts = [begin, end]
        if self.threads > 1 and not self.program.sequential:
            cuts[1:1] = (max(self._down(cut), begin) for cut in self._tapering(begin, end))
        return [(a, b) for a, b in itertools.pairwise(cuts) if a < b]

    def _tapering(self, begin: int, end: int) -> Iterator[int]:
        """Yield the end of each slice: a fraction of the rest, but long relative to the halo."""
        least = max(LEAST_SLICE, HALOS * (self.program.past + self.program.future))
        while end - begin >= 2 * least:
            begin += max((end - begin) // (2 * self.threads), least)
            yield begin

    # -- calling -------------------------------------------------------------------------------------

    def _computed(
        self,
        nullable: Nullable,
        edge: bool,
        samples: Sequence[InputSamples],
        positions: tuple[int, int],
        lo: int,
        columns: Sequence[PositionalColumn],
    ) -> tuple[DenseCall, list[bool]]:
        """Compute some positions with one kernel; if a sum overflows 64 bits, repeat with 128.

        Return the kernel, and for each column whether it has no nulls.
        """
        before = [(values.copy(), valid.copy()) for values, valid in self.histories]
        while True:
            call = self.program.call(nullable, edge, self.wide, not edge and self._lost())
            done = self._done(call, samples, positions, lo, columns)
            statuses = [status for status, _ in done]
            if NEED_WIDE not in statuses:
                break
            self.wide, self.histories = True, before
        if any(statuses):
            raise KernelOverflowError
        return call, [all(wholes) for wholes in zip(*(whole for _, whole in done), strict=True)]

    def _done(
        self,
        call: DenseCall,
        samples: Sequence[InputSamples],
        positions: tuple[int, int],
        lo: int,
        columns: Sequence[PositionalColumn],
    ) -> list[tuple[int, list[bool]]]:
        """Call the kernel for each slice; return its status, and for each column whether it has no nulls."""
        given = self._given(call, samples)
        found: list[tuple[int, list[bool]]] = []

        def work(begin: int, end: int) -> Callable[[], None]:
            results = self._results(call, columns, begin, lo)
            part = slice(self._place(begin, lo), self._place(end, lo))

            def run() -> None:
                status = self._call(call, given | results, begin, end)
                found.append((status, _whole(call, columns, part)))

            return run

        run_on_threads([work(*slice_) for slice_ in self._slices(*positions)], self.threads)
        return found

    def _given(self, call: DenseCall, samples: Sequence[InputSamples]) -> dict[str, Any]:
        given: dict[str, Any] = {}
        for sample, bindings, (base, total) in zip(samples, call.inputs, call.places, strict=True):
            given |= BatchArguments(sample.rows, {}).fill(bindings)
            given |= {base: sample.base, total: sample.total}
        return given

    def _call(self, call: DenseCall, values: dict[str, Any], lo: int, hi: int) -> int:
        kept = self._scratch.setdefault(id(call), [])
        scratch = kept.pop() if kept else _scratch(call)
        status = call.call(values | scratch | self._memory(call) | {"lo": lo, "hi": hi})
        kept.append(scratch)
        return status

    def _results(
        self, call: DenseCall, columns: Sequence[PositionalColumn], begin: int, lo: int
    ) -> dict[str, Any]:
        first = self._place(begin, lo)
        found: dict[str, Any] = {}
        for column, output in zip(columns, call.outputs, strict=True):
            found[output.values] = column.values[first:]
            if output.valid is not None:
                found[output.valid] = column.valid[first:]
        return found

    def _place(self, position: int, lo: int) -> int:
        return self.program.outputs_before(position) - self.program.outputs_before(lo)

    # -- feedback history ----------------------------------------------------------------------------

    def _memory(self, call: DenseCall) -> dict[str, Any]:
        """Return past results, extended to the size that the kernel needs."""
        if not self.histories:
            self.histories = [_first_results(memory) for memory in call.memories]
        found: dict[str, Any] = {}
        for place, memory in enumerate(call.memories):
            values, valid = self.histories[place]
            if len(values) < memory.size:
                self.histories[place] = values, valid = _grown(memory, values, valid)
            found |= {memory.values: values, memory.valid: valid}
        return found

    def _lost(self) -> bool:
        """Whether a past result is null, so that later results may be null."""
        return any(not valid[: self._kept(place)].all() for place, (_, valid) in enumerate(self.histories))

    def _kept(self, place: int) -> int:
        return self.program.memories[place].kept


def _whole(call: DenseCall, columns: Sequence[PositionalColumn], part: slice) -> list[bool]:
    """Return for each column whether a part has no nulls; the flags were just written, so they are in cache."""
    return [
        output.valid is None or bool(column.valid[part].view(np.bool_).all())
        for output, column in zip(call.outputs, columns, strict=True)
    ]


def _marked(column: PositionalColumn, sure: list[slice], nulls: bool) -> PositionalColumn:
    """Set the validity of parts that cannot hold nulls, if the column has any null."""
    for part in sure if nulls else ():
        column.valid[part] = 1
    return PositionalColumn(column.values, column.valid, nulls)


def _first_results(memory: PastResults) -> tuple[np.ndarray, np.ndarray]:
    return filled(memory.type, memory.initial, memory.size), np.ones(memory.size, np.uint8)


def _grown(memory: PastResults, values: np.ndarray, valid: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    larger, flags = _first_results(memory)
    larger[: memory.kept], flags[: memory.kept] = values[: memory.kept], valid[: memory.kept]
    return larger, flags


def _scratch(call: DenseCall) -> dict[str, np.ndarray]:
    return {
        scratch.parameter: np.empty(scratch.size * words_per_cell(scratch.type), numpy_type(scratch.type))
        for scratch in call.scratch
    }


def nullable_columns(rows: pa.RecordBatch) -> frozenset[str]:
    """Return the columns that hold a null."""
    return frozenset(
        name for name, array in zip(rows.schema.names, rows.columns, strict=True) if array.null_count
    )

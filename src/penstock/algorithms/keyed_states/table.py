"""The arrays that kernels over states per key read and write, and the loop that runs a kernel until all rows are in."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

import numpy as np
import pyarrow as pa

from penstock.algorithms.batch_arguments import BatchArguments
from penstock.algorithms.keyed_states.bound_call import BoundCall
from penstock.algorithms.keyed_states.directory import KeyDirectory
from penstock.loop.abi import (
    DONE,
    ERRORS,
    NEED_KEYS,
    NEED_SLOTS,
    OUTPUT,
    STATUS,
    Binding,
    OutputColumn,
    numbered,
)
from penstock.loop.nodes import I128, Type
from penstock.runtime.buffers import column_type, filled, numpy_type, to_arrow, values_view, words_per_cell
from penstock.runtime.kernels import Call, KernelCall, TextKernels
from penstock.runtime.stage import KernelOverflowError
from penstock.state.state_table import complete

FEWEST_RESULTS, MOST_RESULTS = 1 << 10, 1 << 20
FEWEST_SLOTS = 1 << 6
SEVERAL = 4
MOST_COPIED = 1 << 12  # results of so many rows are copied, so that the kernel stays bound to their memory


@dataclass(frozen=True)
class KeyedCall:
    """A compiled kernel over states per key."""

    call: KernelCall
    bindings: tuple[Binding, ...]
    outputs: tuple[OutputColumn, ...]


class KeyedProgram(Protocol):
    """A window of one type with states per key: its columns, its states, and its kernels by nullable columns."""

    @property
    def keys(self) -> tuple[pa.Field, ...]: ...
    @property
    def columns(self) -> tuple[str, ...]: ...
    @property
    def states(self) -> tuple[Type, ...]: ...
    @property
    def types(self) -> tuple[pa.DataType, ...]: ...
    @property
    def index(self) -> Call | None: ...
    @property
    def texts(self) -> TextKernels: ...
    def kernel(self, nullable: frozenset[str], variant: str, /) -> KeyedCall: ...


@dataclass(frozen=True)
class CompletedStates:
    """Results of a kernel: numbers of keys, times of the first and the last row, and the aggregates."""

    keys: np.ndarray
    first: np.ndarray
    last: np.ndarray
    reduced: list[pa.Array]


@dataclass
class KeyedTable:
    """Keys with a word of each of `of_keys`, and slots with a word of each of `of_slots`, by parameter name.

    `key_states` and `slot_states` name the states that each key and each slot has. The words have initial values.
    """

    program: KeyedProgram
    of_keys: Mapping[str, int]
    of_slots: Mapping[str, int]
    key_states: tuple[str, ...] = ()
    slot_states: tuple[str, ...] = ()
    directory: KeyDirectory = field(init=False)
    arrays: dict[str, np.ndarray] = field(init=False, default_factory=dict)
    slots: int = field(init=False, default=0)
    settled: int = field(init=False, default=FEWEST_RESULTS)
    _outputs: dict[str, np.ndarray] = field(init=False, default_factory=dict)
    _room: int = field(init=False, default=FEWEST_RESULTS)
    _nullable: frozenset[str] = field(init=False, default=frozenset())
    _bound: dict[int, tuple[KeyedCall, BoundCall]] = field(
        init=False, default_factory=dict
    )  # by id of kernel

    def __post_init__(self) -> None:
        program = self.program
        self.directory = KeyDirectory(program.keys, program.index, program.texts)
        self._match_keys()
        if self.of_slots:
            self.reserve(FEWEST_SLOTS)

    # -- room ----------------------------------------------------------------------------------------

    def reserve(self, slots: int) -> None:
        """Make room for more slots."""
        self._enlarge(self.of_slots, self.slot_states, slots)
        self.slots = slots

    def _match_keys(self) -> None:
        """Give every key that the directory has room for its words and states."""
        self._enlarge(self.of_keys, self.key_states, self.directory.capacity)

    def _enlarge(self, initial: Mapping[str, int], states: tuple[str, ...], size: int) -> None:
        for name, value in initial.items():
            larger = np.full(size, value, np.int64)
            old = self.arrays.get(name)
            if old is not None:
                larger[: len(old)] = old[:size]
            self.arrays[name] = larger
        for name, type in self._named(states):
            old = self.arrays.get(name)
            cells = filled(type, 0, size)
            if old is not None:
                cells[: len(old)] = old[: len(cells)]
            self.arrays[name] = cells

    def _named(self, states: tuple[str, ...]) -> Iterator[tuple[str, Type]]:
        """The parameters of states, and their types."""
        for hint in states:
            for place, type in enumerate(self._types(hint)):
                yield numbered(hint, place), type

    def _types(self, hint: str) -> tuple[Type, ...]:
        """The types of the cells whose parameters are declared under a hint."""
        return self.program.states

    def grow_keys(self) -> None:
        self.directory.grow()
        self._match_keys()

    def numbers(self, table: pa.Table) -> np.ndarray:
        """The numbers of the keys of a saved table; new ones are added."""
        found = self.directory.loaded(table)
        self._match_keys()
        return found

    def key_numbers(self, columns: Sequence[pa.Array], rows: int) -> np.ndarray:
        """The numbers of keys given as columns; new ones are added."""
        found = self.directory.numbers(columns, rows)
        self._match_keys()
        return found

    def crowded(self) -> bool:
        """Whether so many keys have come since the last look that it is worth a search for obsolete ones."""
        return self.directory.table is not None and len(self.directory) > 2 * self.settled

    def keep_keys(self, kept: np.ndarray) -> np.ndarray:
        """Forget all keys but some; return the new number of each old key, -1 for those forgotten."""
        moved = np.full(len(self.directory), -1)
        moved[kept] = np.arange(len(kept))
        for name in self.of_keys:
            self.arrays[name] = self.arrays[name][kept]
        for name, type in self._named(self.key_states):
            self.arrays[name] = self.arrays[name].reshape(-1, words_per_cell(type))[kept].ravel()
        self.directory = self.directory.rebuilt(kept)
        self._match_keys()
        self.settled = max(len(kept), FEWEST_RESULTS)
        return moved

    # -- runs ----------------------------------------------------------------------------------------

    def run(
        self, batch: pa.RecordBatch, variant: str, given: Mapping[str, object], row_results: bool = False
    ) -> Iterator[CompletedStates]:
        """Process the rows of a batch; yield the results, a limited number at a time, or one for each row at once."""
        arrays = batch.columns  # fetched once: each column costs a microsecond
        if any(array.null_count for array in arrays):
            self._nullable |= {name for name in self._columns(batch) if batch.column(name).null_count}
        kernel = self.program.kernel(self._nullable, variant)
        columns: BatchArguments | None = None
        row, head = 0, self.directory.head
        if row_results and self._room < batch.num_rows:
            self._room, self._outputs = batch.num_rows, {}
        while True:
            values = {
                **given,
                **self.directory.arguments(),
                **self.arrays,
                **self._results(kernel),
                "lo": row,
                "hi": batch.num_rows,
                "first_row": 0,
                "capacity": self._room,
                "slots": self.slots,
                "head": head,
            }
            bound = self._bound_call(kernel, batch, values)
            if bound is not None:
                row = bound.run(arrays, values)
            else:
                columns = columns or BatchArguments(batch, self.directory.interners)
                row = kernel.call({**values, **columns.fill(kernel.bindings)})
            if head[ERRORS]:
                raise KernelOverflowError
            status, made = head[STATUS], int(head[OUTPUT])
            head[OUTPUT] = 0
            if made:
                yield self._found(kernel, made)
            if status == DONE:
                break
            self._make_room(int(status))
        if self._room > MOST_RESULTS:  # one large batch; those that follow may be small
            self._room, self._outputs = FEWEST_RESULTS, {}

    def _bound_call(
        self, kernel: KeyedCall, batch: pa.RecordBatch, values: Mapping[str, object]
    ) -> BoundCall | None:
        """The kernel bound to its arrays; None if it is not native, or reads more than plain values."""
        found = self._bound.get(id(kernel))
        if found is None or found[0] is not kernel or not found[1].fits(batch.schema, values):
            found = kernel, BoundCall(kernel.call, kernel.bindings, batch.schema, values)
            self._bound[id(kernel)] = found
        return found[1] if found[1].native else None

    def _columns(self, batch: pa.RecordBatch) -> Sequence[str]:
        """The columns of a batch that kernels read."""
        return self.program.columns

    def _make_room(self, status: int) -> None:
        match status:
            case _ if status == NEED_KEYS:
                self.grow_keys()
            case _ if status == NEED_SLOTS:
                self.reserve(2 * self.slots)
            case _ if self._room < MOST_RESULTS:
                self._room *= 4
                self._outputs = {}

    def _results(self, kernel: KeyedCall) -> dict[str, np.ndarray]:
        """Memory for results, which is used again if they are few: they are copied then."""
        if not self._outputs:
            made = {name: np.empty(self._room, np.int64) for name in ("out_key", "out_first", "out_last")}
            for output in kernel.outputs:
                made[output.values] = np.empty(self._room, column_type(output.type))
                if output.valid is not None:
                    made[output.valid] = np.empty(self._room, np.uint8)
            self._outputs = made
        return self._outputs

    def _found(self, kernel: KeyedCall, rows: int) -> CompletedStates:
        few = SEVERAL * rows < self._room or rows <= MOST_COPIED
        order = self._order(rows)
        if order is not None:
            cut = {name: array[order] for name, array in self._outputs.items()}
        else:
            cut = {
                name: array[:rows].copy() if few else array[:rows] for name, array in self._outputs.items()
            }
            if not few:
                self._outputs = {}
        reduced = [
            to_arrow(cut[output.values], None if output.valid is None else cut[output.valid], dtype)
            for output, dtype in zip(kernel.outputs, self.program.types, strict=True)
        ]
        return CompletedStates(cut["out_key"], cut["out_first"], cut["out_last"], reduced)

    def _order(self, rows: int) -> np.ndarray | None:
        """The order in which results are returned; None for that in which the kernel wrote them."""
        return None

    # -- saved states --------------------------------------------------------------------------------

    def saved_states(self, hint: str, slots: np.ndarray) -> dict[str, pa.Array]:
        """The states of some keys or slots as columns."""
        found = {}
        for place, state in enumerate(self.program.states):
            cells = self.arrays[numbered(hint, place)]
            if state == I128:
                words = np.ascontiguousarray(cells.reshape(-1, 2)[slots])
                found[_state(place)] = pa.Array.from_buffers(
                    pa.binary(16), len(slots), [None, pa.py_buffer(words)]
                )
            else:
                found[_state(place)] = to_arrow(cells[slots], None, _arrow_type(state))
        return found

    def load_states(self, hint: str, table: pa.Table, slots: np.ndarray) -> None:
        """Store the saved states of some keys or slots."""
        for place, state in enumerate(self.program.states):
            array = complete(table, _state(place), _arrow_type(state))
            cells = self.arrays[numbered(hint, place)]
            if state == I128:
                words = np.frombuffer(array.buffers()[1], np.int64, 2 * len(array), 16 * array.offset)
                cells.reshape(-1, 2)[slots] = words.reshape(-1, 2)
            else:
                cells[slots] = values_view(array)


def _state(place: int) -> str:
    return f"state:{place}"


def _arrow_type(state: Type) -> pa.DataType:
    return pa.binary(16) if state == I128 else pa.from_numpy_dtype(numpy_type(state))

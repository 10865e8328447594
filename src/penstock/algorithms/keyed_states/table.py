"""The arrays that kernels over states per key read and write, the calls bound to them, and batches of results."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np
import pyarrow as pa

from penstock.algorithms.kernel_factory import BatchArguments
from penstock.algorithms.keyed_states.directory import KeyDirectory
from penstock.algorithms.sort.sorting import Sorter
from penstock.algorithms.sorted_partitions.frames import Frames
from penstock.algorithms.sorted_partitions.results import bound_arrays, by_bounds, by_bounds_and_keys
from penstock.algorithms.sorted_partitions.rows import taken
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
from penstock.runtime.buffers import (
    column_type,
    filled,
    lies_as_read,
    numpy_type,
    to_arrow,
    values_view,
    words_per_cell,
)
from penstock.runtime.kernels import Call, KernelCall, TextKernels
from penstock.runtime.stage import KernelOverflowError, TimedBatch, within_reach
from penstock.state.state_table import complete


class BoundCall:
    """A native kernel with all of its arguments, for batches of one schema whose columns are read as plain values.

    It holds the arrays whose addresses it was bound to. Whatever enlarges or moves them replaces them, so comparing
    them shows whether it still fits.
    """

    __slots__ = ("_arrays", "_call", "_columns", "_frame", "_others", "_schema")

    def __init__(
        self, call: KernelCall, bindings: tuple[Binding, ...], schema: pa.Schema, values: Mapping[str, Any]
    ) -> None:
        self._call, self._schema = call, schema
        plain = all(
            binding.role == "values" and lies_as_read(schema.field(binding.column).type)
            for binding in bindings
        )
        unset = {binding.parameter: 0 for binding in bindings}
        self._frame = call.standing({**values, **unset}) if plain else None
        self._arrays = [(name, value) for name, value in values.items() if isinstance(value, np.ndarray)]
        self._columns: list[tuple[int, int, int]] = []
        self._others: list[tuple[str, int]] = []
        if self._frame is None:
            return
        at = self._frame.places
        for binding in bindings:
            place = schema.get_field_index(binding.column)
            width = schema.field(place).type.bit_width // 8
            self._columns.append((at[binding.parameter], place, width))
        numbers = (name for name, value in values.items() if not isinstance(value, np.ndarray))
        self._others = [(name, at[name]) for name in numbers if name in at]

    @property
    def native(self) -> bool:
        return self._frame is not None

    def fits(self, schema: pa.Schema, values: Mapping[str, Any]) -> bool:
        """Whether the arrays are those it was bound to, and batches have the same columns."""
        for name, array in self._arrays:
            if values[name] is not array:
                return False
        return schema is self._schema or bool(schema.equals(self._schema))

    def run(self, arrays: Sequence[pa.Array], values: Mapping[str, Any]) -> int:
        """Call the kernel for the columns of a batch; `values` has the numbers."""
        frame = self._frame
        assert frame is not None
        words = frame.words
        for name, place in self._others:
            words[place] = values[name]
        for word, column, width in self._columns:
            array = arrays[column]
            data = array.buffers()[1]
            words[word] = 0 if data is None else data.address + array.offset * width
        return self._call.run(frame.start)


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


@dataclass(frozen=True)
class KeyedResults:
    """One row for each window and key. A window ends `reach` after its last row.

    `by_key` orders the rows of a window by their keys, if a downstream stage depends on their order.
    """

    schema: pa.Schema
    reach: int
    sorter: Sorter
    by_key: bool

    def batches(self, table: KeyedTable, found: Iterable[CompletedStates]) -> list[TimedBatch]:
        """Order the results of one run. They are read at once: keys are numbered by the table as it is now."""
        several = list(found)
        if not several:
            return []
        whole = several[0] if len(several) == 1 else _joined(several)
        end = within_reach(whole.last, 0, self.reach) + self.reach
        frames = Frames(whole.first, whole.last, whole.first, end)
        keys = table.directory.arrays(whole.keys)
        arrays = [*bound_arrays(frames, self.schema), *keys, *whole.reduced]
        batch = pa.RecordBatch.from_arrays(arrays, schema=self.schema)
        by_key = keys and self.by_key
        order = by_bounds_and_keys(frames, keys, self.sorter) if by_key else by_bounds(frames, self.sorter)
        return [TimedBatch(batch if order is None else taken(batch, order), counted=True)]


def _joined(several: list[CompletedStates]) -> CompletedStates:
    keys, first, last = (
        np.concatenate([getattr(reduction, name) for reduction in several])
        for name in ("keys", "first", "last")
    )
    reduced = [
        pa.concat_arrays(column) for column in zip(*(reduction.reduced for reduction in several), strict=True)
    ]
    return CompletedStates(keys, first, last, reduced)

"""Emit a dense kernel: one loop over blocks of positions with block-sized arrays, and in it the objects of the program.

Inside a block, positions are counted from its first one (an *entry*); for an object on a grid, windows are
counted from the one that contains the block's first position. A shifted value is therefore read at a constant
distance.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from math import ceil

from penstock.algorithms.expressions.cells import Cell, conjunction
from penstock.algorithms.expressions.lowering import Columns
from penstock.analysis.positions import result_step
from penstock.expr import nodes as ex
from penstock.ir.signals.nodes import Expression, Feedback, Object, Resample, Sampled, sources_of
from penstock.loop.abi import Binding
from penstock.loop.build import KernelBuilder
from penstock.loop.nodes import (
    BOOL,
    I64,
    U8,
    Buffer,
    Operand,
    Type,
    Value,
    Var,
    as_value,
    const,
    maximum,
    minimum,
)
from penstock.loop.nodes import I64 as INDEX
from penstock.loop.numbers import machine_type
from penstock.operators.signals.positional.kernels.plan import PositionalPlan, PositionNeed, either
from penstock.operators.signals.positional.kernels.reductions import Track


@dataclass(frozen=True, slots=True)
class Array:
    """Entries of an intermediate result around a block; entry 0 is the block's first and lies at `head`."""

    buffer: Buffer
    head: int

    def __getitem__(self, entry: Operand) -> Value:
        return self.buffer[self.place(entry)]

    def place(self, entry: Operand) -> Value:
        return as_value(entry, INDEX) + self.head if self.head else as_value(entry, INDEX)


@dataclass(frozen=True, slots=True)
class ResultPlacement(Array):
    """Entries of the final result, whose origin lies before the block."""

    origin: Value

    def place(self, entry: Operand) -> Value:
        return as_value(entry, INDEX) + self.origin


@dataclass
class Pool:
    """A pool of scratch buffers; reuse keeps the working set in the cache."""

    k: KernelBuilder
    sizes: dict[str, int] = field(default_factory=dict)
    _free: list[Buffer] = field(default_factory=list)

    def take(self, type: Type, size: int, head: int) -> Array:
        """Acquire an array with undefined contents."""
        found = next(
            (buffer for buffer in reversed(self._free) if buffer.type == type), None
        )  # most recent: hot
        if found is None:
            found = self.k.buffer("scratch", type)
        else:
            self._free.remove(found)
        self.sizes[found.name] = max(self.sizes.get(found.name, 0), size)
        return Array(found, head)

    def give_back(self, array: Array) -> None:
        self._free.append(array.buffer)


FAILED = 1  # return value where a value overflowed its type; NEED_WIDE where a sum might have

_POSITIONS = 1024  # minimum block length: the working set of a step fits the L1 cache
_PATTERNED = 4096  # minimum with resampling: patterns are cut at both ends of a block
SLACK = 16  # entries after the end of an array: a multiple of the iterations of any vector loop
_FEW_OBJECTS = 2
_HALOS = 6  # minimum ratio of block length to halo


@dataclass(frozen=True, slots=True)
class Here:
    """A place in a block: an entry of objects with this step, and its position on the grid if needed."""

    step: int
    entry: Value
    grid: Value | None = None


@dataclass(frozen=True, slots=True)
class Stored:
    """The columns of an object in memory: values, and validity where they may be null."""

    values: dict[str, Array]
    valid: dict[str, Array]
    marks: Array | None = None  # whether there is a sample, where the position does not determine it


@dataclass
class InputParameters:
    """Parameters for the range of given samples of an input."""

    base: Var
    total: Var
    columns: Columns


@dataclass
class BlockWriter:
    """The state shared by all parts of a kernel while it is emitted."""

    plan: PositionalPlan
    inputs_schema: tuple[tuple[object, object], ...]
    k: KernelBuilder

    def __post_init__(self) -> None:
        k, plan = self.k, self.plan
        self.lo, self.hi = k.scalar("lo"), k.scalar("hi")
        self.inputs = [self._input(str(place), *field) for place, field in enumerate(self.inputs_schema)]
        self.pool = Pool(k)
        self.histories: dict[str, Stored] = {}
        self.stored: dict[str, Stored] = {}
        self.levels: dict[tuple[Track, int], list[Array]] = {}
        self.readers = plan.readers()
        self.waiting = Counter(source for obj in plan.objects for source in sources_of(obj.body))
        grid = plan.positions.grid
        halo = max(
            [1, *(need.past + need.future for need in (*plan.needs.values(), *plan.level_needs.values()))]
        )
        least = _PATTERNED if any(isinstance(obj.body, Resample) for obj in plan.objects) else _POSITIONS
        self.block = ceil(max(least, _HALOS * halo) / grid) * grid
        # The origin of grids lies far enough before the first sample that no number is negative.
        self.phase = plan.positions.phase + ceil(2 * halo / grid + 4) * grid
        # A kernel with few objects compiles fast with LLVM's default vectorisation.
        self.brief = len(plan.needs) > _FEW_OBJECTS
        self.status = k.var("status", 0)
        self.errors = k.var("errors", False, BOOL)

    def _input(self, place: str, schema: object, time: object) -> InputParameters:
        base, total = self.k.scalar("base"), self.k.scalar("total")
        null = self.plan.nullable.get(place, frozenset())
        return InputParameters(base, total, Columns(self.k, schema, null, frozenset(), time, base))  # type: ignore[arg-type]

    @property
    def bindings(self) -> tuple[tuple[Binding, ...], ...]:
        return tuple(tuple(input_.columns.bindings) for input_ in self.inputs)

    # -- blocks --------------------------------------------------------------------------------------

    @contextmanager
    def blocks(self) -> Iterator[None]:
        """Loop over blocks that end where all grids coincide, so that few windows are cut."""
        k = self.k
        self.first = at = k.var("at", self.lo)
        with k.while_(at < self.hi):
            here = k.var("here", at + self.phase)
            end = (here.div(self.block) + 1) * self.block - self.phase
            self.count = k.var("count", minimum(end, self.hi) - at)
            self.start = k.var("start", at)
            self.bases = {1: here}
            yield
            k.set(at, at + self.count)
        k.ret(either_status(self))

    def base(self, step: int) -> Value:
        """The number of the window, on the grid of that step, in which the block begins."""
        found = self.bases.get(step)
        if found is None:
            found = self.bases[step] = self.k.var("window", self.bases[1].div(step))
        return found

    def declare_bases(self) -> None:
        """Compute the windows in which the block begins, at the start of the block's scope."""
        plan = self.plan
        steps = {*plan.positions.steps.values(), *(track.pane for track in plan.algebras)}
        steps |= {result_step(over, plan.positions.steps) for over in plan.positions.overs}
        for step in sorted(steps):
            self.base(step)

    def bounds(self, step: int, need: PositionNeed) -> tuple[Value, Value]:
        """The range of entries that covers a block and its halo."""
        here = self.bases[1]
        first: Value = const(-need.past, I64)
        stop = self.count + need.future
        if need.before > 1:
            first = first - here.rem(need.before)
        if need.after > 1:
            short = (here + self.count + (need.after - 1)).rem(need.after)
            stop = stop + (need.after - 1) - short
        if step == 1:
            return first, stop
        base = self.base(step)
        return (here + first).div(step) - base, (here + stop - 1).div(step) - base + 1

    @contextmanager
    def whole_turns(self, start: Value, stop: Value) -> Iterator[Var]:
        """Loop over entries computed from arrays alone that cannot fail; round the count up to whole vector iterations.

        The excess entries are not read. LLVM can prove that there is no remainder, and does not compile a
        remainder loop.
        """
        k = self.k
        turns = k.var("turns", (stop - start + (SLACK - 1)) & -SLACK)
        with k.for_(0, turns, "t", brief=True) as turn:
            yield k.var("e", start + turn)

    def array(self, step: int, need: PositionNeed, type: object) -> Array:
        most = need.flat
        head = most.past if step == 1 else ceil(most.past / step) + 1
        length = self.block + most.past + most.future
        size = length if step == 1 else length // step + 4
        return self.pool.take(type, max(size, 1) + SLACK, head)  # type: ignore[arg-type]

    # -- places --------------------------------------------------------------------------------------

    def entry(self, here: Here, step: int, shift: int) -> Value:
        """The entry, of objects with a step, that is `shift` positions before `here`."""
        if step == here.step and shift % step == 0:
            return here.entry - shift // step if shift else here.entry
        assert here.grid is not None
        return self.k.var("entry", (here.grid - shift).div(step) - self.base(step))

    def position(self, entry: Value) -> Value:
        return self.start + entry

    # -- values --------------------------------------------------------------------------------------

    def cell(self, name: str, column: str, entry: Value) -> Cell:
        """The value of a computed object, or of a sample."""
        stored = self.stored.get(name)
        if stored is not None and column in stored.values:
            valid = stored.valid.get(column)
            return Cell(stored.values[column][entry], None if valid is None else _flag(valid[entry]))
        this = self.plan.positions.program[name].body
        assert isinstance(this, Sampled)
        given = self.inputs[int(this.input)]
        expr = next(field.expr for field in this.fields if field.name == column)
        assert isinstance(expr, ex.Column)
        value = given.columns.cell(expr.name, self.position(entry) - given.base).value
        valid = None if stored is None else stored.valid.get(column)
        return Cell(value, None if valid is None else _flag(valid[entry]))

    def sample(self, name: str, entry: Value) -> Value | None:
        """Whether an object has a sample at an entry; None if it always has."""
        if self.plan.is_always_there(name):
            return None
        cells = [self.cell(name, column_name, entry).valid for column_name in self.plan.schemas[name].names]
        there = (
            None
            if any(cell is None for cell in cells)
            else either([cell for cell in cells if cell is not None])
        )
        return conjunction(self.mark(name, entry), there)

    def mark(self, name: str, entry: Value) -> Value | None:
        """Whether an object's inputs have a sample at an entry; None if they always have."""
        stored, plan = self.stored.get(name), self.plan
        if stored is not None and stored.marks is not None:
            return _flag(stored.marks[entry])
        if not plan.edge or plan.step(name) > 1:
            return None
        match plan.positions.program[name].body:
            case Sampled(input=source):
                position = self.k.var("position", self.position(entry))
                return (position >= 0) & (position < self.inputs[int(source)].total)
            case (
                Expression(accesses=accesses, reductions=reductions)
                | Feedback(accesses=accesses, reductions=reductions)
            ):
                read = [*((a.source, a.shift) for a in accesses), *((r.source, r.shift) for r in reductions)]
                return one_of([self.mark(source, entry - shift) for source, shift in read])
            case _:
                raise AssertionError("nothing reads what is resampled")

    def fail(self, condition: Value) -> None:
        self.k.set(self.errors, self.errors | condition)

    def store(self, this: Object, stored: Stored, name: str, entry: Value, cell: Cell) -> None:
        """Store a column of an object."""
        array = stored.values[name]
        self.k.store(array.buffer, array.place(entry), cell.value.to(array.buffer.type))
        valid = stored.valid.get(name)
        if valid is not None:
            there = const(1, U8) if cell.valid is None else cell.valid.to(U8)
            self.k.store(valid.buffer, valid.place(entry), there)

    def room(self, this: Object, need: PositionNeed) -> Stored:
        """Allocate memory for the columns of an object."""
        step = self.plan.step(this.name)
        nulls = self.plan.nulls[this.name]
        values = {field.name: self.array(step, need, machine_type(field.type)) for field in this.schema}
        return Stored(
            values, {name: self.array(step, need, U8) for name in this.schema.names if name in nulls}
        )

    def done_with(self, name: str) -> None:
        """Release the memory of an object once all its readers are emitted; results of feedbacks stay."""
        self.waiting[name] -= 1
        body = self.plan.positions.program[name].body
        if self.waiting[name] == 0 and name in self.stored and not isinstance(body, Feedback):
            stored = self.stored.pop(name)
            for array in (*stored.values.values(), *stored.valid.values(), stored.marks):
                if array is not None:
                    self.pool.give_back(array)


def either_status(writer: BlockWriter) -> Value:
    """The return value of the kernel."""
    k = writer.k
    with k.if_(writer.errors):
        k.set(writer.status, FAILED)
    return writer.status


def one_of(conditions: Sequence[Value | None]) -> Value | None:
    """The disjunction of several conditions; None stands for true."""
    found = [condition for condition in conditions if condition is not None]
    return either(found) if len(found) == len(conditions) else None


def _flag(byte: Value) -> Value:
    return byte.ne(0)


def at_least(value: Value, least: int) -> Value:
    return maximum(value, as_value(least, I64))
